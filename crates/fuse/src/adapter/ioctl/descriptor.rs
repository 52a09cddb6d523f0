//! Descriptors of a caller: the subvolume that it names by one, and whether the mount by which it asks is read-only.
//!
//! The number means something in the caller's process only. The kernel tells of each descriptor there which mount
//! and which inode it is of. Looking at the file itself would come back here as a request.
//!
//! Nor does the kernel tell by which mount a request came. One file system may be mounted in many places, by bind
//! mounts that are read-only each by itself. The kernel refuses there what it knows to be writing, and knows no
//! ioctl of btrfs. So an ioctl is refused whose caller sees no mount that could be written through, or has the file
//! open through read-only ones alone. The same goes for mounts with mapped users. Where the caller cannot be looked at, nothing is refused that was not before.

use std::fs;
use std::io;
use std::sync::{Arc, OnceLock};

use ubtrfs_engine::FileId;
use ubtrfs_fuse_server::request::{Errno, NodeId, Result};

use super::super::nodes::Listed;
use super::super::number::Meaning;
use super::super::source::Source;
use super::Call;
use crate::mount_table::{TableEntry, is_read_only, mount_table_of};

/// Major and minor number of the mount's device, once it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceNumber(Arc<OnceLock<(u32, u32)>>);

impl DeviceNumber {
    pub(crate) fn set(&self, number: (u32, u32)) {
        // A mount has one for its life.
        let _ = self.0.set(number);
    }

    /// Returns whether the mount was made read-only since: the kernel asks that of ioctls only where it knows them.
    pub(super) fn is_read_only(&self) -> bool {
        self.0.get().is_some_and(|number| is_read_only(*number))
    }
}

/// The description of a descriptor by the kernel.
struct Described {
    mount: u64,
    inode: u64,
}

impl Described {
    /// Parses a descriptor's `fdinfo`. Returns None if it does not describe a file of a file system.
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

    /// Returns whether the mount by which the caller asks is read-only, as far as can be known.
    pub(super) fn is_asked_through_read_only(&self) -> bool {
        self.is_asked_through(TableEntry::refuses_writes)
    }

    /// Returns whether the mount by which the caller asks maps users, as far as can be known.
    pub(super) fn is_asked_through_idmapped(&self) -> bool {
        self.adapter.connection_flags.idmapped && self.is_asked_through(TableEntry::is_idmapped)
    }

    fn is_asked_through(&self, is_such: fn(&TableEntry) -> bool) -> bool {
        // Nothing more is known of a process in another namespace.
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
            // One that was closed meanwhile is not the one that is asked through.
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

    /// Returns whether an inode number of the kernel's is that of the file.
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
            // Until a process has asked for the root's attributes, the kernel knows no other number of it.
            Meaning::Nothing => (inode == NodeId::ROOT.0).then_some(self.adapter.root),
        }
    }

    /// Returns the file of this mount that the caller has open as `descriptor`.
    pub(super) fn file_of(&self, descriptor: i64) -> Result<FileId> {
        let pid = self.context.pid;
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}"));
        let info = info.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Errno::PERM,
            // As the kernel's btrfs answers for a descriptor that is not open.
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
