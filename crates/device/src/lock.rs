//! The locks between ubtrfs processes, and the search for a lock's holder.

use std::fs::{self, File, Metadata};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::access::Access;
use crate::callers_lock;
use crate::clock;
use crate::error::{DeviceError, Holder, in_use, open_error};
use crate::lock_table::{has_open, is_inherited, is_of, parse_lock};
use crate::loop_device::{backing_of, loop_on, sibling_of};
use crate::mark;
use crate::process::OpeningProcess;

/// Maximum wait for a lock, or for a loop device to be detached. The process behind a mount releases its lock shortly
/// after umount(8) has returned, and udev briefly locks a block device to probe it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Locks `file` until it is closed.
pub(crate) fn lock(file: &File, path: &Path, access: Access) -> Result<(), DeviceError> {
    let operation = match access {
        Access::Read => FlockOperation::NonBlockingLockShared,
        Access::Write => FlockOperation::NonBlockingLockExclusive,
    };
    let start = clock::now();
    let mut is_first = true;
    loop {
        let is_last = clock::now() - start >= PATIENCE;
        // Looking for the caller's lock scans processes, so it is not done on each attempt.
        let may_be_callers = is_first || is_last;
        is_first = false;
        match try_lock(file, operation, access, may_be_callers) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if clock::now() - start < PATIENCE => {
                clock::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => {
                let holder = file.metadata().ok().map(|locked| holder_of(&locked));
                return Err(in_use(path, holder.unwrap_or(Holder::Lock { pid: None })));
            }
            // Some network file systems do not support locks; reading is still allowed.
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) if access == Access::Read => {
                return Ok(());
            }
            Err(errno) => return Err(open_error(path)(errno.into())),
        }
    }
}

/// Takes the flock and the mark that excludes other ubtrfs processes. The caller's own flock on the file is accepted.
fn try_lock(
    file: &File,
    operation: FlockOperation,
    access: Access,
    may_be_callers: bool,
) -> rustix::io::Result<()> {
    let locked = rustix::fs::flock(file, operation);
    let is_callers = || {
        let metadata = file.metadata();
        may_be_callers && metadata.is_ok_and(|file| callers_lock::are_all(&file))
    };
    let is_callers = match locked {
        Ok(()) => false,
        Err(Errno::WOULDBLOCK) if is_callers() => true,
        Err(errno) => return Err(errno),
    };
    match mark::set(file, access) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK),
        // The file system does not support OFD locks. Without the flock, nothing would exclude other processes.
        Err(_) if is_callers => Err(Errno::WOULDBLOCK),
        Err(_) => Ok(()),
    }
}

