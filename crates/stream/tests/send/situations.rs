//! Regression scripts: situations that senders of btrfs have handled incorrectly at some time.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use ubtrfs_sim::Rng;
use ubtrfs_sim::kernel::{MkfsSpec, available_or_skip};

use ubtrfs_stream::Diff;

use crate::edits::clone_range;
use crate::fixture::{Source, Target, V1, V2, V2_COMPRESSED, btrfs};
use crate::received_by_us::OwnTarget;

const SECTOR: u64 = 4096;

/// Sends all snapshots as a series, forwards and backwards, in several forms, and checks the results.
fn judge(source: Source, names: &[&str]) {
    judge_on(source, names, &MkfsSpec::new());
}

fn judge_on(source: Source, names: &[&str], spec: &MkfsSpec) {
    let sending = source.open();
    let back: Vec<&str> = names.iter().rev().copied().collect();
    for (options, series) in [
        (V1, names),
        (V1, &back),
        (V2, &back),
        (V2_COMPRESSED, names),
    ] {
        let (target, ours) = (Target::of(spec), OwnTarget::of(spec));
        for (number, name) in series.iter().enumerate() {
            let parent = number.checked_sub(1).map(|before| series[before]);
            let stream = sending.send(name, parent, &series[..number], options);
            ours.receive(&stream);
            target.receive(&sending, name, &stream);
        }
        ours.judge(&sending, series);
    }
}

fn random(len: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

fn exchange(a: &Path, b: &Path) {
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
}

fn open(path: &Path) -> File {
    let options = OpenOptions::new().read(true).write(true).to_owned();
    options.open(path).unwrap()
}

/// More names than fit in one reference item, in directories that are renamed, replaced and removed.
#[test]
fn links_beyond_one_item() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::of(&MkfsSpec::new().nodesize(4096), "");
    let live = source.live();
    let name = |number: u32| format!("{number:03} {}", "n".repeat(200));
    for dir in ["a", "b", "c"] {
        fs::create_dir(live.join(dir)).unwrap();
    }
    fs::write(live.join("a/file"), b"contents").unwrap();
    for number in 0..60 {
        for dir in ["a", "b"] {
            fs::hard_link(live.join("a/file"), live.join(dir).join(name(number))).unwrap();
        }
    }
    source.snapshot("0");
    // The first reference is removed, and half of the others are moved.
    fs::remove_file(live.join("a/file")).unwrap();
    for number in (0..60).step_by(2) {
        fs::rename(
            live.join("a").join(name(number)),
            live.join("c").join(name(number)),
        )
        .unwrap();
    }
    exchange(&live.join("a"), &live.join("b"));
    source.snapshot("1");
    fs::remove_dir_all(live.join("b")).unwrap();
    fs::create_dir(live.join("b")).unwrap();
    fs::rename(live.join("a"), live.join("b/a")).unwrap();
    source.snapshot("2");
    fs::remove_dir_all(live.join("b")).unwrap();
    fs::remove_dir_all(live.join("c")).unwrap();
    source.snapshot("3");
    judge(source, &["0", "1", "2", "3"]);
}

/// A deep hierarchy is inverted, while its files stay in their directories.
#[test]
fn a_hierarchy_is_inverted() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    let count = 60;
    let mut path = live.clone();
    for number in 0..count {
        path.push(format!("{number}"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), format!("{number}")).unwrap();
    }
    source.snapshot("0");
    let mut all = Vec::new();
    let mut at = live.clone();
    for number in 0..count {
        at.push(format!("{number}"));
        all.push(at.clone());
    }
    for (number, dir) in all.iter().enumerate().rev() {
        fs::rename(dir, live.join(format!("aside {number}"))).unwrap();
    }
    let mut path = live.clone();
    for number in (0..count).rev() {
        path.push(format!("{number}"));
        fs::rename(live.join(format!("aside {number}")), &path).unwrap();
    }
    source.snapshot("1");
    judge(source, &["0", "1"]);
}

