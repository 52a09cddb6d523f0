//! Logs on volumes of all kinds, written by the engine and by the kernel: both replay them to the synced
//! state.
//!
//! `UBTRFS_CASES` sets the number of kinds, `UBTRFS_CASE` selects one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Fallocate, FileId, NewInode, OpenOptions, RenameMode, Rescue, Volume, XattrMode};
use ubtrfs_sim::kernel::{CutVolume, KernelMount, KernelVolume, Profile, or_skip, progs_verdict};
use ubtrfs_sim::manifest::{Manifest, assert_same, diff_without};
use ubtrfs_sim::matrix::{self, Case, Features};
use ubtrfs_sim::{Progress, Rng, seed};

use crate::case_options::engine_options;
use crate::replay::{OF_REPLAY, open, sh};
use crate::shown;
use crate::written::pattern;

const KINDS: usize = 12;

/// Calls `each` for several kinds of volumes, each with a random generator.
fn of_kinds(test: &str, mut cases: Vec<Case>, each: impl Fn(&str, &Case, &mut Rng)) {
    if !or_skip(test) {
        return;
    }
    let few = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => usize::MAX,
        None => KINDS,
    };
    let count = std::env::var("UBTRFS_CASES").ok();
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(few);
    let seed = seed(test);
    match std::env::var("UBTRFS_CASE") {
        Ok(name) => cases.retain(|case| case.to_string() == name),
        Err(_) => cases = matrix::sample(&cases, count, seed),
    }
    let progress = Progress::new(test, cases.len());
    for case in &cases {
        let what = format!("{test}: UBTRFS_CASE={case} UBTRFS_SEED={seed}");
        println!("{what}");
        each(&what, case, &mut Rng::new(seed));
        progress.step(|| &what);
    }
}

fn shuffle<T>(all: &mut [T], rng: &mut Rng) {
    for end in (1..all.len()).rev() {
        all.swap(end, rng.below(end as u64 + 1) as usize);
    }
}

fn copied(devices: &[PathBuf], dir: &Path, name: &str) -> Vec<PathBuf> {
    let copy = |(number, device): (usize, &PathBuf)| {
        let copy = dir.join(format!("{name}-{number}.img"));
        let mut cp = Command::new("cp");
        cp.args(["--reflink=auto", "--sparse=auto"]).arg(device);
        assert!(cp.arg(&copy).status().unwrap().success());
        copy
    };
    devices.iter().enumerate().map(copy).collect()
}

fn kernel_shows(devices: &[PathBuf], options: &str) -> Manifest {
    let mount = KernelMount::new(devices, options).unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    shown
}

/// The writer of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Engine,
    Kernel,
}

/// Checks the state of `devices` after a power cut. `live` is the state before it, all of it synced. `dir`
/// has room for copies.
fn judge(what: &str, case: &Case, by: By, devices: &[PathBuf], live: &Manifest, dir: &Path) {
    assert!(live.faults.is_empty(), "{what}: {:?}", live.faults);
    let committed = OpenOptions::new().rescue(Rescue {
        no_log_replay: true,
        ..Rescue::default()
    });
    let unreplayed = Volume::open(devices, &committed).unwrap();
    let has_log = unreplayed.superblock().has_log();
    let before = shown::manifest(&unreplayed);
    let is_vain = diff_without(&before, live, &OF_REPLAY).is_empty();
    drop(unreplayed);
    if is_vain && by == By::Kernel {
        println!("{what}: nothing to judge, as Linux committed all of it");
        return;
    }
    assert!(has_log, "{what}: no log");
    assert!(!is_vain, "{what}: the log has nothing");

    // btrfs-progs 6.14 requires checksums of a hole that the kernel logged from its middle on.
    let has_hole_items = matches!(case.features, Features::Oldest | Features::NoNoHoles);
    // It miscomputes data from correct parity.
    let has_parity = matches!(case.profile, Profile::Raid5 | Profile::Raid6);
    let verdict = |devices: &[PathBuf], when: &str| {
        let options = CheckOptions {
            data_csums: true,
            ..CheckOptions::default()
        };
        let report = check(devices, &options, &mut ()).unwrap();
        assert!(report.is_clean(), "{what}: {when}: {report}");
        progs_verdict(devices, !has_parity).unwrap_or_else(|said| panic!("{what}: {when}: {said}"));
    };
    if by == By::Kernel && has_hole_items {
        let report = check(devices, &CheckOptions::default(), &mut ()).unwrap();
        assert!(report.has_log && report.is_clean(), "{what}: {report}");
    } else {
        verdict(devices, "before");
    }
    let read = shown::manifest(&open(devices, false).unwrap());
    assert_same(&format!("{what}: read"), live, &read, &OF_REPLAY);

    let theirs = copied(devices, dir, "kernel");
    let by_kernel = kernel_shows(&theirs, "");
    assert_same(&format!("{what}: kernel"), live, &by_kernel, &OF_REPLAY);
    verdict(&theirs, "replayed by the kernel");

    if matrix::writable().contains(case) {
        let ours = copied(devices, dir, "engine");
        let volume = open(&ours, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!volume.superblock().has_log(), "{what}");
        let written = shown::manifest(&volume);
        assert_same(&format!("{what}: written"), &read, &written, &[]);
        volume.close().unwrap();
        drop(volume);
        verdict(&ours, "replayed by the engine");
        let by_kernel = kernel_shows(&ours, "");
        assert_same(&format!("{what}: replayed"), &read, &by_kernel, &[]);
    }

    if case.profile.devices_it_can_lose() > 0 {
        let left = copied(&devices[1..], dir, "left");
        let options = OpenOptions::new().degraded(true);
        let degraded = shown::manifest(&Volume::open(&left, &options).unwrap());
        assert_same(&format!("{what}: degraded"), live, &degraded, &OF_REPLAY);
        let degraded = kernel_shows(&left, "degraded");
        let what = format!("{what}: degraded kernel");
        assert_same(&what, live, &degraded, &OF_REPLAY);
    }
}

