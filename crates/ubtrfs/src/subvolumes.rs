//! Subvolumes and snapshots by paths.

use std::path::Path;

use ubtrfs_engine::{NewInode, SubvolumeInfo};
use ubtrfs_format::ids::RootId;

use crate::error::{Naming, Result};
use crate::open::Volume;

/// What may be done in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    Writable,
}

impl Volume {
    /// Opens a view of the volume from the root of the subvolume that `path` leads to.
    ///
    /// Errors: there is no subvolume at this path.
    pub fn subvolume(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let id = self.subvolume_at(path)?;
        Ok(Volume {
            engine: self.engine.clone(),
            root: self.engine.root_dir(id).naming("open subvolume", path)?,
        })
    }

    pub(crate) fn subvolume_at(&self, path: &Path) -> Result<RootId> {
        let id = self.find(path)?;
        let is_root = match id.is_stub() {
            true => Ok(false),
            false => self.engine.root_dir(id.root).map(|root| root == id),
        };
        let found = is_root.and_then(|is_root| match is_root {
            true => Ok(id.root),
            false => Err(ubtrfs_engine::Error::NotASubvolume),
        });
        found.naming("find subvolume", path)
    }

    /// Makes an empty subvolume, and commits.
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<RootId> {
        let path = path.as_ref();
        let made = self.name_for_dir(path).and_then(|(dir, name)| {
            let root = NewInode::directory(0o755);
            Ok(self.engine.create_subvolume(dir, &name, &root)?)
        });
        made.naming("create subvolume", path)
    }

    /// Makes `to` a snapshot of the subvolume at `of`, with all that was written before, and commits. It costs
    /// one block, whatever the size; what is in nested subvolumes is not in it.
    pub fn snapshot(
        &self,
        of: impl AsRef<Path>,
        to: impl AsRef<Path>,
        access: Access,
    ) -> Result<RootId> {
        let (of, to) = (of.as_ref(), to.as_ref());
        let made = self.subvolume_at(of).and_then(|source| {
            let (dir, name) = self.name_for_dir(to)?;
            let read_only = access == Access::ReadOnly;
            Ok(self.engine.snapshot(source, dir, &name, read_only)?)
        });
        made.naming_both("snapshot", of, to)
    }

    /// Deletes a subvolume with all that is in it, but not with subvolumes nested in it. Its space comes back in the
    /// background.
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let deleted = self.dir_to_remove(path).and_then(|(end, name)| {
            self.engine.delete_subvolume(end.dir, &name)?;
            Ok(())
        });
        deleted.naming("delete subvolume", path)
    }

    /// All subvolumes, the top level first.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        Ok(self.engine.subvolumes()?)
    }
}