/// Inode numbers are reused under the same names, even by another file type.
#[test]
fn numbers_are_given_out_again() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    let at = |path: &str| live.join(path);
    fs::create_dir_all(at("dir/sub")).unwrap();
    fs::write(at("dir/file"), b"old").unwrap();
    symlink("old", at("dir/link")).unwrap();
    fs::write(at("last"), [1; 9000]).unwrap();
    source.snapshot("0");
    for what in ["file", "link"] {
        fs::remove_file(at("dir").join(what)).unwrap();
    }
    fs::remove_file(at("last")).unwrap();
    fs::remove_dir_all(at("dir")).unwrap();
    source.remount();
    let live = source.live();
    let at = |path: &str| live.join(path);
    fs::write(at("dir"), b"was a directory").unwrap();
    fs::write(at("other"), b"other").unwrap();
    fs::create_dir(at("file")).unwrap();
    fs::create_dir(at("file/link")).unwrap();
    fs::write(at("last"), [2; 5000]).unwrap();
    source.snapshot("1");
    fs::remove_dir_all(at("file")).unwrap();
    for file in ["dir", "other", "last"] {
        fs::remove_file(at(file)).unwrap();
    }
    source.remount();
    let live = source.live();
    let at = |path: &str| live.join(path);
    // The original names, with new inodes of the same numbers.
    fs::create_dir_all(at("dir/sub")).unwrap();
    fs::write(at("dir/file"), b"new").unwrap();
    symlink("new", at("dir/link")).unwrap();
    fs::write(at("last"), [3; 9000]).unwrap();
    source.snapshot("2");
    judge(source, &["0", "1", "2"]);
}

/// Capabilities survive changes that clear them, and disappear when they are removed.
#[test]
fn capabilities_follow_what_clears_them() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    let capability = |bits: u8| [&[1, 0, 0, 2][..], &[bits; 16]].concat();
    let files = ["data", "owner", "mode", "size", "first only", "name"];
    for file in files {
        fs::write(live.join(file), [1; 9000]).unwrap();
        xattr::set(live.join(file), "security.capability", &capability(4)).unwrap();
    }
    source.snapshot("0");
    open(&live.join("data"))
        .write_all_at(&[2; 100], 50)
        .unwrap();
    xattr::set(live.join("data"), "security.capability", &capability(4)).unwrap();
    chown(live.join("owner"), Some(1), Some(2)).unwrap();
    xattr::set(live.join("owner"), "security.capability", &capability(4)).unwrap();
    let mode = fs::Permissions::from_mode(0o4711);
    fs::set_permissions(live.join("mode"), mode).unwrap();
    open(&live.join("size")).set_len(100).unwrap();
    xattr::set(live.join("size"), "security.capability", &capability(5)).unwrap();
    xattr::remove(live.join("first only"), "security.capability").unwrap();
    fs::rename(live.join("name"), live.join("renamed")).unwrap();
    source.snapshot("1");
    judge(source, &["0", "1"]);
}

/// Unaligned ends of files, cloned within and across files, into shorter and longer ones.
#[test]
fn tails_are_cloned() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    let at = |path: &str| live.join(path);
    let len = 10 * SECTOR + 123;
    for (number, file) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        fs::write(at(file), random(len, number as u64)).unwrap();
        File::open(at(file)).unwrap().sync_all().unwrap();
    }
    source.snapshot("0");
    let clone = |from: &str, to: &str, offset, len, target| {
        assert!(clone_range(
            &open(&at(from)),
            &open(&at(to)),
            offset,
            len,
            target
        ));
    };
    // An unaligned end cannot be cloned into the middle of a file, but to the end of a longer, an equal, and a
    // shorter file.
    clone("a", "b", 8 * SECTOR, 0, 20 * SECTOR);
    open(&at("c")).set_len(3 * SECTOR).unwrap();
    clone("a", "c", 0, 0, 0);
    clone("d", "d", 0, 4 * SECTOR, 16 * SECTOR);
    clone("d", "d", 5 * SECTOR, 4 * SECTOR, 0);
    clone("d", "e", 8 * SECTOR, 0, 8 * SECTOR);
    source.snapshot("1");
    // A shorter file that still ends with the source's tail.
    open(&at("c")).set_len(9 * SECTOR + 5).unwrap();
    open(&at("e")).set_len(0).unwrap();
    clone("c", "e", 4 * SECTOR, 0, 0);
    open(&at("a")).set_len(SECTOR / 2).unwrap();
    clone("b", "a", 20 * SECTOR, 0, 4 * SECTOR);
    source.snapshot("2");
    judge(source, &["0", "1", "2"]);
}

