//! Equal input gives equal bytes.

use std::fs;
use std::path::Path;

use ubtrfs_sim::kernel::{self, KernelMount};
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::{Scratch, fingerprint};

use crate::judges::assert_sound;
use crate::process::{assert_success, mkfs};
use crate::tree;

pub(crate) const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
pub(crate) const EPOCH: i64 = 1_650_000_000;

/// Creates a reproducible volume.
pub(crate) fn make_again(words: &str, rootdir: &Path, images: &[&Path]) -> Vec<u64> {
    for image in images {
        let _ = fs::remove_file(image);
    }
    let output = mkfs()
        .env("SOURCE_DATE_EPOCH", EPOCH.to_string())
        .args(["-q", "-U", UUID])
        .args(words.split_whitespace())
        .arg("--rootdir")
        .arg(rootdir)
        .args(images)
        .output()
        .unwrap();
    assert_success(words, &output);
    let fingerprints = images.iter().map(|image| fingerprint(image).unwrap());
    fingerprints.collect()
}

#[test]
fn copies_of_a_folder_give_the_same_bytes() {
    let scratch = Scratch::new().unwrap();
    let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
    fs::create_dir(&one).unwrap();
    tree::fill(&one, 5);
    // The copy was made in another order: with other inode numbers, other change times, and another order of
    // names.
    let copied = std::process::Command::new("cp")
        .args(["-a", "--sparse=auto", "--reflink=never"])
        .args([&one, &other])
        .status();
    assert!(copied.unwrap().success());
    let images = [scratch.path().join("a.img"), scratch.path().join("b.img")];
    for words in [
        "",
        "--compress zstd --subvol crowd --shrink",
        "-d raid1 -m raid1 -O quota,^bgt",
    ] {
        let images: Vec<&Path> = if words.contains("raid1") {
            images.iter().map(|image| image.as_path()).collect()
        } else {
            vec![&images[0]]
        };
        let first = make_again(words, &one, &images);
        assert!(first == make_again(words, &other, &images), "{words}");
        assert!(first == make_again(words, &one, &images), "{words}");
        let owned: Vec<_> = images.iter().map(|image| image.to_path_buf()).collect();
        assert_sound(words, &owned);
    }
}

/// Creates a volume with files without a given UUID, and returns its bytes.
fn make_unnamed(words: &str, rootdir: &Path, images: &[&Path]) -> Vec<Vec<u8>> {
    for image in images {
        let _ = fs::remove_file(image);
    }
    let output = mkfs()
        .env("SOURCE_DATE_EPOCH", EPOCH.to_string())
        .arg("-q")
        .args(words.split_whitespace())
        .arg("--rootdir")
        .arg(rootdir)
        .args(images)
        .output()
        .unwrap();
    assert_success(words, &output);
    let bytes = images.iter().map(|image| fs::read(image).unwrap());
    bytes.collect()
}

#[test]
fn uuids_follow_from_files_and_options_with_an_epoch() {
    let scratch = Scratch::new().unwrap();
    let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
    fs::create_dir(&one).unwrap();
    tree::fill(&one, 7);
    let copied = std::process::Command::new("cp")
        .args(["-a", "--reflink=never"])
        .args([&one, &other])
        .status();
    assert!(copied.unwrap().success());
    let images = [scratch.path().join("a.img"), scratch.path().join("b.img")];
    let fsid = |image: &[u8]| image[0x1_0020..0x1_0030].to_vec();
    let mut fsids = Vec::new();
    for words in [
        "",
        "--compress zstd --subvol crowd --shrink",
        "-d raid1 -m raid1",
    ] {
        let images: Vec<&Path> = if words.contains("raid1") {
            images.iter().map(|image| image.as_path()).collect()
        } else {
            vec![&images[0]]
        };
        let first = make_unnamed(words, &one, &images);
        assert!(first == make_unnamed(words, &other, &images), "{words}");
        let owned: Vec<_> = images.iter().map(|image| image.to_path_buf()).collect();
        assert_sound(words, &owned);
        fsids.push(fsid(&first[0]));
    }
    // Other content of the same size and time.
    let file = other.join("changed");
    for content in ["one", "two"] {
        fs::write(&file, content).unwrap();
        fsids.push(fsid(&make_unnamed("", &other, &[&images[0]])[0]));
    }
    let mut different = fsids.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), fsids.len(), "{fsids:?}");
    assert!(fsids.iter().all(|fsid| *fsid != [0; 16]));
}

#[test]
fn no_time_is_later_than_the_epoch_asked_for() {
    if !kernel::or_skip("no_time_is_later_than_the_epoch_asked_for") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::fill(&source, 6);
    let image = scratch.path().join("v.img");
    make_again("", &source, &[&image]);
    let mount = KernelMount::new(&[image], "ro").unwrap();
    let (expected, found) = (
        Manifest::of_dir(&source).unwrap(),
        Manifest::of_dir(mount.path()).unwrap(),
    );
    for (before, after) in expected.entries.iter().zip(&found.entries) {
        let (before, after) = (&before.stat, &after.stat);
        let is_earlier = before.mtime.seconds < EPOCH;
        if is_earlier {
            assert_eq!(after.mtime, before.mtime);
        } else {
            assert_eq!((after.mtime.seconds, after.mtime.nanoseconds), (EPOCH, 0));
        }
        assert_eq!((after.atime, after.ctime), (after.mtime, after.mtime));
        assert_eq!(after.btime, Some(after.mtime));
    }
}

#[test]
fn epoch_that_is_no_number_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let output = mkfs()
        .env("SOURCE_DATE_EPOCH", "yesterday")
        .args(["-b", "200M"])
        .arg(dir.path().join("v.img"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("SOURCE_DATE_EPOCH is not a number of seconds: yesterday"),
        "{said}"
    );
}
