//! Calls with unusual arguments, on a mount of the kernel's btrfs and on ours. Their results, their errors, and the
//! files afterwards must be equal. Each difference is listed with its reason.
//!
//! With `UBTRFS_SOAK` set, all mount options are tested that select other code.
#![allow(unsafe_code)]

#[path = "posix/attributes.rs"]
mod attributes;
#[path = "posix/calls.rs"]
mod calls;
#[path = "posix/contents.rs"]
mod contents;
#[path = "posix/flags.rs"]
mod flags;
#[path = "posix/handles.rs"]
mod handles;
#[path = "posix/idmapped.rs"]
mod idmapped;
#[path = "posix/listing.rs"]
mod listing;
#[path = "posix/names.rs"]
mod names;
#[path = "posix/opens.rs"]
mod opens;
mod served;
#[path = "posix/stage.rs"]
mod stage;
#[path = "posix/xattrs.rs"]
mod xattrs;

use std::collections::BTreeMap;
use std::path::Path;

use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};
use ubtrfs_sim::manifest::{Field, Manifest, assert_same};

use self::served::Served;
use self::stage::{Answer, Stage};

type Case = (&'static str, fn(&mut Stage));

const CASES: &[Case] = &[
    ("flags", opens::flags),
    ("without_rights", opens::without_rights),
    ("tmpfiles", opens::tmpfiles),
    ("unnamed", opens::unnamed),
    ("renames", names::renames),
    ("links", names::links),
    ("making_and_removing", names::making_and_removing),
    ("long_and_odd", names::long_and_odd),
    ("sticky_and_setgid", names::sticky_and_setgid),
    ("modes_and_owners", attributes::modes_and_owners),
    ("setting_times", attributes::setting_times),
    ("moving_times", attributes::moving_times),
    ("statx_fields", attributes::statx_fields),
    ("xattr_names", xattrs::names_and_kinds),
    ("xattr_sizes", xattrs::sizes),
    ("xattr_rights", xattrs::rights),
    ("xattr_properties", xattrs::properties),
    ("acls", xattrs::acls),
    ("sizes", contents::sizes),
    ("appending", contents::appending),
    ("allocation", contents::allocation),
    ("holes_and_data", contents::holes_and_data),
    ("maps", contents::maps),
    ("copies", contents::copies),
    ("locks", contents::locks),
    ("inode_flags", flags::setting),
    ("forbidding", flags::forbidding),
    ("appending_in_parts", flags::appending_in_parts),
    ("while_it_changes", listing::while_it_changes),
    ("beside_another", listing::beside_another),
    ("places", listing::places),
    ("by_handle", handles::by_handle),
    ("mapped_users", idmapped::mapped_users),
];

/// Known differences, by the start of the question, with their reasons.
const KNOWN: &[(&str, &str)] = &[
    ("copies: clone of", CLONES),
    ("forbidding: immutable: open", FLAGS),
    ("forbidding: immutable: write by", FLAGS),
    ("forbidding: immutable: append by", FLAGS),
    ("forbidding: immutable: cut by", FLAGS),
    ("forbidding: immutable: access for writing", FLAGS),
    ("forbidding: immutable: copy to it", FLAGS),
    ("forbidding: immutable: left", FLAGS),
    ("forbidding: append-only: open", FLAGS),
    ("forbidding: append-only: write by", FLAGS),
    ("forbidding: append-only: left", FLAGS),
    (
        "moving_times: times moved by cut of nothing to nothing",
        TRUNC,
    ),
    (
        "sizes: seek -1 3",
        "The kernel's answer depends on whether the file was written back.",
    ),
    (
        "statx_fields: attributes of",
        "Linux does not ask a FUSE server for the attributes of statx(2).",
    ),
    ("while_it_changes: made since", LISTING),
];
/// Further ones with the option `writeback`.
const KNOWN_WITH_WRITEBACK: &[(&str, &str)] = &[
    ("moving_times: times moved by punch of a hole", OWN_TIMES),
    ("moving_times: times moved by flags", OWN_TIMES),
];
const OWN_TIMES: &str = "With `writeback` Linux keeps the times of open files itself. It moves them before it knows whether anything \
    changes, and takes no other change time from the server.";
const CLONES: &str = "Linux hands no clones to a FUSE server.";
const FLAGS: &str = "Linux does not know the flags of a file: what they forbid is refused when it is done, to whoever does it, and \
    not when the file is opened. With the option `opens` it is refused then.";
const TRUNC: &str = "A truncate(2) to 0 looks like an open with O_TRUNC, which changes times.";
const LISTING: &str = "A listing ends before what was made after it began, also when it goes back to a place in itself.";

/// Options of our mounts; the first set is always tested.
const WAYS: &[&str] = &["", "opens", "writeback", "nodatacow", "transport=classic"];

fn play(dir: &Path) -> Vec<Answer> {
    let wanted = std::env::var("UBTRFS_CASE").ok();
    let chosen = CASES
        .iter()
        .filter(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name));
    chosen
        .flat_map(|(name, play)| {
            let mut stage = Stage::new(dir, name);
            play(&mut stage);
            stage.answers()
        })
        .collect()
}

