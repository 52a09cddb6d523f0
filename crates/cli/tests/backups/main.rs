//! Programs that make backups and keep snapshots, on mounts of the kernel's btrfs: with our program as their
//! `btrfs` they behave as with btrfs-progs.
//!
//! Needs root, the kernel's btrfs, btrfs-progs, and the programs; without them the tests print that and pass.

mod btrbk;
mod snapper;

use std::path::Path;
use std::process::{Command, Output};

use ubtrfs_sim::kernel;

pub(crate) const OURS: &str = env!("CARGO_BIN_EXE_ubtrfs");

/// Returns whether everything that a test needs is present.
pub(crate) fn ready(test: &str, programs: &[&str]) -> bool {
    if !kernel::or_skip(test) {
        return false;
    }
    let is_absent = |program: &&&str| {
        let version = Command::new(program).arg("--version").output();
        !version.is_ok_and(|output| output.status.success())
    };
    if let Some(absent) = programs.iter().find(is_absent) {
        ubtrfs_sim::skip(format_args!("no {absent}: scripts/setup installs it"));
        return false;
    }
    true
}

/// Runs a script of bash. A folder `bin` in `dir` is the first in its PATH.
pub(crate) fn script(dir: &Path, script: &str) -> Output {
    let mut command = Command::new("bash");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}/bin:{path}:/usr/sbin:/sbin", dir.display());
    command.args(["-euo", "pipefail", "-c", script]);
    command
        .current_dir(dir)
        .env("PATH", path)
        .env("LC_ALL", "C");
    command.output().unwrap()
}
