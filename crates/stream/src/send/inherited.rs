//! The directories whose attributes new files in them would inherit at the receiver.
//!
//! Not here: removing and restoring the attributes (`inheritable`).

use std::collections::HashSet;

use ubtrfs_format::item::acl;
use ubtrfs_spill::ScratchDir;

use super::error::Result;
use super::spilled::{FirstSeen, InodeSet};

/// The names of the attributes.
pub(super) const INHERITABLE: [&[u8]; 2] = [acl::DEFAULT, b"btrfs.compression"];

/// The directories whose attributes are set at the end.
#[derive(Debug)]
pub(super) struct Inherited {
    /// Directories whose attributes were removed at the receiver, although the old snapshot has them.
    pub(super) cleared: InodeSet,
    /// Some of the directories without such attributes in the old snapshot.
    pub(super) plain: HashSet<u64>,
    /// Directories whose attributes differ between the snapshots, or were removed.
    pub(super) changed: FirstSeen,
}

/// Returns whether new files in a directory inherit its attribute of this name.
pub(super) fn is_inheritable(name: &[u8]) -> bool {
    INHERITABLE.contains(&name)
}

impl Inherited {
    pub(super) fn new(scratch_dir: &ScratchDir) -> Inherited {
        Inherited {
            cleared: InodeSet::new(scratch_dir),
            plain: HashSet::new(),
            changed: FirstSeen::new(scratch_dir),
        }
    }

    /// Notes that an inheritable attribute of a directory differs.
    pub(super) fn note(&mut self, dir: u64) -> Result<()> {
        Ok(self.changed.add(dir)?)
    }
}
