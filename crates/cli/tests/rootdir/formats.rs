//! One folder as a volume in every format that can be filled.

use std::fs;

use ubtrfs_sim::kernel::{self, KernelMount};
use ubtrfs_sim::manifest::{Field, assert_same};
use ubtrfs_sim::{Scratch, seed};

use crate::judges::{
    NOT_COPIED, assert_kernel_shows, assert_sound, assert_sound_by, manifest, run,
};
use crate::process::{make, refusal};
use crate::tree;

/// Options and the number of devices.
const FORMATS: &[(&str, usize)] = &[
    ("", 1),
    ("--csum xxhash -n 4k --compress zstd", 1),
    ("--csum sha256 -n 64k -O ^bgt --compress lzo", 1),
    ("--csum blake2 -n 32k --compress zlib:9", 1),
    ("-O ^no-holes,^fst -n 8k", 1),
    (
        "-O ^no-holes,^skinny-metadata,^fst,^bgt --compress zstd:1",
        1,
    ),
    ("-O quota", 1),
    ("-O squota,^bgt", 1),
    ("-M", 1),
    ("-M -m dup -d dup --compress zstd", 1),
    ("-d dup -m single", 1),
    ("-d raid0 -m raid1 --csum xxhash", 3),
    ("-d raid1 -m raid1c3", 3),
    ("-d raid10 -m raid10 -n 4k", 4),
    ("-d raid1c4 -m raid1c4 -M", 4),
    ("--shrink", 1),
    ("--shrink -M --compress zstd", 1),
    ("--shrink -d raid0 -m raid1", 2),
    ("--shrink -n 64k -d dup", 1),
];

#[test]
fn every_format_holds_the_folder() {
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    let seed = seed("every_format_holds_the_folder");
    tree::fill(&source, seed);
    let expected = manifest(&source);
    for (words, devices) in FORMATS {
        let images = make(scratch.path(), words, *devices, &source);
        let what = format!("{words:?}, seed {seed}");
        assert_sound(&what, &images);
        assert_kernel_shows(&what, &images, &expected);
    }
}

#[test]
fn holes_stay_holes() {
    if !kernel::or_skip("holes_stay_holes") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::fill(&source, 1);
    let images = make(scratch.path(), "-O ^no-holes", 1, &source);
    let mount = KernelMount::new(&images, "ro").unwrap();
    let blocks = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(mount.path().join("holes").join(name)).unwrap();
        metadata.blocks() * 512
    };
    assert_eq!(blocks("all"), 0);
    assert_eq!(blocks("start"), 102_400);
    assert_eq!(blocks("end"), 12_288);
}

#[test]
fn subvolumes_are_made_of_folders() {
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::fill(&source, 2);
    for words in [
        "--subvol crowd --subvol ro:links/z --subvol default:deep/down/down --subvol deep",
        "-O quota --subvol ro:links/z --subvol default-ro:contents",
        "-O squota --subvol rw:crowd --subvol names --inode-flags nodatasum:contents",
        "-U 11111111-2222-3333-4444-555555555555 --subvol ./empty",
    ] {
        let images = make(scratch.path(), words, 1, &source);
        assert_sound(words, &images);
        if !kernel::or_skip(words) {
            continue;
        }
        let mount = KernelMount::new(&images, "subvolid=5").unwrap();
        let found = manifest(mount.path());
        // Hard links that a subvolume boundary separates become separate files.
        let ignored = [&NOT_COPIED[..], &[Field::Nlink]].concat();
        assert_same(words, &manifest(&source), &found, &ignored);
        let list = run("btrfs", &["subvolume", "list", "-u"], &[mount.path()]);
        let count = words.matches("--subvol").count();
        assert_eq!(list.lines().count(), count, "{list}");
        for option in words.split(" --subvol ").skip(1) {
            let path = option
                .split(' ')
                .next()
                .unwrap()
                .rsplit(':')
                .next()
                .unwrap();
            let path = path.trim_start_matches("./");
            assert!(
                list.lines()
                    .any(|line| line.ends_with(&format!(" path {path}"))),
                "{path} in {list}"
            );
            let inside = mount.path().join(path).join("new");
            let is_read_only = option.starts_with("ro:") || option.starts_with("default-ro:");
            assert_eq!(fs::write(inside, "new").is_err(), is_read_only, "{option}");
        }
        if let Some((_, rest)) = words.split_once("default") {
            let path = rest.split(' ').next().unwrap().rsplit(':').next().unwrap();
            let default = run("btrfs", &["subvolume", "get-default"], &[mount.path()]);
            assert!(
                default.trim_end().ends_with(&format!(" path {path}")),
                "{default}"
            );
        }
        mount.unmount().unwrap();
        assert_sound(words, &images);
    }
}

