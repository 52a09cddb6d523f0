//! Subvolumes and snapshots by paths.

use std::path::Path;

use ubtrfs_engine::{NewInode, SubvolumeInfo};
use ubtrfs_format::ids::RootId;

use crate::error::{Error, Result};
use crate::open::Volume;

/// What may be done in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    Writable,
}

impl Volume {
    /// The same volume, seen from the root of the subvolume that `path` leads to.
    pub fn subvolume(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let id = self.subvolume_at(path.as_ref())?;
        Ok(Volume {
            engine: self.engine.clone(),
            root: self.engine.root_dir(id)?,
        })
    }

    pub(crate) fn subvolume_at(&self, path: &Path) -> Result<RootId> {
        let id = self.find(path)?;
        match self.engine.root_dir(id.root)? == id {
            true => Ok(id.root),
            false => Err(Error::Engine(ubtrfs_engine::Error::NotASubvolume)),
        }
    }

    /// Makes an empty subvolume, and commits.
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<RootId> {
        let (dir, name) = self.place(path.as_ref())?;
        let root = NewInode::directory(0o755);
        Ok(self.engine.create_subvolume(dir, name, &root)?)
    }

    /// Makes `to` a snapshot of the subvolume at `of`, with all that was written before, and commits. It costs
    /// one block, whatever the size; what is in nested subvolumes is not in it.
    pub fn snapshot(
        &self,
        of: impl AsRef<Path>,
        to: impl AsRef<Path>,
        access: Access,
    ) -> Result<RootId> {
        let source = self.subvolume_at(of.as_ref())?;
        let (dir, name) = self.place(to.as_ref())?;
        let read_only = access == Access::ReadOnly;
        Ok(self.engine.snapshot(source, dir, name, read_only)?)
    }

    /// Deletes a subvolume with all that is in it, but not with subvolumes nested in it. Its space comes back in the
    /// background.
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.place(path.as_ref())?;
        Ok(self.engine.delete_subvolume(dir, name)?)
    }

    /// All subvolumes, the top level first.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        Ok(self.engine.subvolumes()?)
    }
}