fn compare(way: &str, theirs: &[Answer], ours: &[Answer]) {
    let mut differing = Vec::new();
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for (their, our) in theirs.iter().zip(ours) {
        assert_eq!(their.what, our.what, "{way}: the questions differ");
        if their.came == our.came {
            continue;
        }
        let further = KNOWN_WITH_WRITEBACK.iter().filter(|_| way == "writeback");
        let mut known = KNOWN.iter().chain(further);
        match known.find(|(what, _)| their.what.starts_with(what)) {
            Some((what, _)) => *met.entry(what).or_default() += 1,
            None => differing.push(format!(
                "{}\n  kernel {}\n  ours   {}",
                their.what, their.came, our.came
            )),
        }
    }
    for difference in &differing {
        eprintln!("{way}: {difference}");
    }
    assert_eq!(theirs.len(), ours.len(), "{way}: as many questions");
    assert!(
        differing.is_empty(),
        "{way}: {} answers differ of {}",
        differing.len(),
        ours.len()
    );
    if way.is_empty() && std::env::var_os("UBTRFS_CASE").is_none() {
        let stale = KNOWN.iter().filter(|(what, _)| !met.contains_key(what));
        let stale: Vec<_> = stale.map(|(what, _)| *what).collect();
        assert_eq!(stale, [""; 0], "listed, and the same after all");
    }
}

/// Not a test: the process that serves the mount of the test below.
#[test]
#[ignore = "run by another test"]
fn serving_process() {
    served::serve();
}

#[test]
fn calls_answer_as_on_the_kernels_btrfs() {
    if !or_skip("calls_answer_as_on_the_kernels_btrfs") {
        return;
    }
    let spec = MkfsSpec::new().device_bytes(1 << 30);
    let play_theirs = |words: &str| {
        let theirs = KernelVolume::make(&spec).unwrap();
        let kernel = theirs.mount(words).unwrap();
        let expected = play(kernel.path());
        let their_tree = Manifest::of_dir(kernel.path()).unwrap();
        kernel.unmount().unwrap();
        (expected, their_tree)
    };
    let usual = play_theirs("");
    let ways = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => WAYS,
        None => &WAYS[..1],
    };
    for way in ways {
        // Flags of new files differ.
        let own = (*way == "nodatacow").then(|| play_theirs(way));
        let (expected, their_tree) = own.as_ref().unwrap_or(&usual);
        let made = KernelVolume::make(&spec).unwrap();
        let dir = made.dir().join("ours");
        std::fs::create_dir(&dir).unwrap();
        let words = format!("noatime,{way}");
        let served = Served::start("serving_process", &made.devices()[0], &dir, &words);
        let answers = play(&dir);
        served.end();
        made.check().unwrap();
        compare(way, expected, &answers);
        let kernel = made.mount_ro().unwrap();
        let our_tree = Manifest::of_dir(kernel.path()).unwrap();
        let times = [
            Field::Ino,
            Field::Atime,
            Field::Mtime,
            Field::Ctime,
            Field::Btime,
        ];
        assert_same(
            &format!("what is left, {way}"),
            their_tree,
            &our_tree,
            &times,
        );
        kernel.unmount().unwrap();
    }
}
