//! Read-only subvolumes that stay as they are while they are read as a whole, and comparing two of them.
//!
//! Not here: what differences mean (`ubtrfs-stream`), walking two trees (`ubtrfs-tree`).

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_format::compress::MAX_EXTENT_BYTES;
use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_format::item::RootItem;
use ubtrfs_transaction::roots::{KeptReadOnly, Tree};
use ubtrfs_transaction::{ExtentUser, FileId, RootsOfBlocks};
use ubtrfs_tree::{Comparison, View};

use crate::error::{Error, Result};
use crate::volume::{OpenFile, Volume};

/// A hold on a read-only subvolume, as of when it was taken.
///
/// The subvolume may be deleted meanwhile: its blocks stay until the hold is dropped. It cannot be made writable.
#[derive(Debug)]
pub struct Snapshot {
    volume: Arc<Volume>,
    tree: Arc<Tree>,
    view: View,
    item: RootItem,
    _kept: KeptReadOnly,
    /// Keeps the blocks of a subvolume that is deleted.
    root_dir: OpenFile,
}

impl Snapshot {
    /// Holds a subvolume. Commits first, so that the tree on disk has all that was done to it.
    ///
    /// Errors: a subvolume that is not read-only; those of [`Volume::sync`].
    pub fn open(volume: &Arc<Volume>, id: RootId) -> Result<Snapshot> {
        let tree = volume.subvolume_tree(id)?;
        let kept = tree.keep_read_only().ok_or(Error::WritableSubvolume(id))?;
        let root_dir = volume.open_file(volume.root_dir(id)?)?;
        if volume.is_writable() {
            volume.sync()?;
        }
        let view = View::new(Arc::clone(volume.node_store()), tree.view.committed());
        let snapshot = Snapshot {
            volume: Arc::clone(volume),
            item: tree.item(),
            view,
            tree,
            _kept: kept,
            root_dir,
        };
        snapshot.check_unchanged()?;
        Ok(snapshot)
    }

    pub fn id(&self) -> RootId {
        self.tree.id()
    }

    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Returns the root item of the time when it was opened.
    pub fn item(&self) -> &RootItem {
        &self.item
    }

    /// Returns a view of its items.
    pub fn view(&self) -> &View {
        &self.view
    }

    pub fn root_dir(&self) -> FileId {
        self.root_dir.id()
    }

    /// Compares it with an older state, or with nothing: then every item of it is new.
    ///
    /// Costs what differs, not what there is: subtrees that both share are skipped. Both must be of one volume.
    pub fn compare_with(&self, old: Option<&Snapshot>) -> Comparison {
        Comparison::new(old.map(Snapshot::view), &self.view)
    }

    /// Reads the `disk_bytes` of an extent as they are on disk, verified: those of a file from `offset` on.
    ///
    /// Errors: no chunk holds them, or they are more than a compressed extent has; unreadable data.
    pub fn read_stored(
        &self,
        ino: InodeNr,
        offset: u64,
        extent: Logical,
        disk_bytes: u64,
    ) -> Result<Vec<u8>> {
        if disk_bytes > MAX_EXTENT_BYTES as u64 {
            return Err(Error::Invalid("size of a compressed extent"));
        }
        let mut bytes = vec![0; disk_bytes as usize];
        let id = FileId::new(self.id(), ino);
        self.volume
            .files
            .read_stored(id, offset, extent, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns how many references an extent of it has: items of files, where leaves that snapshots share count once.
    pub fn extent_refs(&self, extent: Logical) -> Result<u64> {
        Ok(self.volume.roots.data_extent_refs(extent)?)
    }

    /// Calls `each` with the beginning of every item of a file that refers to an extent, until it breaks.
    ///
    /// `roots` may be used for further extents, which is faster.
    pub fn extent_users(
        &self,
        extent: Logical,
        roots: &mut RootsOfBlocks,
        each: &mut dyn FnMut(ExtentUser) -> ControlFlow<()>,
    ) -> Result<()> {
        Ok(self.volume.roots.extent_users(extent, None, roots, each)?)
    }

    /// Checks whether all that was read through it belongs together.
    ///
    /// Errors: it has been changed, which the hold should have prevented.
    pub fn check_unchanged(&self) -> Result<()> {
        let still = self.tree.is_read_only() && self.tree.view.committed() == self.view.committed();
        match still {
            true => Ok(()),
            false => Err(Error::WritableSubvolume(self.id())),
        }
    }
}
