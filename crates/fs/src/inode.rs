//! Inodes: their items, attributes and times, their buffered data, and their deletion.
//!
//! Every operation that changes something takes the same steps:
//! 1. It reserves its worst case.
//! 2. It locks its inodes (`table`).
//! 3. It drafts its item changes, reading the trees (`draft`).
//! 4. It joins the running transaction.
//! 5. It enters the draft.
//!
//! Not here: names (`namespace`), and the data of files once it leaves the buffer (`file`).

mod atime;
mod attr;
mod delalloc;
mod delalloc_attr;
mod dirty_files;
mod draft;
mod evict;
mod extents_lock;
mod hold;
mod inode_flag_checks;
mod inode_flags;
mod inode_item;
mod lookup_refs;
mod name_items;
mod options;
mod orphan;
mod orphan_queue;
pub(crate) mod property;
mod setattr;
mod settings;
mod table;
mod times;
mod xattr;

pub use atime::AtimePolicy;
pub use attr::Attr;
pub(crate) use attr::SETGID;
#[cfg(test)]
pub(crate) use delalloc::VISITS;
pub(crate) use delalloc::{
    DelallocRequest, DelallocReservation, DirtyRanges, MAX_EXTENT_BYTES, SeenErrors, WINDOW_BYTES,
    WriteBuffer, WritebackErrors,
};
pub(crate) use dirty_files::DirtyFiles;
pub(crate) use draft::{Bytes, Draft, Stamps};
pub(crate) use evict::{EVICTED_AT_ONCE, ItemDeletions, all_items};
pub(crate) use extents_lock::{FileExtentsState, LockedExtents};
pub(crate) use hold::InodeHold;
pub(crate) use inode_flag_checks::{check_mutable, may_add, may_remove, may_write, must_be_dir};
pub(crate) use inode_item::{
    EntryChange, decode as decode_inode, inode_item_cached, inode_key, kind_of, look_at_inode,
    note_change, note_entry, note_times, put_inode,
};
pub use lookup_refs::LookupRefs;
pub(crate) use name_items::{MAX_NAME_BYTES, TRANSID_AT, has_room};
pub(crate) use options::DataOptions;
pub use options::{Compress, CompressError};
pub(crate) use orphan::orphan_key;
use orphan_queue::OrphanQueue;
pub use setattr::{SetAttr, SetTime};
use settings::Settings;
use table::InodeTable;
pub(crate) use table::{Inherited, Inode, InodeState, Locked};
pub use xattr::XattrMode;
pub(crate) use xattr::find_xattr;

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use ubtrfs_format::ids::RootId;
use ubtrfs_storage::roots::{Roots, Tree};
use ubtrfs_storage::{EditEstimate, FileId, Reservation, TransactionHandle, TransactionManager};

use crate::error::{Error, Result};

/// The inodes of a volume and their buffered data.
#[derive(Debug)]
pub(crate) struct Inodes {
    pub(crate) roots: Arc<Roots>,
    /// None on a volume that is only read.
    transactions: Option<Arc<TransactionManager>>,
    table: InodeTable,
    lookup_refs: RwLock<Option<Arc<dyn LookupRefs>>>,
    orphan_queue: OrphanQueue,
    pub(crate) settings: Settings,
    pub(crate) dirty: DirtyFiles,
}

impl Inodes {
    /// Creates the inodes of a volume. `inode_bytes` is the budget for unused inodes.
    pub(crate) fn new(
        roots: &Arc<Roots>,
        transactions: Option<Arc<TransactionManager>>,
        inode_bytes: u64,
        data: &DataOptions,
    ) -> Inodes {
        // Nothing moves on a volume that is only read.
        let barrier = transactions
            .as_ref()
            .map(|manager| Arc::clone(&manager.extents));
        Inodes {
            roots: Arc::clone(roots),
            transactions,
            table: InodeTable::new(inode_bytes, barrier.unwrap_or_default()),
            lookup_refs: RwLock::default(),
            orphan_queue: OrphanQueue::default(),
            settings: Settings::new(data),
            dirty: DirtyFiles::new(data.buffer_bytes),
        }
    }

    /// Returns the transactions of a writable volume.
    ///
    /// Errors: the volume was opened for reading; this process is a fork of the one that opened it.
    #[inline]
    pub(crate) fn transactions(&self) -> Result<&Arc<TransactionManager>> {
        self.roots.check_process()?;
        // Called by every operation: `ok_or` would construct and drop an error each time.
        let Some(manager) = &self.transactions else {
            return Err(Error::ReadOnly);
        };
        Ok(manager)
    }

    /// Reserves for an operation (`TransactionManager::reserve_metadata`).
    pub(crate) fn reserve_metadata(
        &self,
        subvolume: RootId,
        cost: EditEstimate,
    ) -> Result<Reservation<'_>> {
        Ok(self.transactions()?.reserve_metadata(subvolume, cost)?)
    }

    /// Joins the running transaction (`TransactionManager::join_transaction`).
    pub(crate) fn join_transaction<'v>(
        &'v self,
        reservation: Reservation<'v>,
    ) -> Result<TransactionHandle<'v>> {
        Ok(self.transactions()?.join_transaction(reservation)?)
    }

    /// Returns the object of an inode, if it is in the table. In a forked child it returns None, as another
    /// thread may have held its lock during the fork.
    pub(crate) fn find(&self, id: FileId) -> Option<Arc<Inode>> {
        self.roots.check_process().ok()?;
        self.table.find(id)
    }

    /// Returns the object of an inode. The caller must check under its lock that the inode exists.
    pub(crate) fn get(&self, id: FileId) -> Result<Arc<Inode>> {
        self.roots.check_process()?;
        self.table.get(&self.roots, id)
    }

    /// Returns the object of an inode of `tree` that a directory entry leads to.
    pub(crate) fn get_in(&self, tree: &Arc<Tree>, id: FileId) -> Arc<Inode> {
        self.table.get_in(tree, id)
    }

    /// Returns whether changes wait for the next operation, as before a `remount,ro`.
    fn is_quiesced(&self) -> bool {
        self.transactions()
            .is_ok_and(|manager| manager.cleaner.is_quiesced())
    }

    /// Removes an inode from the table after a call, unless another thread uses it.
    pub(crate) fn release(&self, inode: &Arc<Inode>) {
        self.table.release(inode);
    }

    /// Returns the lock that is taken before all locks of inodes (see `table`).
    pub(crate) fn rename_lock(&self) -> &Mutex<()> {
        &self.table.rename_lock
    }
}
