//! Logs written by the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ubtrfs_fs::{OpenOptions, Rescue, Volume};
use ubtrfs_sim::fingerprint;
use ubtrfs_sim::kernel::{
    CutVolume, Feature, KernelMount, MkfsSpec, Profile, or_skip, progs_verdict,
};
use ubtrfs_sim::manifest::{Field, Manifest, diff_without};

use crate::scenarios::{self, Scenario};
use crate::{shown, situations};

struct Cut {
    scenario: &'static Scenario,
    devices: Vec<PathBuf>,
    has_log: bool,
}

pub(crate) fn sh(dir: &Path, script: &str) {
    let script = format!("set -e; {script}");
    let run = Command::new("bash")
        .args(["-c", &script])
        .current_dir(dir)
        .output();
    let run = run.unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{script}: {said}");
}

pub(crate) fn open(devices: &[PathBuf], writable: bool) -> ubtrfs_fs::Result<Arc<Volume>> {
    let options = OpenOptions::new()
        .writable(writable)
        .commit_interval(None)
        .cache_bytes(4 << 20);
    Volume::open(devices, &options)
}

/// Returns the volumes of every `step`-th scenario, cut after each. `UBTRFS_SCENARIO` selects one by name.
fn cuts(volume: &mut CutVolume, all: &'static [Scenario], step: usize) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let only = std::env::var("UBTRFS_SCENARIO").ok();
    let chosen = all
        .iter()
        .filter(|s| only.as_ref().is_none_or(|only| s.name == only));
    for (number, scenario) in chosen.enumerate().step_by(step) {
        let dir = volume.path().join(format!("{number:02} {}", scenario.name));
        fs::create_dir(&dir).unwrap();
        sh(&dir, scenario.before);
        // Allocate space now, so that no new chunk forces a commit.
        sh(
            &dir,
            "head -c 3M /dev/urandom > warm; sync -f .; rm warm; sync -f .",
        );
        sh(&dir, scenario.then);
        let devices = volume.cut().unwrap();
        let committed = OpenOptions::new().rescue(Rescue {
            no_log_replay: true,
            ..Rescue::default()
        });
        let has_log = Volume::open(&devices, &committed)
            .unwrap()
            .superblock()
            .has_log();
        cuts.push(Cut {
            scenario,
            devices,
            has_log,
        });
        sh(&dir, "sync -f .");
    }
    cuts
}

fn differences(left: &Manifest, right: &Manifest, ignored: &[Field]) -> Vec<String> {
    let all = diff_without(left, right, ignored);
    all.iter().map(ToString::to_string).collect()
}

/// A kernel's replay updates the times of directories that lose entries.
pub(crate) const OF_REPLAY: [Field; 2] = [Field::Mtime, Field::Ctime];

fn judge(volume: &CutVolume, cut: &Cut) -> Vec<String> {
    let contents = |devices: &[PathBuf]| -> Vec<u64> {
        let fingerprints = devices.iter().map(|device| fingerprint(device));
        fingerprints.map(Result::unwrap).collect()
    };
    let theirs = volume.copy(&cut.devices).unwrap();
    let mount = KernelMount::new(&theirs, "").unwrap();
    let expected = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();

    let before = contents(&cut.devices);
    let read = open(&cut.devices, false).map(|volume| shown::manifest(&volume));
    let read = match read {
        Ok(read) => read,
        Err(error) => return vec![format!("read: {error}")],
    };
    let mut wrong = differences(&expected, &read, &OF_REPLAY);
    if before != contents(&cut.devices) {
        wrong.push("a reader wrote".to_owned());
    }
    let written = match open(&cut.devices, true) {
        Ok(written) => written,
        Err(error) => {
            wrong.push(format!("written: {error}"));
            return wrong;
        }
    };
    assert!(!written.superblock().has_log());
    wrong.extend(differences(&read, &shown::manifest(&written), &[]));
    if let Err(error) = written.close() {
        wrong.push(format!("close: {error}"));
    }
    drop(written);
    if let Err(said) = progs_verdict(&cut.devices, true) {
        wrong.push(said);
    }
    let mount = KernelMount::new(&cut.devices, "").unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    wrong.extend(differences(&read, &shown, &[]));
    wrong
}

/// Returns the step between scenarios for other kinds of volumes. In a soak all scenarios run.
fn step() -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => 1,
        None => 4,
    }
}

fn both_replay(
    test: &str,
    spec: &MkfsSpec,
    options: &str,
    (all, step): (&'static [Scenario], usize),
) {
    if !or_skip(test) {
        return;
    }
    let mut volume = CutVolume::make(spec, options).unwrap();
    let cuts = cuts(&mut volume, all, step);
    volume.end().unwrap();
    let logs = cuts.iter().filter(|cut| cut.has_log).count();
    println!("{test}: {logs} of {} have a log", cuts.len());
    assert!(logs * 4 > cuts.len() * 3, "{test}: {logs} logs only");
    let mut failed = 0;
    for cut in &cuts {
        let wrong = judge(&volume, cut);
        if !wrong.is_empty() {
            failed += 1;
            println!("{}: {:#?}", cut.scenario.name, wrong);
        }
    }
    assert_eq!(failed, 0, "{test}");
}

const OPTIONS: &str = "commit=600,compress=zstd";

/// Returns the options of a volume with explicit hole items and small nodes.
fn with_holes() -> MkfsSpec {
    MkfsSpec::new()
        .device_bytes(1 << 30)
        .without(Feature::NoHoles)
        .nodesize(4096)
}

#[test]
fn logs_of_usual_volumes() {
    let spec = MkfsSpec::new().device_bytes(1 << 30);
    both_replay("logs_of_usual_volumes", &spec, OPTIONS, (scenarios::ALL, 1));
}

#[test]
fn logs_of_volumes_with_holes() {
    let all = (scenarios::ALL, step());
    both_replay(
        "logs_of_volumes_with_holes",
        &with_holes(),
        "commit=600",
        all,
    );
}

#[test]
fn logs_of_mirrored_volumes() {
    let spec = MkfsSpec::new()
        .device_bytes(1 << 30)
        .devices(2)
        .data(Profile::Raid1)
        .metadata(Profile::Raid1);
    both_replay(
        "logs_of_mirrored_volumes",
        &spec,
        OPTIONS,
        (scenarios::ALL, step()),
    );
}

#[test]
fn logs_of_situations() {
    let all = (situations::ALL, step());
    both_replay("logs_of_situations", &with_holes(), "commit=600", all);
}

#[test]
fn logs_of_situations_without_holes() {
    let spec = MkfsSpec::new().device_bytes(1 << 30);
    let test = "logs_of_situations_without_holes";
    both_replay(test, &spec, OPTIONS, (situations::ALL, step()));
}
