//! File descriptors in ioctl arguments, and the mount through which a caller sends an ioctl.
//!
//! A descriptor number is valid in the caller's process only. `/proc/PID/fdinfo` has the mount and inode of each
//! descriptor. Opening the file itself would send a request back to this mount.
//!
//! A FUSE request does not name its mount, either. One file system may have many mounts, by bind mounts that are
//! read-only each by itself. There the kernel refuses the operations that it knows to write, and it knows no ioctl of
//! btrfs.
//!
//! So an ioctl is refused if the caller sees no writable mount, or has the file open only through read-only ones. The
//! same applies to mounts with mapped users. If the caller cannot be inspected, nothing is refused for this reason.

use std::fs;
use std::io;
use std::sync::{Arc, OnceLock};

use ubtrfs_fs::FileId;
use ubtrfs_fuse_server::request::{Errno, NodeId, Result};

use super::super::nodes::Listed;
use super::super::number::Meaning;
use super::super::source::Source;
use super::Call;
use crate::mount_table::{TableEntry, is_read_only, mount_table_of};

/// Major and minor number of the mount's device, once known.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceNumber(Arc<OnceLock<(u32, u32)>>);

impl DeviceNumber {
    pub(crate) fn set(&self, number: (u32, u32)) {
        // A mount has one device number for its life.
        let _ = self.0.set(number);
    }

    /// Returns whether the mount was made read-only by a remount: the kernel checks this only for ioctls that it knows.
    pub(super) fn is_read_only(&self) -> bool {
        self.0.get().is_some_and(|number| is_read_only(*number))
    }
}

/// The kernel's description of a descriptor.
struct Described {
    mount: u64,
    inode: u64,
}

impl Described {
    /// Parses a descriptor's `fdinfo`. Returns `None` if it does not describe a file of a file system.
    fn parse(info: &str) -> Option<Described> {
        let field = |name: &str| {
            let mut lines = info.lines();
            let text = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            text.trim().parse::<u64>().ok()
        };
        Some(Described {
            mount: field("mnt_id")?,
            inode: field("ino")?,
        })
    }
}

impl<S: Source> Call<'_, S> {
    /// Returns the mounts of this file system that the caller sees.
    fn callers_mounts(&self) -> io::Result<Vec<TableEntry>> {
        let ours = self.adapter.device.0.get();
        let mut table = mount_table_of(self.context.pid)?;
        table.retain(|entry| Some(&entry.device) == ours);
        Ok(table)
    }

    /// Returns whether the caller's mount is read-only, as far as can be known.
    pub(super) fn is_asked_through_read_only(&self) -> bool {
        self.is_asked_through(TableEntry::refuses_writes)
    }

    /// Returns whether the caller's mount maps users, as far as can be known.
    pub(super) fn is_asked_through_idmapped(&self) -> bool {
        self.adapter.connection_flags.idmapped && self.is_asked_through(TableEntry::is_idmapped)
    }

    fn is_asked_through(&self, is_such: fn(&TableEntry) -> bool) -> bool {
        // Processes in another pid namespace cannot be inspected.
        if self.context.pid == 0 {
            return false;
        }
        let mounts = self.callers_mounts().unwrap_or_default();
        let such = mounts.iter().filter(|mount| is_such(mount)).count();
        match such {
            0 => false,
            all if all == mounts.len() => true,
            _ => self.has_it_through(&mounts, is_such).unwrap_or(false),
        }
    }

    /// Returns whether the caller has the file open, and only through such mounts.
    fn has_it_through(
        &self,
        mounts: &[TableEntry],
        is_such: fn(&TableEntry) -> bool,
    ) -> io::Result<bool> {
        let mut is_open = false;
        for info in fs::read_dir(format!("/proc/{}/fdinfo", self.context.pid))? {
            // A descriptor that was closed in between is not the one of this ioctl.
            let text = fs::read_to_string(info?.path()).unwrap_or_default();
            let Some(described) = Described::parse(&text) else {
                continue;
            };
            let mount = mounts.iter().find(|mount| mount.id == described.mount);
            let Some(mount) = mount.filter(|_| self.is_it(described.inode)) else {
                continue;
            };
            if !is_such(mount) {
                return Ok(false);
            }
            is_open = true;
        }
        Ok(is_open)
    }

    /// Returns whether the kernel's inode number belongs to the file.
    fn is_it(&self, inode: u64) -> bool {
        self.file_numbered(inode) == Some(self.file)
    }

    fn file_numbered(&self, inode: u64) -> Option<FileId> {
        match self.adapter.numbering.meaning(inode) {
            Meaning::File(file) => Some(file),
            Meaning::Listed => match self.adapter.nodes.get(inode) {
                Some(Listed::File(file)) => Some(file),
                _ => None,
            },
            // The kernel knows no other number of the root until a process requests its attributes.
            Meaning::Nothing => (inode == NodeId::ROOT.0).then_some(self.adapter.root),
        }
    }

    /// Returns the file of this mount that the caller has open as `descriptor`.
    pub(super) fn file_of(&self, descriptor: i64) -> Result<FileId> {
        let pid = self.context.pid;
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}"));
        let info = info.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Errno::PERM,
            // The kernel's btrfs returns EINVAL for a descriptor that is not open.
            _ => Errno::INVAL,
        })?;
        let described = Described::parse(&info).ok_or(Errno::XDEV)?;
        let mounts = self.callers_mounts().map_err(|_| Errno::PERM)?;
        if !mounts.iter().any(|mount| mount.id == described.mount) {
            return Err(Errno::XDEV);
        }
        self.file_numbered(described.inode).ok_or(Errno::INVAL)
    }
}
