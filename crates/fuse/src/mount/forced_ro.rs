//! Making a mount visibly read-only after a transaction was aborted, as the kernel's btrfs does.
//!
//! It takes a thread that serves no requests. Before the kernel makes a file system read-only it writes back its dirty
//! pages, and those requests must be answered. It refuses as long as a file is open for writing, so the thread tries
//! again.
//!
//! Locks: none is held during system calls.

use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fspick};

use ubtrfs_device::thread;
use ubtrfs_fs::Lifetime;

use super::error::MountError;
use super::service::MountService;
use crate::mount_table::{TableEntry, mount_table};

/// The first delay between two tries; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A thread that waits for an abort until the volume is closed.
#[derive(Debug)]
pub(super) struct ForcedReadOnly(Option<JoinHandle<()>>);

impl ForcedReadOnly {
    /// Starts a thread that makes the mount read-only when a transaction aborts. `device` is the mount's.
    pub(super) fn watch(
        volume: Lifetime,
        device: Option<(u32, u32)>,
    ) -> Result<ForcedReadOnly, MountError> {
        let thread = thread::start("ubtrfs-abort", move || {
            if volume.wait_for_abort().is_some() {
                make_read_only(&volume, device);
            }
        });
        Ok(ForcedReadOnly(Some(thread.map_err(MountError::Threads)?)))
    }
}

impl MountService for ForcedReadOnly {
    fn end(&mut self) -> Result<(), MountError> {
        match self.0.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(MountError::Panicked),
            _ => Ok(()),
        }
    }
}

/// Tries until it succeeds, fails permanently, or the volume is closed.
fn make_read_only(volume: &Lifetime, device: Option<(u32, u32)>) {
    let mut pause = FIRST_PAUSE;
    loop {
        match device.map_or(Err(Errno::NOENT), reconfigure) {
            Ok(()) => return tracing::warn!("the mount is forced read-only"),
            Err(Errno::BUSY) if pause == FIRST_PAUSE => tracing::error!(
                "the mount refuses changes from now on; it shows 'rw' until no file is open for writing"
            ),
            Err(Errno::BUSY) => {}
            Err(error) => {
                return tracing::error!(
                    %error,
                    "the mount refuses changes from now on, but still shows 'rw'"
                );
            }
        }
        if volume.wait_for_close(pause) {
            return;
        }
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Makes the file system of this device read-only, wherever it is mounted.
fn reconfigure(device: (u32, u32)) -> rustix::io::Result<()> {
    let table = mount_table().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut mounts = table
        .iter()
        .filter(|entry| entry.device == device && entry.is_ours());
    // The kernel takes a path only, which may belong to another mount by now.
    let place = mounts.find(|entry| !entry.is_covered(&table));
    let TableEntry { mountpoint, id, .. } = place.ok_or(Errno::NOENT)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = openat(CWD, mountpoint, flags, Mode::empty())?;
    let asked = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    if statx(&root, "", asked, StatxFlags::MNT_ID)?.stx_mnt_id != *id {
        return Err(Errno::BUSY);
    }
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let file_system = fspick(&root, "", flags)?;
    fsconfig_set_flag(&file_system, "ro")?;
    fsconfig_reconfigure(&file_system)
}
