//! The place of one mount: its mount point, its entry in the mount table, and its connection.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::detach::{IfBusy, abort, detach, detach_entry};
use super::error::UnmountError;
use crate::mount_table::{TableEntry, mount_at, mount_table};

/// The mount point of the file system, and the state of the mount.
#[derive(Debug)]
pub(super) struct MountPlace {
    pub(super) mountpoint: PathBuf,
    /// The mount's entry in the first mount table after mounting, if that could be read.
    pub(super) entry: Option<TableEntry>,
    /// The connection, polled and never read.
    pub(super) device: OwnedFd,
}

impl MountPlace {
    pub(super) fn new(mountpoint: PathBuf, device: OwnedFd) -> MountPlace {
        let entry = mount_at(&mountpoint).ok().flatten();
        MountPlace {
            entry: entry.filter(TableEntry::is_ours),
            mountpoint,
            device,
        }
    }

    /// Returns whether the connection is alive, by this or another mount.
    pub(super) fn is_mounted(&self) -> bool {
        !self.ends_within(Duration::ZERO)
    }

    /// Waits for the end of the connection. Returns false if it lives on.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).ok();
        let mut device = [PollFd::new(&self.device, PollFlags::empty())];
        match poll(&mut device, timeout.as_ref()) {
            Ok(_) => device[0].revents().contains(PollFlags::ERR),
            Err(_) => false,
        }
    }

    /// Unmounts our own mount, even if it was moved, and never a later one. Returns false if it was gone already; the
    /// file system may still be mounted elsewhere.
    pub(super) fn unmount(&self, if_busy: IfBusy) -> Result<bool, UnmountError> {
        if !self.is_mounted() {
            return Ok(false);
        }
        let Some(ours) = &self.entry else {
            return detach(&self.mountpoint, if_busy).map(|()| true);
        };
        let table = mount_table().map_err(UnmountError::Table)?;
        match table.iter().find(|entry| entry.is_same(ours)) {
            Some(entry) => detach_entry(entry, &table, if_busy).map(|()| true),
            None => Ok(false),
        }
    }

    /// Ends the connection, and fails all requests that wait for it.
    pub(super) fn abort(&self) {
        if !self.is_mounted() {
            return;
        }
        let aborted = match &self.entry {
            Some(ours) => abort(ours, Some(self.device.as_fd())),
            None => detach(&self.mountpoint, IfBusy::Detach),
        };
        if let Err(error) = aborted {
            tracing::error!(%error, "requests that wait for the mount go on waiting until this process ends");
        }
    }

    /// Unmounts at a signal. Returns false if our mount is already gone, or cannot be unmounted.
    pub(super) fn leave(&self) -> bool {
        let outcome = self.unmount(IfBusy::Refuse);
        let outcome = match outcome {
            Err(UnmountError::Busy(_)) => {
                tracing::warn!(mountpoint = %self.mountpoint.display(),
                    "busy: detached, and served until the last user leaves");
                self.unmount(IfBusy::Detach)
            }
            outcome => outcome,
        };
        outcome.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot unmount");
            false
        })
    }
}
