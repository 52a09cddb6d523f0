//! `btrfs check` and `mkfs.btrfs` as references.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::csum::CsumType;
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{self, LoopDevice};

use crate::cases::{self, Case, GIB, MIB};

/// Runs a tool and returns all of its output.
fn run(program: &str, args: &[&str], paths: &[&Path]) -> (bool, String) {
    let output = Command::new(program)
        .args(args)
        .args(paths)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// Asserts that `btrfs check` finds no error in any of its modes, and prints no warning.
pub(crate) fn assert_clean(words: &str, devices: &[PathBuf]) {
    assert_clean_in(
        &["--readonly", "--check-data-csum", "--mode=lowmem"],
        words,
        devices,
    );
}

/// Asserts the same as [`assert_clean`], except for data checksums. btrfs-progs 6.14 reconstructs some blocks wrongly
/// from correct parity. Which blocks are affected depends on the positions of extents, so volumes filled by the kernel
/// may show this.
pub(crate) fn assert_clean_but_for_data(words: &str, devices: &[PathBuf]) {
    assert_clean_in(&["--readonly", "--mode=lowmem"], words, devices);
}

fn assert_clean_in(modes: &[&str], words: &str, devices: &[PathBuf]) {
    let loops: Vec<LoopDevice> = devices
        .iter()
        .map(|device| LoopDevice::attach(device).unwrap())
        .collect();
    for mode in modes {
        let (clean, said) = run("btrfs", &["check", mode], &[loops[0].path()]);
        let doubt = said
            .lines()
            // Loop devices of other processes may vanish while it scans for members.
            .filter(|line| !line.contains("cannot scan"))
            .find(|line| {
                let line = line.to_lowercase();
                [
                    "warning", "error:", "mismatch", "bad ", "invalid", "wrong", "missing", "cross",
                ]
                .iter()
                .any(|word| line.contains(word))
            });
        assert!(clean && doubt.is_none(), "{words}: check {mode}: {said}");
    }
}

fn assert_made_clean(case: &Case) {
    let scratch = Scratch::new().unwrap();
    let devices = case.on_files(&scratch);
    assert_clean(&case.words, &devices);
}

/// Selects one case in `one_in`, or all in a soak.
fn some(cases: Vec<Case>, one_in: usize) -> Vec<Case> {
    let step = if cases::soak() { 1 } else { one_in };
    cases.into_iter().step_by(step).collect()
}

#[test]
fn btrfs_check_finds_nothing_in_any_profile() {
    if kernel::or_skip("btrfs_check_finds_nothing_in_any_profile") {
        some(cases::profiles(), 7)
            .iter()
            .for_each(assert_made_clean);
    }
}

#[test]
fn btrfs_check_finds_nothing_with_any_feature() {
    if kernel::or_skip("btrfs_check_finds_nothing_with_any_feature") {
        some(cases::features(), 7)
            .iter()
            .for_each(assert_made_clean);
    }
}

#[test]
fn btrfs_check_finds_nothing_in_any_size() {
    if kernel::or_skip("btrfs_check_finds_nothing_in_any_size") {
        some(cases::sizes(), 2).iter().for_each(assert_made_clean);
    }
}

/// The properties that must match between both tools: the superblock, and the kinds of items.
#[derive(Debug, PartialEq, Eq)]
struct Outline {
    /// Superblock fields by name.
    fields: BTreeMap<String, String>,
    /// Type, bytes and stripes of each chunk.
    chunks: Vec<(String, u64, usize)>,
    /// The number of items by tree, type and size.
    items: BTreeMap<(String, String, String), usize>,
}

/// Fields that identify a volume, a device or a transaction, and addresses.
const OWN_FIELDS: &[&str] = &[
    "superblock:",
    "csum",
    "fsid",
    "generation",
    "root",
    "chunk_root",
    "chunk_root_generation",
    // The choice of devices for a chunk may differ.
    "dev_item.bytes_used",
    "dev_item.uuid",
    "dev_item.fsid",
    // mkfs.btrfs leaves the check of the UUID tree to the first mount.
    "uuid_tree_generation",
];

fn outline(devices: &[PathBuf]) -> Outline {
    let paths: Vec<&Path> = devices.iter().map(PathBuf::as_path).collect();
    let (_, superblock) = run("btrfs", &["inspect-internal", "dump-super"], &paths[..1]);
    let fields = superblock
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .filter(|(name, _)| !name.is_empty() && !OWN_FIELDS.contains(name))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let chunks = kernel::chunks(devices).unwrap();
    let mut chunks: Vec<_> = chunks
        .into_iter()
        .map(|chunk| (chunk.flags, chunk.len_bytes, chunk.stripes.len()))
        .collect();
    chunks.sort();
    let (_, trees) = run("btrfs", &["inspect-internal", "dump-tree"], &paths);
    Outline {
        fields,
        chunks,
        items: items_by_kind(&trees),
    }
}

/// Counts the items of a dump, without free space: mkfs.btrfs leaves entries of removed block groups.
fn items_by_kind(dump: &str) -> BTreeMap<(String, String, String), usize> {
    let mut items = BTreeMap::new();
    let mut tree = String::new();
    for line in dump.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["leaf", .., "owner", owner] = words.as_slice() {
            tree = (*owner).to_owned();
        }
        // item 5 key (1 DEV_EXTENT 13631488) itemoff 15789 itemsize 112
        if let ["item", _, "key", _, kind, .., "itemsize", size] = words.as_slice()
            && tree != "FREE_SPACE_TREE"
        {
            let key = (tree.clone(), (*kind).to_owned(), (*size).to_owned());
            *items.entry(key).or_default() += 1;
        }
    }
    items
}