/// Rejects an image that backs a loop device.
pub(crate) fn refuse_looped(image: &File, path: &Path) -> Result<(), DeviceError> {
    let metadata = image.metadata().map_err(open_error(path))?;
    let start = clock::now();
    while let Some(name) = loop_on(&metadata, Access::Write) {
        if clock::now() - start >= PATIENCE {
            return Err(in_use(path, Holder::Loop(name)));
        }
        clock::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Rejects a loop device if another one maps the same bytes, because that one may be mounted.
pub(crate) fn refuse_siblings(device: &Metadata, path: &Path) -> Result<(), DeviceError> {
    let start = clock::now();
    while let Some(name) = sibling_of(device) {
        if clock::now() - start >= PATIENCE {
            return Err(in_use(path, Holder::Loop(name)));
        }
        clock::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A file that is unlocked when it is dropped. Otherwise the lock lasts until the kernel's last reference to the open
/// file. An io_uring or an exiting process may hold one longer than the descriptor.
#[derive(Debug)]
pub(crate) struct Unlocking {
    file: File,
    process: OpeningProcess,
}

impl Unlocking {
    /// Takes ownership of a locked file.
    pub(crate) fn new(file: File) -> Unlocking {
        Unlocking {
            file,
            process: OpeningProcess::this(),
        }
    }
}

impl Deref for Unlocking {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Unlocking {
    fn drop(&mut self) {
        // In a fork, the lock is shared with the parent.
        if self.process.is_left_by_pid() {
            return;
        }
        mark::remove(&self.file);
        // If unlocking fails, closing the file releases the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Locks the image behind a loop device that maps the whole file. Loop devices that map a part of it are not
/// exclusive.
pub(crate) fn lock_backing(
    device: &Metadata,
    access: Access,
) -> Result<Option<Unlocking>, DeviceError> {
    let Some(path) = backing_of(device) else {
        return Ok(None);
    };
    // The file may be deleted or not visible.
    let Ok(file) = File::open(&path) else {
        return Ok(None);
    };
    lock(&file, &path, access)?;
    Ok(Some(Unlocking::new(file)))
}

/// Finds the process that holds a lock on the file.
pub(crate) fn holder_of(file: &Metadata) -> Holder {
    if holds_lock(file) {
        return Holder::ThisProcess;
    }
    Holder::Lock {
        pid: other_holder_of(file),
    }
}

/// Returns whether this process holds a lock on the file through another descriptor.
fn holds_lock(file: &Metadata) -> bool {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        let is_file = is_of(&descriptor.path(), file);
        let info = Path::new("/proc/self/fdinfo").join(descriptor.file_name());
        let info = || fs::read_to_string(info).unwrap_or_default();
        // A lock on an inherited descriptor belongs to the caller.
        let is_ours = |info: String| {
            let mut lines = info.lines();
            !is_inherited(&info) && lines.any(|line| is_flock_of(line, file.ino()))
        };
        is_file && is_ours(info())
    })
}

/// Returns whether a line of fdinfo describes a flock on the inode: `lock:`, a tab, and a line in the format of
/// /proc/locks.
fn is_flock_of(line: &str, ino: u64) -> bool {
    let lock = line.strip_prefix("lock:").and_then(parse_lock);
    lock.is_some_and(|lock| lock.ino == ino)
}

fn other_holder_of(file: &Metadata) -> Option<u32> {
    let table = fs::read_to_string("/proc/locks").ok()?;
    let holders = table.lines().filter_map(parse_lock);
    let of_inode = holders.filter(|lock| lock.ino == file.ino());
    of_inode
        .map(|lock| lock.pid)
        .find(|&pid| pid != std::process::id() && has_open(pid, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_table::FileLock;

    #[test]
    fn locks_of_files_are_read_from_the_table() {
        let line = "1: FLOCK  ADVISORY  WRITE 5494 fe:00:5719352 0 EOF";
        let lock = FileLock {
            pid: 5494,
            ino: 5719352,
            is_exclusive: true,
        };
        assert_eq!(parse_lock(line), Some(lock));
        let shared = FileLock {
            is_exclusive: false,
            ..lock
        };
        assert_eq!(parse_lock(&line.replace("WRITE", "READ")), Some(shared));
        let waiting = "1: -> FLOCK  ADVISORY  WRITE 5494 fe:00:5719352 0 EOF";
        assert_eq!(parse_lock(waiting), None);
        assert_eq!(parse_lock("2: POSIX  ADVISORY  WRITE 1 0:19:3 0 EOF"), None);
        assert_eq!(parse_lock(""), None);
    }

    #[test]
    fn holder_of_a_lock_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut holder = std::process::Command::new("flock")
            .arg(file.path())
            .args(["sh", "-c", "echo; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        let mut said = holder.stdout.take().unwrap();
        std::io::Read::read_exact(&mut said, &mut ready).unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let pid = Some(holder.id());
        assert_eq!(holder_of(&metadata), Holder::Lock { pid });
        drop(holder.stdin.take());
        holder.wait().unwrap();
        assert_eq!(holder_of(&metadata), Holder::Lock { pid: None });
    }

    #[test]
    fn lock_of_this_process_is_told_from_that_of_another() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = File::open(file.path()).unwrap();
        lock(&first, file.path(), Access::Write).unwrap();
        let second = File::open(file.path()).unwrap();
        let refused = lock(&second, file.path(), Access::Read).unwrap_err();
        let path = file.path().display();
        let message = format!("{path} is in use by this process (it has the volume open already)");
        assert_eq!(refused.to_string(), message);
        drop(first);
        lock(&second, file.path(), Access::Read).unwrap();
    }
}
