//! Scripts that sync something on a mount. A copy of the image at that time is replayed by the engine and by
//! the kernel.
//!
//! The server is running while its image is copied. A power cut would preserve less: the copy also contains
//! writes that were not flushed.
//!
//! The engine's tests of its log run the same scripts on the kernel's mount.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use ubtrfs_fs::{OpenOptions, Rescue, Volume};
use ubtrfs_sim::kernel::{KernelMount, or_skip, progs_verdict};
use ubtrfs_sim::manifest::{Entry, Field, Kind, Manifest, assert_same, diff_without};

use crate::scenarios::{self, Scenario};
use crate::served::{Place, alone, assert_ok, can_mount, ubtrfs};
use crate::{shown, situations};

/// In CI, one of this many scripts is run.
const STEP: usize = 16;

/// The kernel passes no clones on to a server, and there is no command for quotas.
const UNSERVED: [&str; 2] = ["reflink", "quota"];

/// A replay changes times of directories in which it unlinks names. The kernel's mount of a copy has other
/// access times.
const OF_REPLAY: [Field; 2] = [Field::Mtime, Field::Ctime];

/// A script that ran, and its results.
struct Cut {
    name: &'static str,
    /// Relative to the top directory.
    dir: PathBuf,
    then: &'static str,
    image: PathBuf,
    live: Manifest,
}

/// Runs a script, which can run our program by the name `btrfs`.
fn sh(dir: &Path, script: &str) {
    let script = format!(
        "set -e; btrfs() {{ '{}' \"$@\"; }}; {script}",
        env!("CARGO_BIN_EXE_ubtrfs")
    );
    assert_ok(Command::new("bash").args(["-c", &script]).current_dir(dir));
}

fn copied(image: &Path, name: &str) -> PathBuf {
    let copy = image.with_file_name(name);
    let mut cp = Command::new("cp");
    assert_ok(cp.arg("--sparse=always").args([image, &copy]));
    copy
}

/// Returns the paths that the last command of a script syncs, if it names them literally.
fn synced(then: &str) -> Vec<&str> {
    let words: Vec<&str> = then.rsplit("; ").next().unwrap().split(' ').collect();
    let paths = match (words[0], then.contains("sync ")) {
        ("sync", _) => &words[1..],
        ("xfs_io", true) => &words[words.len() - 1..],
        _ => &[],
    };
    let is_plain = |path: &&str| {
        path.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'/')
    };
    let paths = paths.iter().copied();
    paths
        .filter(|path| is_plain(path) && !path.starts_with('/'))
        .collect()
}

fn names_in(manifest: &Manifest, dir: &[u8]) -> BTreeSet<Vec<u8>> {
    let within = |entry: &Entry| {
        let rest = entry.path.strip_prefix(dir)?.strip_prefix(b"/")?;
        (!rest.contains(&b'/')).then(|| rest.to_vec())
    };
    manifest.entries.iter().filter_map(within).collect()
}

/// Fails unless each synced path is as it was on the mount. A parent directory that was moved may be at its
/// old place.
fn judge_synced(cut: &Cut, after: &Manifest) {
    for path in synced(cut.then) {
        let what = format!("{}: {path}", cut.name);
        let live = cut.live.get(path.as_bytes());
        let live = live.unwrap_or_else(|| panic!("{what}: it was not seen"));
        let name = path.rsplit('/').next().unwrap().as_bytes();
        let is_it = |entry: &&Entry| {
            entry.stat.ino == live.stat.ino
                && entry.path.rsplit(|byte| *byte == b'/').next() == Some(name)
        };
        let at_path = cut.dir.join(path);
        let at_path = after.get(at_path.as_os_str().as_bytes()).filter(is_it);
        let found = at_path.or_else(|| after.entries.iter().find(is_it));
        let found = found.unwrap_or_else(|| panic!("{what}: it is lost"));
        if live.stat.kind == Kind::Dir {
            let names = [
                names_in(&cut.live, &live.path),
                names_in(after, &found.path),
            ];
            assert_eq!(names[0], names[1], "{what}: its names");
            continue;
        }
        let [live, found] = [live, found].map(|entry| Manifest {
            entries: vec![Entry {
                path: Vec::new(),
                ..entry.clone()
            }],
            faults: Vec::new(),
        });
        let apart = diff_without(&live, &found, &[Field::Atime]);
        assert!(apart.is_empty(), "{what}: {apart:?}");
    }
}