/// Makes a change and returns the paths to sync.
type Change = fn(&Work<'_>) -> &'static [&'static str];

struct Work<'a> {
    volume: &'a Arc<Volume>,
    top: FileId,
}

impl Work<'_> {
    fn file(&self, path: &str) -> FileId {
        self.volume.resolve(self.top, path.as_bytes()).unwrap()
    }

    fn make(&self, dir: FileId, name: &str, len: usize) -> FileId {
        let new = NewInode::file(0o644);
        let file = self.volume.create(dir, name.as_bytes(), &new).unwrap();
        let bytes = pattern(name.len() as u8, len);
        self.volume.write(file, 0, &bytes).unwrap();
        file
    }
}

const FILES: [(&str, usize); 9] = [
    ("overwritten", 1 << 20),
    ("cut short", 300_000),
    ("made longer", 5000),
    ("linked", 100_000),
    ("moved", 9000),
    ("replaced", 20_000),
    ("replacing", 30_000),
    ("attributes", 2000),
    ("gone", 50_000),
];

const CHANGES: [Change; 12] = [
    |w| {
        w.make(w.top, "new", 200_000);
        w.make(w.top, "small", 100);
        &["new", "small"]
    },
    |w| {
        let text = b"what can be compressed, again and again. ".repeat(6000);
        let file = w.make(w.top, "compressed", 0);
        w.volume.write(file, 0, &text).unwrap();
        &["compressed"]
    },
    |w| {
        let bytes = pattern(90, 50_000);
        let file = w.file("overwritten");
        w.volume.write(file, 300_000, &bytes).unwrap();
        &["overwritten"]
    },
    |w| {
        w.volume.truncate(w.file("cut short"), 100_001).unwrap();
        &["cut short"]
    },
    |w| {
        w.volume.truncate(w.file("made longer"), 3 << 20).unwrap();
        let reserve = Fallocate::Reserve { keep_size: true };
        let file = w.file("made longer");
        w.volume.fallocate(file, reserve, 1 << 20, 65_536).unwrap();
        &["made longer"]
    },
    |w| {
        let (file, dir) = (w.file("linked"), w.file("d"));
        w.volume.link(file, dir, b"link").unwrap();
        &["linked"]
    },
    |w| {
        let to = (w.file("d"), &b"has moved"[..]);
        let mode = RenameMode::Replace;
        w.volume.rename(w.top, b"moved", to, mode).unwrap();
        &["d/has moved"]
    },
    |w| {
        let to = (w.top, &b"replaced"[..]);
        let mode = RenameMode::Replace;
        w.volume.rename(w.top, b"replacing", to, mode).unwrap();
        &["replaced"]
    },
    |w| {
        let file = w.file("attributes");
        let set = |name: &[u8], value: &[u8]| {
            w.volume
                .set_xattr(file, name, value, XattrMode::Any)
                .unwrap();
        };
        set(b"user.b", &[b'b'; 700]);
        w.volume.remove_xattr(file, b"user.a").unwrap();
        &["attributes"]
    },
    |w| {
        w.volume.unlink(w.top, b"gone").unwrap();
        &[]
    },
    |w| {
        let new = NewInode::directory(0o750);
        let dir = w.volume.create(w.file("d"), b"sub", &new).unwrap();
        w.make(dir, "inner", 7000);
        &["d/sub/inner", "d/sub"]
    },
    |w| {
        let new = NewInode::symlink(b"where it leads");
        w.volume.create(w.file("d"), b"symlink", &new).unwrap();
        &["d"]
    },
];