#[test]
fn volume_has_what_one_of_mkfs_btrfs_has() {
    if !kernel::or_skip("volume_has_what_one_of_mkfs_btrfs_has") {
        return;
    }
    use Profile::{Dup, Raid0, Raid1, Raid1c3, Raid1c4, Raid5, Raid6, Raid10, Single};
    for case in [
        Case::new(1, GIB).features("bgt"),
        Case::new(1, 109 * MIB).features("^bgt"),
        Case::new(1, 64 * MIB).mixed().features("^bgt"),
        Case::new(1, GIB).features("^bgt,quota"),
        Case::new(1, GIB).features("^bgt,squota"),
        Case::new(1, GIB).features("^bgt,^fst,^no-holes,^skinny-metadata,^extref"),
        Case::new(1, 60 * GIB)
            .csum(CsumType::Sha256)
            .nodesize(65536)
            .features("bgt"),
        Case::new(1, 2 * GIB)
            .profiles(Dup, Dup)
            .nodesize(32768)
            .features("bgt"),
        Case::new(1, GIB).profiles(Single, Single).features("bgt"),
        Case::new(2, GIB).csum(CsumType::XxHash64).features("bgt"),
        Case::new(3, GIB).profiles(Raid0, Raid1c3).features("bgt"),
        Case::new(4, GIB)
            .profiles(Raid10, Raid10)
            .csum(CsumType::Blake2b)
            .features("bgt"),
        Case::new(4, GIB).profiles(Raid6, Raid1c4).features("bgt"),
        Case::new(3, GIB).profiles(Raid5, Raid1).features("^bgt"),
    ] {
        let ours = Scratch::new().unwrap();
        let theirs = Scratch::new().unwrap();
        let our_devices = case.on_files(&ours);
        let their_devices: Vec<PathBuf> = (0..our_devices.len())
            .map(|at| {
                theirs
                    .file(&format!("dev{at}.img"), case.device_bytes[at])
                    .unwrap()
            })
            .collect();
        let paths: Vec<&Path> = their_devices.iter().map(PathBuf::as_path).collect();
        let options: Vec<&str> = case.words.split(' ').collect();
        let (made, said) = run("mkfs.btrfs", &options, &paths);
        assert!(made, "{said}");
        assert_same_outline(
            &case.words,
            &outline(&our_devices),
            &outline(&their_devices),
        );
    }
}

/// Asserts that two outlines are equal, and reports only the differences.
fn assert_same_outline(words: &str, ours: &Outline, theirs: &Outline) {
    for (name, value) in &theirs.fields {
        assert_eq!(ours.fields.get(name), Some(value), "{words}: {name}");
    }
    assert_eq!(ours.chunks, theirs.chunks, "{words}");
    for (kind, count) in theirs.items.iter().chain(&ours.items) {
        assert_eq!(
            theirs.items.get(kind),
            Some(count),
            "{words}: {kind:?} of mkfs.btrfs"
        );
        assert_eq!(
            ours.items.get(kind),
            Some(count),
            "{words}: {kind:?} of ours"
        );
    }
    assert_eq!(ours, theirs, "{words}");
}
