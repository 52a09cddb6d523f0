//! Locks and open descriptors of processes, from `/proc`.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `O_CLOEXEC` of Linux, which inherited descriptors do not have.
const CLOEXEC: u32 = 0o2_000_000;

/// A flock, from a line such as `1: FLOCK  ADVISORY  WRITE 5494 fe:00:5719352 0 EOF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileLock {
    /// The process that took it, or 0 if that is not visible in this PID namespace.
    pub(crate) pid: u32,
    pub(crate) ino: u64,
    pub(crate) is_exclusive: bool,
}

pub(crate) fn parse_lock(line: &str) -> Option<FileLock> {
    let mut fields = line.split_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let is_exclusive = fields.nth(1)? == "WRITE";
    let pid = fields.next()?.parse().ok()?;
    let ino = fields.next()?.rsplit(':').next()?.parse().ok()?;
    Some(FileLock {
        pid,
        ino,
        is_exclusive,
    })
}

/// Returns whether a process has the file open, because inode numbers are not unique across file systems. Returns
/// true if the process cannot be inspected.
pub(crate) fn has_open(pid: u32, file: &Metadata) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return true;
    };
    let mut descriptors = descriptors.flatten();
    descriptors.any(|descriptor| is_of(&descriptor.path(), file))
}

/// Returns whether a descriptor in `/proc` refers to the file.
pub(crate) fn is_of(descriptor: &Path, file: &Metadata) -> bool {
    fs::metadata(descriptor).is_ok_and(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
}

/// Returns whether a descriptor with this `fdinfo` survives exec, as inherited ones do. Our own never do.
pub(crate) fn is_inherited(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & CLOEXEC == 0)
}
