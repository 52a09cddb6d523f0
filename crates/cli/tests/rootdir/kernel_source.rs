//! A folder on the kernel's btrfs, with everything that only btrfs supports.

use std::fs;
use std::path::Path;

use ubtrfs_sim::fill::{Scale, hard_cases};
use ubtrfs_sim::kernel::{self, KernelMount, KernelVolume, MkfsSpec};
use ubtrfs_sim::manifest::assert_same;
use ubtrfs_sim::seed;

use crate::judges::{NOT_COPIED, assert_kernel_shows, assert_sound, manifest};
use crate::process::{assert_success, make, mkfs};

#[test]
fn hard_cases_of_a_kernel_volume_are_held() {
    if !kernel::or_skip("hard_cases_of_a_kernel_volume_are_held") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let seed = seed("hard_cases_of_a_kernel_volume_are_held");
    hard_cases(mount.path(), &Scale::small(), seed).unwrap();
    let expected = manifest(mount.path());
    for words in [
        "",
        "--compress zstd -O ^no-holes",
        "--csum blake2 -n 64k --compress zlib",
    ] {
        let images = make(volume.dir(), words, 1, mount.path());
        let what = format!("{words:?}, seed {seed}");
        assert_sound(&what, &images);
        assert_kernel_shows(&what, &images, &expected);
    }
}

/// Creates a folder and an image on a volume of the kernel, sharing blocks.
fn assert_shares(dir: &Path, words: &str, devices: usize) {
    let source = dir.join("source");
    let images: Vec<_> = (0..devices).map(|n| dir.join(format!("{n}.img"))).collect();
    let output = mkfs()
        .args(["--reflink", "-f"])
        .args(words.split_whitespace())
        .arg("--rootdir")
        .arg(&source)
        .args(&images)
        .output()
        .unwrap();
    assert_success(words, &output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let shared = said.lines().find(|line| line.contains("Reflink:")).unwrap();
    // All except the last, partial sector of each file.
    assert!(shared.contains("9.53MiB of 9.57MiB"), "{words}: {shared}");
    assert_sound(words, &images);
    let expected = manifest(&source);
    let mount = KernelMount::new(&images, "ro").unwrap();
    let found = manifest(mount.path());
    assert_same(words, &expected, &found, &NOT_COPIED);
}

#[test]
fn blocks_are_shared_where_the_file_system_can() {
    if !kernel::or_skip("blocks_are_shared_where_the_file_system_can") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new().device_bytes(2 << 30)).unwrap();
    let mount = volume.mount("").unwrap();
    let source = mount.path().join("source");
    fs::create_dir(&source).unwrap();
    let mut rng = ubtrfs_sim::Rng::new(1);
    for number in 0..10_usize {
        let mut data = vec![0; 1_000_000 + number * 100];
        rng.fill(&mut data);
        fs::write(source.join(format!("large-{number}")), &data).unwrap();
        fs::write(source.join(format!("small-{number}")), &data[..100]).unwrap();
    }
    mount.sync().unwrap();
    assert_shares(mount.path(), "", 1);
    assert_shares(mount.path(), "-d dup --csum sha256", 1);
    assert_shares(mount.path(), "-d raid0 -m raid1", 2);
}

#[test]
fn data_that_cannot_be_shared_is_copied_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), vec![3; 100_000]).unwrap();
    // The image is on another file system.
    let image = Path::new("/dev/shm").join(format!("ubtrfs-{}.img", std::process::id()));
    let output = mkfs()
        .args(["--reflink", "--rootdir"])
        .arg(&source)
        .arg(&image)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let sound = std::panic::catch_unwind(|| assert_sound("copied", std::slice::from_ref(&image)));
    fs::remove_file(&image).unwrap();
    assert_success("copied", &output);
    assert!(said.contains("Reflink:          no, copied"), "{said}");
    sound.unwrap();
}
