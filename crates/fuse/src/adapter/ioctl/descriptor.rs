//! The subvolume that a caller names by a descriptor of its own.
//!
//! The number means something in the caller's process only. The kernel tells of each descriptor there which mount
//! and which inode it is of; looking at the file itself would come back here as a request.

use std::fs;
use std::io;
use std::sync::{Arc, OnceLock};

use ubtrfs_engine::FileId;

use super::super::nodes::Listed;
use super::super::number::Meaning;
use super::super::source::Source;
use super::Call;
use crate::mount::{TableEntry, is_read_only, mount_table_of};
use crate::request::{Errno, Result};

/// Major and minor number of the mount's device, once it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceNumber(Arc<OnceLock<(u32, u32)>>);

impl DeviceNumber {
    pub(crate) fn set(&self, number: (u32, u32)) {
        // A mount has one for its life.
        let _ = self.0.set(number);
    }

    /// Whether the mount was made read-only since: the kernel asks that of ioctls only where it knows them.
    pub(super) fn is_read_only(&self) -> bool {
        self.0.get().is_some_and(|number| is_read_only(*number))
    }
}

impl<S: Source> Call<'_, S> {
    /// The file of this mount that the caller has open as `descriptor`.
    pub(super) fn file_of(&self, descriptor: i64) -> Result<FileId> {
        let pid = self.context.pid;
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}"));
        let info = info.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Errno::PERM,
            // As the kernel's btrfs answers for a descriptor that is not open.
            _ => Errno::INVAL,
        })?;
        let field = |name: &str| {
            let mut lines = info.lines();
            let text = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            text.trim().parse::<u64>().ok()
        };
        let (Some(mount), Some(number)) = (field("mnt_id"), field("ino")) else {
            return Err(Errno::XDEV);
        };
        let table = mount_table_of(pid).map_err(|_| Errno::PERM)?;
        let ours = self.adapter.device.0.get();
        let is_it = |entry: &TableEntry| entry.id == mount && Some(&entry.device) == ours;
        if !table.iter().any(is_it) {
            return Err(Errno::XDEV);
        }
        match self.adapter.numbering.meaning(number) {
            Meaning::File(file) => Ok(file),
            Meaning::Listed => match self.adapter.nodes.get(number) {
                Some(Listed::File(file)) => Ok(file),
                _ => Err(Errno::INVAL),
            },
            Meaning::Nothing => Err(Errno::INVAL),
        }
    }
}
