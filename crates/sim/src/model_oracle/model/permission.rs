//! Checks of flags and read-only subvolumes, in the kernel's order.

use super::ModelFs;
use super::inode::{Body, InodeId};
use super::lookup::Found;
use crate::vocabulary::OpError;

impl ModelFs {
    /// Checks that an inode may be written to. For a directory, this means creating and removing names.
    pub(super) fn may_write(&self, id: InodeId) -> Result<(), OpError> {
        if self.inode(id).flags.immutable {
            return Err(OpError::NotPermitted);
        }
        self.may_change_subvolume(id)
    }

    pub(super) fn may_change_names(&self, dir: InodeId) -> Result<(), OpError> {
        self.may_write(dir)
    }

    fn may_change_subvolume(&self, id: InodeId) -> Result<(), OpError> {
        if self.subvolume(id.subvolume).read_only {
            Err(OpError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Checks that owner, mode, times and xattrs may be changed.
    pub(super) fn may_change_attributes(&self, id: InodeId) -> Result<(), OpError> {
        self.check_mutable(id)?;
        self.may_change_subvolume(id)
    }

    pub(super) fn may_change_flags(&self, id: InodeId) -> Result<(), OpError> {
        self.may_change_subvolume(id)
    }

    /// Checks that the name of `victim` may be removed from `dir`, depending on whether a directory is expected.
    pub(super) fn may_delete(
        &self,
        dir: InodeId,
        victim: Found,
        wants_dir: bool,
    ) -> Result<(), OpError> {
        self.may_change_names(dir)?;
        if self.inode(dir).flags.append {
            return Err(OpError::NotPermitted);
        }
        if let Found::Inode(id) = victim {
            self.check_mutable(id)?;
        }
        match (wants_dir, self.is_dir(victim)) {
            (true, false) => Err(OpError::NotADirectory),
            (false, true) => Err(OpError::IsADirectory),
            _ => Ok(()),
        }
    }

    pub(super) fn check_mutable(&self, id: InodeId) -> Result<(), OpError> {
        let flags = self.inode(id).flags;
        if flags.immutable || flags.append {
            Err(OpError::NotPermitted)
        } else {
            Ok(())
        }
    }

    pub(super) fn is_dir(&self, found: Found) -> bool {
        match found {
            Found::Inode(id) => self.inode(id).is_dir(),
            Found::EmptySubvolumeDir => true,
        }
    }

    /// Checks that an inode may be opened for writing. Symlinks and special files are out of scope.
    pub(super) fn may_open_for_writing(&self, id: InodeId, appends: bool) -> Result<(), OpError> {
        match self.inode(id).body {
            Body::File(_) => {}
            Body::Dir(_) => return Err(OpError::IsADirectory),
            Body::Symlink(_) | Body::Special(_) => return Err(OpError::OutOfScope),
        }
        self.may_write(id)?;
        if self.inode(id).flags.append && !appends {
            return Err(OpError::NotPermitted);
        }
        Ok(())
    }
}