fn engine_writes(what: &str, case: &Case, rng: &mut Rng) {
    let made = KernelVolume::make(&case.spec()).unwrap();
    let volume = Volume::open(made.devices(), &engine_options(case).fsync_log(true)).unwrap();
    let work = Work {
        volume: &volume,
        top: volume.root_dir(RootId::FS_TREE).unwrap(),
    };
    let new = NewInode::directory(0o755);
    volume.create(work.top, b"d", &new).unwrap();
    for (name, len) in FILES {
        let file = work.make(work.top, name, len);
        volume
            .set_xattr(file, b"user.a", b"1", XattrMode::Any)
            .unwrap();
    }
    // Allocate chunks now, so that no log has to wait for a new one.
    work.make(work.top, "warm", 4 << 20);
    volume.sync().unwrap();
    volume.unlink(work.top, b"warm").unwrap();
    volume.sync().unwrap();

    let before = volume.writer_stats().unwrap();
    let mut changes = CHANGES;
    shuffle(&mut changes, rng);
    let mut pending: Vec<&str> = Vec::new();
    for change in changes {
        pending.extend(change(&work));
        while !pending.is_empty() && !rng.one_in(3) {
            let path = pending.swap_remove(rng.below(pending.len() as u64) as usize);
            volume.fsync(work.file(path)).unwrap();
        }
    }
    for path in pending.into_iter().chain(["d"]) {
        volume.fsync(work.file(path)).unwrap();
    }
    volume.fsync(work.top).unwrap();
    let after = volume.writer_stats().unwrap();
    assert_eq!(after.commits, before.commits, "{what}: {after:?}");
    assert!(after.logs > before.logs, "{what}: {after:?}");

    let live = shown::manifest(&volume);
    let cut = copied(made.devices(), made.dir(), "cut");
    judge(what, case, By::Engine, &cut, &live, made.dir());
    volume.close().unwrap();
    drop(volume);
    made.check().unwrap();
}

/// LOG-WRITE-1
#[test]
fn logs_of_the_engine_on_kinds_of_volumes() {
    let test = "logs_of_the_engine_on_kinds_of_volumes";
    of_kinds(test, matrix::writable(), engine_writes);
}

const KERNEL_BEFORE: &str = "mkdir d
    for f in overwritten:1M short:300k longer:5k linked:100k moved:9k replaced:20k replacing:30k attributes:2k gone:50k
    do head -c ${f#*:} /dev/urandom > ${f%:*}; setfattr -n user.a -v 1 ${f%:*}; done
    head -c 4M /dev/urandom > warm; sync -f .; rm warm; sync -f .";

const KERNEL_CHANGES: [&str; 12] = [
    "head -c 200k /dev/urandom > new; head -c 100 /dev/urandom > small; sync new small",
    "yes 'what can be compressed' | head -c 240k > compressed; sync compressed",
    "xfs_io -c 'pwrite -q -S 7 300000 50000' -c fsync overwritten",
    "truncate -s 100001 short; sync short",
    "truncate -s 3M longer; xfs_io -c 'falloc -k 1M 64k' -c fsync longer",
    "ln linked d/link; sync linked",
    "mv moved d/has-moved; sync d/has-moved",
    "mv replacing replaced; sync replaced",
    "setfattr -n user.b -v $(printf %0700d 7) attributes; setfattr -x user.a attributes; sync attributes",
    "rm gone; sync .",
    "mkdir d/sub; head -c 7k /dev/urandom > d/sub/inner; sync d/sub/inner d/sub",
    "ln -s where-it-leads d/symlink; sync d",
];

fn kernel_writes(what: &str, case: &Case, rng: &mut Rng) {
    let options = format!("commit=600,{}", case.compression.mount_option());
    let mut volume = CutVolume::make(&case.spec(), &options).unwrap();
    let top = volume.path().to_owned();
    sh(&top, KERNEL_BEFORE);
    let mut changes = KERNEL_CHANGES;
    shuffle(&mut changes, rng);
    for change in changes {
        sh(&top, change);
    }
    sh(&top, "sync d .");
    let cut = volume.cut().unwrap();
    let live = Manifest::of_dir(&top).unwrap();
    // The kernel does not accept a copy of a device while the volume is mounted.
    volume.end().unwrap();
    judge(what, case, By::Kernel, &cut, &live, volume.dir());
}

#[test]
fn logs_of_the_kernel_on_kinds_of_volumes() {
    let test = "logs_of_the_kernel_on_kinds_of_volumes";
    of_kinds(test, matrix::full(), kernel_writes);
}