#[test]
fn inode_flags_are_seen_by_the_kernel() {
    if !kernel::or_skip("inode_flags_are_seen_by_the_kernel") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::fill(&source, 3);
    let words = "--compress zstd --inode-flags nodatacow:contents \
                 --inode-flags nodatasum:holes/many --subvol crowd --inode-flags nodatacow:crowd/file-7";
    let images = make(scratch.path(), words, 1, &source);
    assert_sound(words, &images);
    let mount = KernelMount::new(&images, "").unwrap();
    let is_nocow = |path: &str| {
        let file = fs::File::open(mount.path().join(path)).unwrap();
        let flags = rustix::fs::ioctl_getflags(&file).unwrap();
        flags.contains(rustix::fs::IFlags::NOCOW)
    };
    for (path, expected) in [
        ("contents", true),
        ("contents/text-3500000", true),
        ("contents/text-1", true),
        ("holes/many", false),
        ("crowd", false),
        ("crowd/file-7", true),
        ("crowd/file-8", false),
    ] {
        assert_eq!(is_nocow(path), expected, "{path}");
    }
}

#[test]
fn names_that_fill_an_item_go_on_in_others() {
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("other")).unwrap();
    let first = source.join("first");
    fs::write(&first, "many names").unwrap();
    for number in 0..300 {
        let name = format!("name-{number:03}-{}", "x".repeat(200));
        fs::hard_link(&first, source.join(&name)).unwrap();
        fs::hard_link(&first, source.join("other").join(name)).unwrap();
    }
    for words in ["", "-n 4k", "-n 64k"] {
        let images = make(scratch.path(), words, 1, &source);
        // The low memory mode of btrfs check 6.14 fails on such files, also on those made by the kernel.
        assert_sound_by(words, &images, &["--check-data-csum"]);
        if kernel::available().is_ok() {
            let mount = KernelMount::new(&images, "").unwrap();
            let found = manifest(mount.path());
            assert_same(words, &manifest(&source), &found, &NOT_COPIED);
            // Names can be removed from both kinds of items.
            fs::remove_dir_all(mount.path().join("other")).unwrap();
            fs::remove_file(mount.path().join("first")).unwrap();
            mount.unmount().unwrap();
            assert_sound_by(words, &images, &["--check-data-csum"]);
        }
    }
    let image = scratch.path().join("v.img");
    let said = refusal(
        ["-O", "^extref", "--rootdir"]
            .iter()
            .map(|word| word.as_ref())
            .chain([source.as_os_str(), image.as_os_str()]),
    );
    assert!(said.contains("too many names in one directory"), "{said}");
}

#[test]
fn mkfs_btrfs_makes_the_same_of_the_folder() {
    if !kernel::or_skip("mkfs_btrfs_makes_the_same_of_the_folder") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::fill(&source, 4);
    let images = make(scratch.path(), "--compress zstd --subvol crowd", 1, &source);
    let theirs = scratch.path().join("theirs.img");
    fs::write(&theirs, "").unwrap();
    let words = ["-q", "--compress", "zstd", "--subvol", "crowd", "--rootdir"];
    run("mkfs.btrfs", &words, &[&source, &theirs]);
    let ours = KernelMount::new(&images, "ro").unwrap();
    let theirs = KernelMount::new(&[theirs], "ro").unwrap();
    // mkfs.btrfs stores no nanoseconds, and numbers inodes in the order in which the folder lists them.
    let mut found = manifest(ours.path());
    for entry in &mut found.entries {
        let stat = &mut entry.stat;
        for time in [&mut stat.atime, &mut stat.mtime, &mut stat.ctime] {
            time.nanoseconds = 0;
        }
    }
    let expected = manifest(theirs.path());
    // It also changes access times when it reads, and loses device numbers.
    let ignored = [Field::Ino, Field::Btime, Field::Atime, Field::Rdev];
    assert_same("mkfs.btrfs and ours", &expected, &found, &ignored);
}