/// The end of a file is truncated and then restored, in the same extent.
#[test]
fn ends_come_back() {
    if !available_or_skip() {
        return;
    }
    for options in ["", ",compress-force=zstd"] {
        let mut source = Source::new(options);
        let live = source.live();
        let long = random(3 * SECTOR + 1000, 1);
        for (number, len) in [100, SECTOR + 100, 2 * SECTOR, 3 * SECTOR + 999]
            .into_iter()
            .enumerate()
        {
            let path = live.join(format!("{number}"));
            fs::write(&path, &long).unwrap();
            open(&path).sync_all().unwrap();
            source.snapshot(&format!("long {number}"));
            open(&path).set_len(len).unwrap();
        }
        source.snapshot("short");
        judge(source, &["short", "long 0", "long 1", "long 2", "long 3"]);
    }
}

#[test]
fn differences_tell_of_ends_that_come_back() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let path = source.live().join("file");
    fs::write(&path, random(3 * SECTOR, 1)).unwrap();
    open(&path).sync_all().unwrap();
    source.snapshot("long");
    open(&path).set_len(2 * SECTOR + 100).unwrap();
    source.snapshot("short");
    let sending = source.open();
    let (short, long) = (sending.snapshot("short"), sending.snapshot("long"));
    let mut diff = Diff::new(&short, &long, 1 << 20).unwrap();
    let mut ranges = Vec::new();
    while let Some(change) = diff.next_change().unwrap() {
        ranges.extend(change.data.iter().map(|range| (range.start, range.end)));
    }
    assert_eq!(ranges, [(2 * SECTOR + 100, 3 * SECTOR)]);
}

/// Parts of compressed extents: at offsets, in shorter files, in several places.
#[test]
fn compressed_extents_are_shared_in_parts() {
    if !available_or_skip() {
        return;
    }
    for algorithm in ["zlib", "lzo", "zstd"] {
        let mut source = Source::new(&format!(",compress-force={algorithm}"));
        let live = source.live();
        let at = |path: &str| live.join(path);
        let text: Vec<u8> = (0..500_000_u32).map(|at| (at / 999) as u8).collect();
        fs::write(at("a"), &text).unwrap();
        File::open(at("a")).unwrap().sync_all().unwrap();
        fs::write(at("b"), &text[..200_001]).unwrap();
        File::open(at("b")).unwrap().sync_all().unwrap();
        source.snapshot("0");
        open(&at("a"))
            .write_all_at(b"in the middle", 70_000)
            .unwrap();
        let c = File::create_new(at("c")).unwrap();
        drop(c);
        assert!(clone_range(
            &open(&at("b")),
            &open(&at("c")),
            5 * SECTOR,
            20 * SECTOR,
            0
        ));
        assert!(clone_range(
            &open(&at("b")),
            &open(&at("c")),
            45 * SECTOR,
            0,
            20 * SECTOR
        ));
        open(&at("b")).set_len(100_003).unwrap();
        source.snapshot("1");
        let b = open(&at("b"));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&b, punch, 7 * SECTOR, 3 * SECTOR).unwrap();
        b.set_len(300_000).unwrap();
        open(&at("a")).set_len(130_000).unwrap();
        drop(b);
        source.snapshot("2");
        judge(source, &["0", "1", "2"]);
    }
}

/// Space beyond the end of a file is not sent, but later writes to it are.
#[test]
fn preallocated_space_is_written_later() {
    if !available_or_skip() {
        return;
    }
    for options in ["", ",compress-force=zstd", ",nodatacow"] {
        let mut source = Source::new(options);
        let live = source.live();
        let path = live.join("file");
        fs::write(&path, random(5000, 1)).unwrap();
        fallocate(open(&path), FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
        source.snapshot("0");
        let file = open(&path);
        file.write_all_at(&random(10_000, 2), 100_001).unwrap();
        file.sync_all().unwrap();
        source.snapshot("1");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 0, 105_000).unwrap();
        fallocate(&file, FallocateFlags::ZERO_RANGE, 107_000, 200_000).unwrap();
        source.snapshot("2");
        file.set_len(3000).unwrap();
        file.set_len((4 << 30) + 77).unwrap();
        file.write_all_at(b"high", (5 << 30) + 1).unwrap();
        drop(file);
        source.snapshot("3");
        judge(source, &["0", "1", "2", "3"]);
    }
}

