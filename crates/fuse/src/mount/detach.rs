//! Unmounting with umount2(2), or through fusermount3.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::another;
use super::attach::{finish, helper_command};
use super::error::UnmountError;
use crate::mount_table::{TableEntry, mount_table};

/// The mount point of the kernel's FUSE control file system, if mounted.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The treatment of a mount that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfBusy {
    Refuse,
    /// Detach it at once (`MNT_DETACH`), and end it when the last user is gone.
    Detach,
}

/// Unmounts the ubtrfs mount at `path`, or the last mount of the image or device `path`.
pub fn unmount(path: &Path, if_busy: IfBusy) -> Result<(), UnmountError> {
    let place = resolve(path)?;
    let table = mount_table().map_err(UnmountError::Table)?;
    match find(&table, &place) {
        None => Err(UnmountError::NotMounted(path.into())),
        Some(entry) if !entry.is_ours() => Err(UnmountError::NotOurs {
            path: path.into(),
            fs_type: entry.fs_type.clone(),
        }),
        Some(entry) => detach_entry(entry, &table, if_busy),
    }
}

/// Returns the mount that `unmount` would choose for `path`, and the other mounts of its file system.
pub fn mount_meant_by(path: &Path) -> Option<(TableEntry, Vec<TableEntry>)> {
    let table = mount_table().ok()?;
    let meant = find(&table, &resolve(path).ok()?)?.clone();
    let is_other = |entry: &TableEntry| entry.device == meant.device && entry.id != meant.id;
    let others = table.into_iter().filter(is_other).collect();
    Some((meant, others))
}

/// Unmounts an entry of the mount table, and never a mount on top of it.
pub(super) fn detach_entry(
    entry: &TableEntry,
    table: &[TableEntry],
    if_busy: IfBusy,
) -> Result<(), UnmountError> {
    // The kernel unmounts by path only.
    if entry.is_covered(table) {
        Err(UnmountError::Covered(entry.mountpoint.clone()))
    } else {
        detach(&entry.mountpoint, if_busy)
    }
}

/// Finds the mount at `place`, of any type, or else our last mount of the image or device `place`. Prefers a mount that
/// is not covered.
pub(super) fn find<'a>(table: &'a [TableEntry], place: &Path) -> Option<&'a TableEntry> {
    let is_top = |entry: &&TableEntry| !entry.is_covered(table);
    let at = |entry: &&TableEntry| entry.mountpoint == place && is_top(entry);
    let of = || {
        table
            .iter()
            .filter(|entry| entry.is_ours() && entry.is_of(place))
    };
    let found = table.iter().rfind(at).or_else(|| of().rfind(is_top));
    found.or_else(|| of().next_back())
}

/// Returns the absolute path without symbolic links. The last component is not accessed: it may be a mount whose server
/// is gone, or that admits no other user.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, UnmountError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => UnmountError::NoSuchPath(path.into()),
        _ => UnmountError::Failed {
            path: path.into(),
            error,
        },
    };
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(whole), _, _) => Ok(whole),
        (Err(error), Some(parent), Some(name)) if error.kind() != io::ErrorKind::NotFound => {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            Ok(parent.canonicalize().map_err(failed)?.join(name))
        }
        (Err(error), _, _) => Err(failed(error)),
    }
}

/// Returns the number of a mount's connection, which is the kernel's number of its device.
pub(super) fn connection((major, minor): (u32, u32)) -> u32 {
    major << 20 | minor
}

/// Unmounts the file system that is mounted exactly at `mountpoint`.
pub(super) fn detach(mountpoint: &Path, if_busy: IfBusy) -> Result<(), UnmountError> {
    let flags = match if_busy {
        IfBusy::Refuse => UnmountFlags::NOFOLLOW,
        IfBusy::Detach => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => through_helper(mountpoint, if_busy),
        Err(Errno::BUSY) => Err(UnmountError::Busy(mountpoint.into())),
        Err(Errno::INVAL) => Err(UnmountError::NotMounted(mountpoint.into())),
        Err(error) => Err(UnmountError::Failed {
            path: mountpoint.into(),
            error: error.into(),
        }),
    }
}

/// Ends the connection of a FUSE mount in use, and unmounts it here if it is still mounted. `device` is a descriptor of
/// the connection.
pub(super) fn abort(
    mount: &TableEntry,
    device: Option<BorrowedFd<'_>>,
) -> Result<(), UnmountError> {
    let table = mount_table().map_err(UnmountError::Table)?;
    let named = table.iter().find(|entry| entry.is_same(mount));
    let named = named.filter(|entry| !entry.is_covered(&table));
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH;
    let unmounted = named.map(|entry| rustix::mount::unmount(&entry.mountpoint, flags));
    if unmounted.is_some_and(|outcome| outcome.is_ok()) {
        return Ok(());
    }
    let aborted = fs::write(control_of(mount.device).join("abort"), "1");
    match aborted {
        // A user may end a connection only through the kernel's control file system.
        Ok(()) => named.map_or(Ok(()), |entry| {
            through_helper(&entry.mountpoint, IfBusy::Detach)
        }),
        Err(error) => {
            let by_another = device.map(|device| another::abort(mount, device));
            let outcome = by_another.unwrap_or(Err(error));
            outcome.map_err(|error| UnmountError::NotAborted {
                path: mount.mountpoint.clone(),
                error,
            })
        }
    }
}

/// Returns the path of a connection in the kernel's control file system. Containers and minimal systems do not mount
/// it.
fn control_of(device: (u32, u32)) -> PathBuf {
    Path::new(CONNECTIONS).join(connection(device).to_string())
}

fn through_helper(mountpoint: &Path, if_busy: IfBusy) -> Result<(), UnmountError> {
    let mut command = helper_command();
    command.arg("-u");
    if if_busy == IfBusy::Detach {
        command.arg("-z");
    }
    let child = match command.arg("--").arg(mountpoint).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(UnmountError::NotPermitted(mountpoint.into()));
        }
        Err(error) => {
            return Err(UnmountError::Failed {
                path: mountpoint.into(),
                error,
            });
        }
    };
    let complaint = finish(child).map_err(|error| UnmountError::Failed {
        path: mountpoint.into(),
        error,
    })?;
    if complaint.is_empty() {
        Ok(())
    } else if complaint.contains("busy") {
        Err(UnmountError::Busy(mountpoint.into()))
    } else if complaint.contains("not found in") || complaint.contains("not permitted") {
        Err(UnmountError::NotPermitted(mountpoint.into()))
    } else {
        Err(UnmountError::Helper(complaint))
    }
}
