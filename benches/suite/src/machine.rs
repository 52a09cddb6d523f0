//! A description of the machine.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::run::first_line;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) storage: String,
    pub(crate) btrfs_progs: String,
    pub(crate) ubtrfs: String,
    /// The commit of the checkout, and whether it was changed since.
    pub(crate) commit: String,
    /// Whether FUSE over io_uring may be used.
    pub(crate) fuse_uring: bool,
    /// The load average at the beginning of the run.
    pub(crate) load: String,
}

impl Machine {
    pub(crate) fn look(dir: &Path, ubtrfs: &Path) -> Machine {
        let uname = rustix::system::uname();
        Machine {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: field("/proc/meminfo", "MemTotal")
                .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
                .unwrap_or_default()
                >> 10,
            kernel: uname.release().to_string_lossy().into_owned(),
            storage: storage(dir),
            btrfs_progs: first_line("mkfs.btrfs", &["--version"]).unwrap_or_default(),
            ubtrfs: first_line(&ubtrfs.to_string_lossy(), &["--version"]).unwrap_or_default(),
            commit: commit(),
            fuse_uring: fs::read_to_string(crate::URING_SETTING)
                .is_ok_and(|text| text.trim() == "Y"),
            load: fs::read_to_string("/proc/loadavg")
                .unwrap_or_default()
                .split(' ')
                .next()
                .unwrap_or_default()
                .into(),
        }
    }
}

/// Returns the commit of the checkout, or "unknown" outside of one.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let arguments = [&["-C", checkout], arguments].concat();
        let ran = crate::run::run("git", &arguments).ok()?;
        Some(ran.output.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".into();
    };
    if git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty()) {
        commit
    } else {
        format!("{commit} with changes")
    }
}

/// Returns the value of the first line `name : value`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn storage(dir: &Path) -> String {
    let dir = dir.to_string_lossy();
    let line = |column: &str| {
        let output = format!("--output={column}");
        let ran = crate::run::run("df", &[output.as_str(), &dir]).ok()?;
        ran.output.lines().nth(1).map(|line| line.trim().to_owned())
    };
    format!(
        "{} on {}",
        line("fstype").unwrap_or_default(),
        line("source").unwrap_or_default()
    )
}
