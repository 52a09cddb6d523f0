//! Logs written by the kernel are valid, whatever was synced.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_check::{CheckOptions, Report, check};
use ubtrfs_sim::kernel::{self, CutVolume, Feature, MkfsSpec, Profile};

#[path = "../../../fs/tests/log/scenarios.rs"]
mod scenarios;

use scenarios::Scenario;

/// Allocates space early, so that no later allocation forces a commit.
pub(crate) const WARM: &str = "head -c 3M /dev/urandom > warm; sync -f .; rm warm; sync -f .";

/// Names that were logged and then changed.
const CHANGED_AGAIN: &[Scenario] = &[
    Scenario {
        name: "logged file replaced by rename",
        before: "mkdir d",
        then: "echo 1 > d/f; sync d/f; echo 2 > d/t; sync d/t; mv d/t d/f; sync d",
    },
    Scenario {
        name: "names of logged files exchanged",
        before: "mkdir d; echo 1 > d/a; echo 2 > d/b",
        then: "echo 3 > d/a; echo 4 > d/b; sync d/a d/b; mv d/a d/c; mv d/b d/a; mv d/c d/b; sync d",
    },
    Scenario {
        name: "logged directory renamed",
        before: "mkdir d",
        then: "mkdir d/a; touch d/a/{1..9}; sync d; mv d/a d/b; rm d/b/3; sync d/b d",
    },
    Scenario {
        name: "logged name used again",
        before: "mkdir d; touch d/a",
        then: "touch d/x; sync d; mv d/x d/y; touch d/x; sync d/x; rm d/a; mkdir d/a; sync d/a d",
    },
    Scenario {
        name: "many links rotated after the log",
        before: "mkdir d; touch d/f; for i in {1..200}; do ln d/f d/a-name-of-a-link-$i; done",
        then: "echo 1 > d/f; sync d/f; rm d/a-name-of-a-link-{1..50}; for i in {1..50}; do ln d/f d/other-$i; done; sync d/f d",
    },
    Scenario {
        name: "directory beside a subvolume",
        before: "mkdir d; touch d/{1..20}; btrfs subvolume create d/s > /dev/null",
        then: "rm d/{5..15}; touch d/new; sync d",
    },
    Scenario {
        name: "many files",
        before: "mkdir d",
        then: "for i in {1..400}; do head -c $((i * 50)) /dev/urandom > d/$i; done; sync d d/*",
    },
];

pub(crate) fn sh(dir: &Path, script: &str) {
    let mut bash = Command::new("bash");
    let run = bash
        .args(["-ec", script])
        .current_dir(dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{script}: {said}");
}

fn judged(devices: &[PathBuf]) -> Report {
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    check(devices, &options, &mut ()).unwrap()
}

fn logs_are_sound(test: &str, spec: &MkfsSpec, options: &str, step: usize) {
    if !kernel::or_skip(test) {
        return;
    }
    let mut volume = CutVolume::make(spec, options).unwrap();
    let mut cuts = Vec::new();
    let all = scenarios::ALL.iter().step_by(step).chain(CHANGED_AGAIN);
    for (number, scenario) in all.enumerate() {
        let dir = volume.path().join(format!("{number:02} {}", scenario.name));
        fs::create_dir(&dir).unwrap();
        for script in [scenario.before, WARM, scenario.then] {
            sh(&dir, script);
        }
        cuts.push((scenario.name, volume.cut().unwrap()));
        sh(&dir, "sync -f .");
    }
    volume.end().unwrap();
    let mut logs = 0;
    let mut failures = String::new();
    for (name, devices) in &cuts {
        let report = judged(devices);
        logs += usize::from(report.has_log);
        if !report.is_spotless() || report.suppressed > 0 {
            failures += &format!("{name}:\n{report}\n");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    println!("{test}: {logs} of {} have a log", cuts.len());
    assert!(logs * 4 > cuts.len() * 3, "{test}: {logs} logs only");
}

fn step() -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => 1,
        None => 4,
    }
}

#[test]
fn logs_of_usual_volumes_are_sound() {
    let spec = MkfsSpec::new().device_bytes(1 << 30);
    let options = "commit=600,compress=zstd";
    logs_are_sound("logs_of_usual_volumes_are_sound", &spec, options, 1);
}

#[test]
fn logs_of_small_nodes_are_sound() {
    let spec = MkfsSpec::new().device_bytes(1 << 30).nodesize(4096);
    let spec = spec.without(Feature::NoHoles);
    logs_are_sound("logs_of_small_nodes_are_sound", &spec, "commit=600", step());
}

#[test]
fn logs_of_mirrored_volumes_are_sound() {
    let spec = MkfsSpec::new().device_bytes(1 << 30).devices(2);
    let spec = spec.data(Profile::Raid1).metadata(Profile::Raid1);
    logs_are_sound(
        "logs_of_mirrored_volumes_are_sound",
        &spec,
        "commit=600",
        step(),
    );
}
