//! A further mount of an existing connection, made by its server to end the connection.
//!
//! umount2(2) with MNT_FORCE ends a connection by any mount of it, and takes a path. The server's own mount may have no
//! path in its namespace: it may have been moved away, or be covered by another mount. The kernel allows further mounts
//! for a descriptor of the connection. So a thread mounts it in a private mount namespace, which no other process sees.
//! This needs root.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::thread::{self, Builder};

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change,
    move_mount, unmount,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use crate::mount_table::TableEntry;

/// A directory that exists on every system with `/dev/fuse`.
const PLACE: &str = "/dev";

/// Ends the connection of `mount`; `device` is a descriptor of the connection.
pub(super) fn abort(mount: &TableEntry, device: BorrowedFd<'_>) -> io::Result<()> {
    let aborted = thread::scope(|scope| {
        let thread = Builder::new().name("ubtrfs-abort".to_owned());
        let thread = thread.spawn_scoped(scope, || abort_in_own_namespace(mount, device))?;
        Ok(thread.join())
    });
    aborted
        .and_then(|aborted| aborted.unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
}

/// Aborts the connection in a private mount namespace. Must run on a thread that ends afterwards, since the namespace
/// ends with the thread.
fn abort_in_own_namespace(mount: &TableEntry, device: BorrowedFd<'_>) -> io::Result<()> {
    let namespace = UnshareFlags::NEWNS | UnshareFlags::FS;
    // SAFETY: descriptors stay shared with the process's other threads.
    #[allow(unsafe_code)]
    unsafe {
        rustix::thread::unshare_unsafe(namespace)?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)?;
    let another = mounted(mount, device)?;
    move_mount(
        &another,
        "",
        CWD,
        PLACE,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    Ok(unmount(PLACE, UnmountFlags::FORCE | UnmountFlags::DETACH)?)
}

fn mounted(mount: &TableEntry, device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let kernels_type = mount.fs_type.split('.').next().unwrap_or_default();
    let file_system = fsopen(kernels_type, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [
        ("source", mount.source.as_os_str()),
        ("fd", device.as_raw_fd().to_string().as_ref()),
        ("rootmode", "40000".as_ref()),
        ("user_id", geteuid().as_raw().to_string().as_ref()),
        ("group_id", getegid().as_raw().to_string().as_ref()),
    ] {
        fsconfig_set_string(&file_system, key, value)?;
    }
    if mount.is_read_only() {
        fsconfig_set_flag(&file_system, "ro")?;
    }
    fsconfig_create(&file_system)?;
    Ok(fsmount(
        &file_system,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )?)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::os::fd::AsFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::mount::MountFlags;

    use super::super::attach::{Attachment, attach};
    use super::*;
    use crate::mount_table::mount_at;

    #[test]
    fn a_connection_whose_mount_lies_under_another_is_ended() {
        if !ubtrfs_sim::is_root_or_skip() || !ubtrfs_sim::has_fuse_or_skip() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let device = attach(&Attachment {
            mountpoint: dir.path(),
            source: std::path::Path::new("none"),
            flags: MountFlags::empty(),
            allow_other: true,
            default_permissions: true,
            security: &[],
        })
        .unwrap();
        let ours = mount_at(dir.path()).unwrap().unwrap();
        let data = None::<&CStr>;
        rustix::mount::mount("none", dir.path(), "tmpfs", MountFlags::empty(), data).unwrap();
        let is_ended = || {
            let mut polled = [PollFd::new(&device, PollFlags::empty())];
            poll(&mut polled, Some(&Timespec::default())).unwrap();
            polled[0].revents().contains(PollFlags::ERR)
        };
        assert!(!is_ended());
        abort(&ours, device.as_fd()).unwrap();
        assert!(is_ended());
        for _ in 0..2 {
            unmount(dir.path(), UnmountFlags::DETACH).unwrap();
        }
    }
}
