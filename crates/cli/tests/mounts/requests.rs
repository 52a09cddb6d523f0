//! The number of requests by programs that fill a tree with files. Each costs a round trip between kernel and
//! server.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::served::{Place, alone, assert_ok, can_mount, ubtrfs};

const DIRS: usize = 4;
const FILES: usize = 100;
/// Requests for the top directory, for the directories, and by the command that reads the counts.
const BESIDE: u64 = 12 * DIRS as u64;

/// Request names, and the number of requests for each file.
type Counts = &'static [(&'static str, f64)];

/// Requests of a copy by root. The kernel looks up the name, creates the file, and asks whether the first
/// write removes a capability. Each other system call of the program is one request.
const OF_CP: Counts = &[
    ("lookup", 1.0),
    ("getattr", 1.0),
    ("mknod", 1.0),
    ("getxattr", 1.0),
    ("write", 1.0),
    // Times; the mode is set with an ACL.
    ("setattr", 1.0),
    ("setxattr", 1.0),
];
const OF_CP_WITH_FAKEROOT: Counts = &[
    ("lookup", 1.0),
    ("getattr", 0.0),
    ("mknod", 1.0),
    ("getxattr", 1.0),
    ("write", 1.0),
    // An ACL cannot set the mode.
    ("setattr", 2.0),
    ("setxattr", 1.0),
];
const OF_TAR: Counts = &[
    ("lookup", 1.0),
    ("getattr", 1.0),
    ("mknod", 1.0),
    // Before the first write, and when the owner is set.
    ("getxattr", 2.0),
    // tar writes a file in separate parts if it spans two records of the archive.
    ("write", 1.5),
    // Owner, mode, times.
    ("setattr", 3.0),
];
const OF_TAR_WITH_FAKEROOT: Counts = &[
    ("lookup", 1.0),
    ("getattr", 0.0),
    ("mknod", 1.0),
    ("getxattr", 2.0),
    ("write", 1.5),
    ("setattr", 3.0),
];
const OF_RM: Counts = &[("getattr", 1.0), ("readdirplus", 0.2), ("unlink", 1.0)];
const OF_RM_WITH_FAKEROOT: Counts = &[("getattr", 0.0), ("readdirplus", 0.2), ("unlink", 1.0)];

fn make_tree(top: &Path) {
    for dir in 0..DIRS {
        let dir = top.join(format!("dir{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..FILES / DIRS {
            fs::write(dir.join(format!("file{file}")), [7; 3000]).unwrap();
        }
    }
}

/// Returns the counts of requests since the mount was made, without FORGET, which has no answer.
fn requests(mountpoint: &Path) -> BTreeMap<String, u64> {
    let mut command = ubtrfs();
    command.args(["filesystem", "stats", "--format", "json"]);
    let output = command.arg(mountpoint).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verbs = report["filesystem-stats"]["requests"].as_object().unwrap();
    let count = |(verb, counted): (&String, &Value)| {
        let count = counted["count"].as_u64().unwrap();
        (verb != "forget").then(|| (verb.clone(), count))
    };
    verbs.iter().filter_map(count).collect()
}

fn check(
    what: &str,
    counts: Counts,
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) {
    for (verb, &count) in after {
        let came = count - before.get(verb).copied().unwrap_or(0);
        let of_file = counts.iter().find(|(listed, _)| listed == verb);
        let of_files = of_file.map_or(0.0, |(_, of_file)| of_file * FILES as f64);
        assert!(
            came <= of_files as u64 + BESIDE,
            "{what}: {came} of {verb} for {FILES} files"
        );
    }
}

fn fills_a_tree(options: &str, [of_cp, of_tar, of_rm]: [Counts; 3]) {
    let place = Place::new(256 << 20);
    let source = place.scratch.path().join("tree");
    make_tree(&source);
    let archive = place.scratch.path().join("tree.tar");
    let mut tar = Command::new("tar");
    assert_ok(tar.arg("-cf").arg(&archive).arg("-C").arg(&source).arg("."));
    let _server = place.serve_with(options);
    let (copy, unpacked) = (place.mountpoint.join("copy"), place.mountpoint.join("tar"));
    fs::create_dir(&unpacked).unwrap();

    let start = requests(&place.mountpoint);
    assert_ok(Command::new("cp").arg("-a").args([&source, &copy]));
    let copied = requests(&place.mountpoint);
    check(&format!("cp -a, {options}"), of_cp, &start, &copied);
    let mut tar = Command::new("tar");
    assert_ok(tar.arg("-xf").arg(&archive).arg("-C").arg(&unpacked));
    let extracted = requests(&place.mountpoint);
    check(&format!("tar -x, {options}"), of_tar, &copied, &extracted);
    assert_ok(Command::new("rm").arg("-r").arg(&copy));
    let removed = requests(&place.mountpoint);
    check(&format!("rm -r, {options}"), of_rm, &extracted, &removed);
    place.umount();
}

#[test]
fn filling_a_tree_takes_the_requests_that_the_kernel_must_make() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    fills_a_tree("rw", [OF_CP, OF_TAR, OF_RM]);
}

#[test]
fn fakeroot_spares_the_attributes_of_a_directory_that_has_changed() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    fills_a_tree(
        "fakeroot",
        [
            OF_CP_WITH_FAKEROOT,
            OF_TAR_WITH_FAKEROOT,
            OF_RM_WITH_FAKEROOT,
        ],
    );
}
