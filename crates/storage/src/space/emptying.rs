//! Block groups that are being emptied: nothing is allocated in them any longer.
//!
//! This state is in memory only, like the kernel's read-only groups.
//!
//! Invariants
//! - EMPTYING-1: a group is closed only if all reservations fit without it, with the help of new chunks. A group of the
//!   chunk tree is closed only if the others have room for the whole tree, because commits do not reserve it.
//!
//! Not here: moving the extents (`commit::relocate`).

use std::sync::Arc;

use ubtrfs_format::block_group_flags::BlockGroupType;
use ubtrfs_format::ids::Logical;

use super::block_group::BlockGroup;
use super::{Space, SpaceError};

/// A group that is being emptied. A drop opens it again, unless it was removed.
#[derive(Debug)]
pub(crate) struct EmptyingGroup {
    group: Arc<BlockGroup>,
}

impl EmptyingGroup {
    pub(crate) fn group(&self) -> &BlockGroup {
        &self.group
    }
}

impl Drop for EmptyingGroup {
    fn drop(&mut self) {
        if !self.group.is_removed() {
            self.group.set_writable();
        }
    }
}

impl Space {
    /// Closes a group for allocations and for writes in place. Waits for such writes in progress.
    ///
    /// Errors: no such group; it is closed already; the reservations need its space.
    pub(crate) fn begin_emptying(&self, start: Logical) -> Result<EmptyingGroup, SpaceError> {
        let group = self.find(start).filter(|group| group.start() == start);
        let group = group.ok_or(SpaceError::NoBlockGroup { start })?;
        if !group.set_read_only_once() {
            return Err(SpaceError::InUse { start });
        }
        // Opens the group again after an error.
        let emptying = EmptyingGroup { group };
        let kind = emptying.group.kind();
        let mut chunks = self.chunks.lock();
        // EMPTYING-1. The group is subtracted before the check (SPACE-INFO-2).
        while !self.fits_without(kind) {
            let grown = match kind {
                BlockGroupType::Data | BlockGroupType::System => self.grow(&mut chunks, kind, None),
                // Reservations of metadata count the space of future chunks.
                BlockGroupType::Metadata => Err(SpaceError::NoSpace { kind, bytes: 0 }),
            };
            if let Err(error) = grown {
                self.forget_unclaimed(&mut chunks);
                return Err(error);
            }
        }
        Ok(emptying)
    }

    /// Returns whether the open groups of a kind have enough space for all that needs it.
    fn fits_without(&self, kind: BlockGroupType) -> bool {
        match kind {
            BlockGroupType::System => self.has_system_room(),
            BlockGroupType::Data | BlockGroupType::Metadata => self.fits_reservations_of(kind),
        }
    }
}