/// Directories with nested subvolumes are moved, replaced by files, and removed.
#[test]
fn nested_subvolumes_are_left_out() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    let at = |path: &str| live.join(path);
    for dir in ["moved", "replaced", "removed", "kept"] {
        fs::create_dir(at(dir)).unwrap();
        btrfs(&["subvolume", "create"], &[&at(dir).join("nested")]);
        fs::write(at(dir).join("nested/file"), b"nested").unwrap();
    }
    source.snapshot("0");
    fs::rename(at("moved"), at("kept/moved")).unwrap();
    for dir in ["replaced", "removed", "kept"] {
        btrfs(&["subvolume", "delete"], &[&at(dir).join("nested")]);
    }
    fs::remove_dir(at("replaced")).unwrap();
    fs::write(at("replaced"), b"a file").unwrap();
    fs::remove_dir(at("removed")).unwrap();
    fs::create_dir(at("kept/nested")).unwrap();
    fs::write(at("kept/nested/file"), b"a directory").unwrap();
    source.snapshot("1");
    judge(source, &["0", "1"]);
}

/// Attributes of the maximum size for a node, with arbitrary bytes in names and values.
#[test]
fn large_attributes_are_carried() {
    if !available_or_skip() {
        return;
    }
    let spec = MkfsSpec::new().nodesize(65_536);
    let mut source = Source::of(&spec, "");
    let live = source.live();
    fs::write(live.join("file"), b"").unwrap();
    let long = format!("user.{}", "x".repeat(250));
    xattr::set(live.join("file"), &long, &random(60_000, 1)).unwrap();
    xattr::set(live.join("file"), "user.empty", b"").unwrap();
    source.snapshot("0");
    xattr::set(live.join("file"), &long, &random(61_000, 2)).unwrap();
    xattr::set(&live, "user.of the root", &random(9000, 3)).unwrap();
    xattr::remove(live.join("file"), "user.empty").unwrap();
    source.snapshot("1");
    judge_on(source, &["0", "1"], &spec);
}

/// Names with arbitrary bytes are exchanged in a ring within one directory; some look like a sender's temporary
/// names.
#[test]
fn names_change_places_in_rings() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    let names: Vec<std::ffi::OsString> = {
        use std::os::unix::ffi::OsStringExt;
        let mut names: Vec<Vec<u8>> = vec![b"\xff\xfe".to_vec(), b"a\nb".to_vec(), b" ".to_vec()];
        names.push(vec![b'l'; 255]);
        names.extend((257..265).map(|ino| format!("o{ino}-7-0").into_bytes()));
        names.extend((257..265).map(|ino| format!("o{ino}-8-0").into_bytes()));
        names.extend((257..265).map(|ino| format!("o{ino}-9-0").into_bytes()));
        names
            .into_iter()
            .map(std::ffi::OsString::from_vec)
            .collect()
    };
    for (number, name) in names.iter().enumerate() {
        match number % 3 {
            0 => fs::create_dir(live.join(name)).unwrap(),
            _ => fs::write(live.join(name), format!("{number}")).unwrap(),
        }
    }
    source.snapshot("0");
    for pair in names.windows(2) {
        exchange(&live.join(&pair[0]), &live.join(&pair[1]));
    }
    source.snapshot("1");
    for (number, pair) in names
        .chunks(2)
        .enumerate()
        .filter(|(_, pair)| pair.len() == 2)
    {
        let [a, b] = [&pair[0], &pair[1]].map(|name| live.join(name));
        match (number % 2, a.is_dir(), b.is_dir()) {
            (0, true, false) => fs::rename(b, a.join("below")).unwrap(),
            (0, false, true) => fs::rename(a, b.join("below")).unwrap(),
            _ => exchange(&a, &b),
        }
    }
    source.snapshot("2");
    judge(source, &["0", "1", "2"]);
}
