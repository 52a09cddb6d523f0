//! Runs btrbk with our program as the `btrfs` that it calls, and compares it with btrbk with btrfs-progs.
//!
//! It takes snapshots, makes incremental backups on a second volume, is killed during one, resumes, and
//! prunes.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelMount, KernelVolume, MkfsSpec, progs_verdict};
use ubtrfs_sim::manifest::{Field, Manifest, assert_same};

use crate::{OURS, ready, script};

const CONFIG: &str = "\
timestamp_format long
transaction_log DIR/log
lockfile DIR/lock
snapshot_dir snapshots
snapshot_preserve_min latest
snapshot_preserve no
target_preserve_min latest
target_preserve no
volume SOURCE
  subvolume home
    target TARGET
";
/// The first backup, which is full, and one incremental backup.
const TWO_BACKUPS: &str = "
btrfs subvolume create a/home >/dev/null; mkdir a/snapshots b/backups
echo one > a/home/f; mkdir a/home/d; btrbk -q -c conf run
echo two > a/home/g; mv a/home/f a/home/d/f; btrbk -q -c conf --preserve run
head -c 200M /dev/urandom > a/home/large; sync -f a
";
const AFTER_THE_KILL: &str = "
btrbk -q -c conf --preserve resume; btrbk -q -c conf clean; btrbk -q -c conf --preserve resume
btrbk -c conf list all; btrbk -q -c conf prune; btrbk -c conf list all
";
/// A script that shows properties of subvolumes, read by the reference program.
const FACTS: &str = "
for dir in a/snapshots/* b/backups/*; do
    /usr/bin/btrfs subvolume show $dir | sed -n \
        's/^\\t\\(Name\\|Flags\\):[ \\t]*/&/p; s/\\(Received UUID\\|Parent UUID\\):[ \\t]*[0-9a-f].*/\\1: some/p;
         s/\\(Received UUID\\|Parent UUID\\):[ \\t]*-/\\1: none/p'
done
";

/// Two mounted volumes, in a folder whose name does not reveal which program makes the backups.
struct Rig {
    scratch: Scratch,
    volumes: [KernelVolume; 2],
    mounts: [KernelMount; 2],
}

impl Rig {
    fn new() -> Rig {
        let volume = || KernelVolume::make(&MkfsSpec::new().device_bytes(2 << 30)).unwrap();
        let volumes = [volume(), volume()];
        let mounts = [volumes[0].mount("").unwrap(), volumes[1].mount("").unwrap()];
        let scratch = Scratch::new().unwrap();
        let dir = scratch.path();
        for (mount, name) in mounts.iter().zip(["a", "b"]) {
            symlink(mount.path(), dir.join(name)).unwrap();
        }
        let config = CONFIG
            .replace("DIR", &dir.display().to_string())
            .replace("SOURCE", &mounts[0].path().display().to_string())
            .replace(
                "TARGET",
                &mounts[1].path().join("backups").display().to_string(),
            );
        fs::write(dir.join("conf"), config).unwrap();
        Rig {
            scratch,
            volumes,
            mounts,
        }
    }

    fn dir(&self) -> &Path {
        self.scratch.path()
    }

    fn run(&self, text: &str) -> String {
        let output = script(self.dir(), text);
        assert!(output.status.success(), "{text}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Begins a backup, and kills it during the receive.
    fn kill_a_backup(&self) {
        let backups = self.mounts[1].path().join("backups");
        let count = || fs::read_dir(&backups).unwrap().count();
        let before = count();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("btrbk");
        command
            .args(["-q", "-c", "conf", "--preserve", "run"])
            .current_dir(self.dir())
            .env("PATH", format!("{}/bin:{path}", self.dir().display()))
            .stderr(Stdio::null())
            .process_group(0);
        let mut child = command.spawn().unwrap();
        while count() == before {
            assert!(child.try_wait().unwrap().is_none(), "there is no backup");
            thread::yield_now();
        }
        kill(&mut child);
        let killed = self.run("ls b/backups | tail -n 1");
        let shown = self.run(&format!("/usr/bin/btrfs property get b/backups/{killed}"));
        assert!(shown.contains("ro=false"), "it was done before the kill");
    }

    /// Returns the log of a run, without times and the names derived from them.
    fn account(&self, listed: &str) -> String {
        let log = fs::read_to_string(self.dir().join("log")).unwrap();
        // The time is the first word.
        let log = log.lines().filter_map(|line| line.split_once(' '));
        let log: Vec<&str> = log.map(|(_, action)| action).collect();
        let mut text = [listed, &log.join("\n"), "\n", &self.run(FACTS)].concat();
        for (mount, name) in self.mounts.iter().zip(["A", "B"]) {
            text = text.replace(&mount.path().display().to_string(), name);
        }
        without_times(&text)
    }
}

fn kill(child: &mut Child) {
    let group = Pid::from_child(child);
    kill_process_group(group, Signal::KILL).unwrap();
    child.wait().unwrap();
}

/// Replaces names such as "home.20261126T0607_1" by the number of the name, and makes columns one space wide.
fn without_times(text: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut out = String::new();
    for line in text.lines() {
        for word in line.split_whitespace() {
            let (before, name) = word.rsplit_once('/').unwrap_or(("", word));
            let is_name = name
                .strip_prefix("home.")
                .is_some_and(|time| time.len() > 1);
            if is_name {
                let at = names.iter().position(|known| *known == name);
                let at = at.unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                });
                out.push_str(&format!("{before}/home.{at} "));
            } else {
                out.push_str(word);
                out.push(' ');
            }
        }
        out.push('\n');
    }
    out
}

/// Runs the whole sequence with a program as `btrfs`, and returns its reports.
fn run(program: &str) -> String {
    let rig = Rig::new();
    fs::create_dir(rig.dir().join("bin")).unwrap();
    symlink(program, rig.dir().join("bin/btrfs")).unwrap();
    rig.run(TWO_BACKUPS);
    rig.kill_a_backup();
    let listed = rig.run(AFTER_THE_KILL);
    let account = rig.account(&listed);
    let last = |dir: &Path| {
        let entries = fs::read_dir(dir).unwrap();
        let names: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        Manifest::of_dir(&names[0]).unwrap().canonical()
    };
    let wanted = last(&rig.mounts[0].path().join("snapshots"));
    let found = last(&rig.mounts[1].path().join("backups"));
    assert_eq!(wanted.entries.len(), 5);
    assert_same(program, &wanted, &found, &[Field::Ctime, Field::Btime]);
    let Rig {
        volumes, mounts, ..
    } = rig;
    for (volume, mount) in volumes.iter().zip(mounts) {
        mount.unmount().unwrap();
        assert_eq!(progs_verdict(volume.devices(), true), Ok(()));
    }
    account
}

#[test]
fn btrbk_ends_as_with_btrfs_progs() {
    if !ready("btrbk", &["btrbk", "btrfs"]) {
        return;
    }
    let wanted = run("/usr/bin/btrfs");
    for action in [
        "send-receive success",
        "delete_garbled success",
        "delete_snapshot success",
    ] {
        assert!(wanted.contains(action), "{action}: {wanted}");
    }
    let found = run(OURS);
    assert_eq!(found, wanted);
}
