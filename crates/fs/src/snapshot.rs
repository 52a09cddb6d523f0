//! Read-only subvolumes that do not change while they are read as a whole, and the comparison of two of them.
//!
//! Not here: the meaning of differences (`ubtrfs-stream`), the parallel walk of two trees (`ubtrfs-tree`).

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_format::compress::MAX_EXTENT_BYTES;
use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_format::item::RootItem;
use ubtrfs_storage::roots::{KeptReadOnly, Tree};
use ubtrfs_storage::{BackRefs, ExtentUser, FileId, RootsOfBlocks};
use ubtrfs_tree::{Comparison, View};

use crate::error::{Error, Result};
use crate::volume::{OpenFile, Volume};

/// A hold on a read-only subvolume in its current state.
///
/// The subvolume may be deleted while it is held, but its blocks stay until the hold is dropped. It cannot be
/// made writable.
#[derive(Debug)]
pub struct Snapshot {
    volume: Arc<Volume>,
    tree: Arc<Tree>,
    view: View,
    item: RootItem,
    _kept: KeptReadOnly,
    /// Keeps the blocks if the subvolume is deleted.
    root_dir: OpenFile,
}

impl Snapshot {
    /// Holds a subvolume. Commits first, so that the tree on disk has all changes.
    ///
    /// Errors: a subvolume that is not read-only; the errors of [`Volume::sync`].
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

    /// Returns the root item as of `open`.
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

    /// Compares it with an older snapshot, or with an empty one: then every item is new.
    ///
    /// The cost depends on the differences, as subtrees that both share are skipped. Both must be of the same
    /// volume.
    pub fn compare_with(&self, old: Option<&Snapshot>) -> Comparison {
        Comparison::new(old.map(Snapshot::view), &self.view)
    }

    /// Reads and verifies the `disk_bytes` stored bytes of an extent, which holds a file's data from `offset`
    /// on.
    ///
    /// Errors: no chunk contains them; they are longer than a compressed extent; unreadable data.
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

    /// Returns the number of references to an extent. Leaves shared by snapshots count once.
    pub fn extent_refs(&self, extent: Logical) -> Result<u64> {
        let state = self.volume.roots.committed_state();
        Ok(BackRefs::new(&state).data_extent_refs(extent)?)
    }

    /// Calls `each` with the start of every file range that refers to an extent as of the last commit, until it breaks.
    ///
    /// Passing the same `roots` for further extents is faster.
    pub fn extent_users(
        &self,
        extent: Logical,
        roots: &mut RootsOfBlocks,
        each: &mut dyn FnMut(ExtentUser) -> ControlFlow<()>,
    ) -> Result<()> {
        let state = self.volume.roots.committed_state();
        Ok(BackRefs::new(&state).extent_users(extent, None, roots, each)?)
    }

    /// Checks that the subvolume did not change while it was read.
    ///
    /// Errors: it changed, which the hold should have prevented.
    pub fn check_unchanged(&self) -> Result<()> {
        let still = self.tree.is_read_only() && self.tree.view.committed() == self.view.committed();
        if still {
            Ok(())
        } else {
            Err(Error::WritableSubvolume(self.id()))
        }
    }
}