fn kernel_shows(image: &Path) -> Manifest {
    let mount = KernelMount::new(&[image.to_owned()], "").unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    shown
}

fn has_log(image: &Path) -> bool {
    let committed = OpenOptions::new().rescue(Rescue {
        no_log_replay: true,
        ..Rescue::default()
    });
    let volume = Volume::open(&[image.to_owned()], &committed).unwrap();
    volume.superblock().has_log()
}

fn judge(cut: &Cut) {
    let what = cut.name;
    progs_verdict(std::slice::from_ref(&cut.image), true)
        .unwrap_or_else(|said| panic!("{what}: before: {said}"));
    let theirs = copied(&cut.image, "kernel.img");
    let by_kernel = kernel_shows(&theirs);
    let open = |writable| {
        let options = OpenOptions::new().writable(writable).commit_interval(None);
        Volume::open(std::slice::from_ref(&cut.image), &options).unwrap()
    };
    let read = shown::manifest(&open(false));
    assert_same(&format!("{what}: replayed"), &by_kernel, &read, &OF_REPLAY);
    judge_synced(cut, &read);
    let written = open(true);
    assert_same(what, &read, &shown::manifest(&written), &[]);
    written.close().unwrap();
    drop(written);
    for image in [&cut.image, &theirs] {
        progs_verdict(std::slice::from_ref(image), true)
            .unwrap_or_else(|said| panic!("{what}: after: {said}"));
        fs::remove_file(image).unwrap();
    }
}

/// LOG-WRITE-1, LOG-WRITE-3
#[test]
fn files_that_scripts_synced_on_a_mount_are_replayed_by_both() {
    let test = "files_that_scripts_synced_on_a_mount_are_replayed_by_both";
    if !can_mount() || !or_skip(test) {
        return;
    }
    let _alone = alone();
    let step = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => 1,
        None => STEP,
    };
    let only = std::env::var("UBTRFS_SCENARIO").ok();
    let is_served = |scenario: &&Scenario| {
        let has = |word: &&str| scenario.before.contains(word) || scenario.then.contains(word);
        !UNSERVED.iter().any(has)
    };
    let all = situations::ALL.iter().chain(scenarios::ALL);
    let all = all.filter(is_served);
    let all = all.filter(|scenario| only.as_ref().is_none_or(|only| scenario.name == only));
    let (mut count, mut logs) = (0, 0);
    for (number, scenario) in all.enumerate().step_by(step) {
        let place = Place::new(1 << 30);
        let mut server = place.serve_with("commit=600");
        let dir = PathBuf::from(format!("{number:02}"));
        let at = place.mountpoint.join(&dir);
        fs::create_dir(&at).unwrap();
        let commit = || assert_ok(ubtrfs().args(["filesystem", "sync"]).arg(&place.mountpoint));
        println!("{}", scenario.name);
        sh(&at, scenario.before);
        // Space that was already allocated forces no commit now.
        sh(&at, "head -c 3M /dev/urandom > warm");
        commit();
        fs::remove_file(at.join("warm")).unwrap();
        commit();
        sh(&at, scenario.then);
        let image = copied(&place.image, "cut.img");
        let cut = Cut {
            name: scenario.name,
            live: Manifest::of_dir(&at).unwrap(),
            dir,
            then: scenario.then,
            image,
        };
        server.signal(Signal::TERM);
        assert!(server.end().expect("it ends").success());
        count += 1;
        logs += usize::from(has_log(&cut.image));
        judge(&cut);
    }
    println!("{test}: {logs} of {count} have a log");
    assert!(count > 0, "no script of that name");
    // Only few scripts run in CI, and some commit instead of writing a log.
    let enough = match step {
        1 => logs * 4 > count * 3,
        _ => logs * 2 > count,
    };
    assert!(only.is_some() || enough, "{logs} logs only");
}
