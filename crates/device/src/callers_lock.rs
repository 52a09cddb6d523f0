//! Locks on a device held by the caller of this process.
//!
//! Formatters run with the device locked, so that udev does not probe it. By systemd's convention, the parent process
//! holds an exclusive flock (systemd-repart, mkosi, `udevadm lock`). So the lock belongs to an ancestor of this
//! process, or to an inherited descriptor.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::lock_table::{FileLock, has_open, is_inherited, is_of, parse_lock};

/// Maximum number of ancestors to check.
const MAX_ANCESTORS: usize = 64;

/// Returns whether the file has flocks and all of them belong to the caller.
pub(crate) fn are_all(file: &Metadata) -> bool {
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holders = table.lines().filter_map(parse_lock);
    let holders = holders.filter(|lock| lock.ino == file.ino() && has_open(lock.pid, file));
    let holders: Vec<u32> = holders.map(|lock| lock.pid).collect();
    let ancestors = ancestors();
    let is_ancestor = |holder: &u32| ancestors.contains(holder);
    if !holders.is_empty() && holders.iter().all(is_ancestor) {
        return true;
    }
    // A lock is listed with the process that took it, which may have exited: `exec 9<DEVICE; flock 9; mkfs DEVICE`.
    let mut known = locks_by_descriptors("self", file, true);
    for pid in &ancestors {
        known.extend(locks_by_descriptors(&pid.to_string(), file, false));
    }
    // In a PID namespace other than the first, such a lock is not listed at all, and neither is a lock of a process
    // outside. An exclusive lock excludes all others.
    if known.iter().any(|lock| lock.is_exclusive) {
        return true;
    }
    let is_known =
        |holder: &u32| is_ancestor(holder) || known.iter().any(|lock| lock.pid == *holder);
    !holders.is_empty() && holders.iter().all(is_known)
}

/// Returns the ancestors of this process.
fn ancestors() -> Vec<u32> {
    let mut ancestors = Vec::new();
    let mut at = std::process::id();
    while ancestors.len() < MAX_ANCESTORS
        && let Some(parent) = parent_of(at).filter(|&parent| parent > 0)
    {
        ancestors.push(parent);
        at = parent;
    }
    ancestors
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// Returns the flocks of a process's descriptors of the file.
fn locks_by_descriptors(pid: &str, file: &Metadata, only_inherited: bool) -> Vec<FileLock> {
    let folder = Path::new("/proc").join(pid);
    let Ok(descriptors) = fs::read_dir(folder.join("fd")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for descriptor in descriptors.flatten() {
        if !is_of(&descriptor.path(), file) {
            continue;
        }
        let info = folder.join("fdinfo").join(descriptor.file_name());
        let info = fs::read_to_string(info).unwrap_or_default();
        if only_inherited && !is_inherited(&info) {
            continue;
        }
        let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
        let locks = locks.filter_map(parse_lock);
        found.extend(locks.filter(|lock| lock.ino == file.ino()));
    }
    found
}
