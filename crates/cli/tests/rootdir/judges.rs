//! Checks of volumes: whether one is intact, and whether its content is as expected.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_check::CheckOptions;
use ubtrfs_sim::kernel::{self, KernelMount, LoopDevice};
use ubtrfs_sim::manifest::{Field, Kind, Manifest, assert_same};

/// Asserts that neither our own check nor any mode of the btrfs-progs check reports anything. `what` contains
/// the options that the volume was made with.
pub(crate) fn assert_sound(what: &str, devices: &[PathBuf]) {
    let modes = ["--readonly", "--check-data-csum", "--mode=lowmem"];
    // The last mode does not support extent owners in btrfs-progs 6.14.
    let known = if what.contains("squota") { 2 } else { 3 };
    assert_sound_by(what, devices, &modes[..known]);
}

/// Does the same as [`assert_sound`], with only some modes of btrfs-progs.
pub(crate) fn assert_sound_by(what: &str, devices: &[PathBuf], modes: &[&str]) {
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    let report = ubtrfs_check::check(devices, &options, &mut ()).unwrap();
    assert!(report.is_spotless(), "{what}: {report}");
    if !kernel::or_skip(what) {
        return;
    }
    let loops: Vec<LoopDevice> = devices
        .iter()
        .map(|device| LoopDevice::attach(device).unwrap())
        .collect();
    for mode in modes {
        let said = run("btrfs", &["check", mode], &[loops[0].path()]);
        let doubt = said.lines().find(|line| is_doubt(line));
        assert!(doubt.is_none(), "{what}: check {mode}: {said}");
    }
}

fn is_doubt(line: &str) -> bool {
    let line = line.to_lowercase();
    let words = [
        "warning", "error:", "mismatch", "bad ", "invalid", "wrong", "missing", "cross",
    ];
    // Loop devices of other tests appear and disappear while it scans for members.
    !line.contains("cannot scan") && words.iter().any(|word| line.contains(word))
}

/// Runs a tool that must succeed and returns all its output.
pub(crate) fn run(program: &str, args: &[&str], paths: &[&Path]) -> String {
    let output = Command::new(program)
        .args(args)
        .args(paths)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {said}");
    said
}

/// Fields that differ between file systems.
pub(crate) const NOT_COPIED: [Field; 3] = [Field::Ino, Field::Btime, Field::DirSize];

/// Returns a folder as a btrfs shows it, where directories have one link. Access times of links are cleared,
/// as reading links changes them.
pub(crate) fn manifest(dir: &Path) -> Manifest {
    let mut manifest = Manifest::of_dir(dir).unwrap();
    for entry in &mut manifest.entries {
        let stat = &mut entry.stat;
        match stat.kind {
            Kind::Dir => stat.nlink = 1,
            Kind::Symlink => stat.atime = stat.mtime,
            _ => {}
        }
    }
    manifest
}

/// Asserts that the kernel shows the same, finds no error when scrubbing, and can write to the volume, which
/// stays intact.
pub(crate) fn assert_kernel_shows(what: &str, devices: &[PathBuf], expected: &Manifest) {
    if !kernel::or_skip(what) {
        return;
    }
    {
        let mount = KernelMount::new(devices, "").unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = manifest(mount.path());
        assert_same(what, expected, &found, &NOT_COPIED);
        let scrub = run("btrfs", &["scrub", "start", "-B"], &[mount.path()]);
        assert!(scrub.contains("no errors found"), "{what}: {scrub}");
        let more = mount.path().join("more");
        fs::create_dir(&more).unwrap_or_else(|error| panic!("{what}: {error}"));
        // When there is no space for more data, inline files can still be written.
        let files = if what.contains("--shrink") { 50 } else { 300 };
        for number in 0..files {
            let data = vec![number as u8; number * 40];
            fs::write(more.join(number.to_string()), data)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        mount.sync().unwrap();
        mount.unmount().unwrap();
    }
    assert_sound_by(what, devices, &["--readonly"]);
}
