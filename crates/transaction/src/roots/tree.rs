//! The trees of a volume by id, and what the root tree says of them.
//!
//! Invariants
//! - TREE-1: a tree of a writable volume is one object as long as anyone holds it or it has edits that
//!   are not committed. Its delta is nowhere else.
//! - TREE-2: the item of a tree of a writable volume is the truth. The one in the root tree is as of the
//!   last commit, and only commits write it.
//! - TREE-3: a deleted subvolume is usable through its inodes as long as any of them is held. Once no inode of it
//!   is held, none can be again; only then its blocks are freed.

mod object_ids;
mod root_item;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::item::{FileKind, InodeFlags, RootItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{Edit, LiveTree, View};

use self::object_ids::ObjectIds;
use self::root_item::SharedRootItem;
use super::inode_items::{InodeItemCache, ItemChange};
use super::log_journal::LogJournal;
use super::names::{NameCache, NameChanges};
use crate::error::{Error, Result};

/// The state that the trees of a volume share.
#[derive(Debug)]
pub(super) struct TreeUse {
    /// Whether transactions edit them.
    pub(super) writable: bool,
    /// Whether they are edited at all, be it in memory only.
    pub(super) edited: bool,
    /// Whether ACLs count.
    pub(super) acls: bool,
    /// Bits of `InodeFlags` that regular files which are made in them begin with.
    pub(super) new_file_flags: Arc<AtomicU64>,
    pub(super) inode_items: Arc<InodeItemCache>,
    pub(super) names: Arc<NameCache>,
    /// One of those in memory may share blocks with a snapshot.
    pub(super) sharing: Arc<AtomicBool>,
}

/// A tree with its root item.
#[derive(Debug)]
pub struct Tree {
    pub view: View,
    pub(crate) id: RootId,
    /// The offset of its ROOT_ITEM's key: the transaction that made it, for a snapshot.
    pub(crate) key_offset: u64,
    item: SharedRootItem,
    /// None on a volume whose trees are not edited.
    live: Option<Arc<LiveTree>>,
    /// Whether ACLs count.
    pub acls: bool,
    /// The flags that the volume's options give to new regular files.
    new_file_flags: Arc<AtomicU64>,
    /// The last transaction that makes or has made a snapshot of it: blocks that are no newer may be shared.
    snapshot_in: AtomicU64,
    sharing: Arc<AtomicBool>,
    /// The last transaction that edits of this tree were made in.
    pub(crate) dirty_in: AtomicU64,
    object_ids: ObjectIds,
    /// Whether inodes without a name that were left in it have been looked for.
    pub orphans_finished: AtomicBool,
    /// Held shared by writers without copy on write, exclusively by the creation of a snapshot.
    ///
    /// The creation holds it from before the freeze that the snapshot shows until it is made. The tree is not freed
    /// meanwhile.
    pub nocow_lock: RwLock<()>,
    /// Held shared while a subvolume in it or a snapshot of it is pending, exclusively by its deletion. Taken with
    /// `InodeTable::rename_lock` held, which creations release before.
    pub snapshot_lock: RwLock<()>,
    pub inode_items: Arc<InodeItemCache>,
    pub names: Arc<NameCache>,
    pub log_journal: LogJournal,
}

/// A hold on a subvolume that stays read-only meanwhile.
#[derive(Debug)]
pub struct KeptReadOnly(Arc<Tree>);

impl Drop for KeptReadOnly {
    fn drop(&mut self) {
        self.0.item.end_read_only();
    }
}

impl Tree {
    pub(super) fn new(
        view: View,
        live: Option<Arc<LiveTree>>,
        key_offset: u64,
        item: RootItem,
        tree_use: &TreeUse,
    ) -> Tree {
        let tree = Tree {
            id: view.tree(),
            view,
            key_offset,
            snapshot_in: AtomicU64::new(0),
            sharing: Arc::clone(&tree_use.sharing),
            item: SharedRootItem::new(item),
            live,
            acls: tree_use.acls,
            new_file_flags: Arc::clone(&tree_use.new_file_flags),
            dirty_in: AtomicU64::new(0),
            object_ids: ObjectIds::default(),
            orphans_finished: AtomicBool::new(false),
            nocow_lock: RwLock::new(()),
            snapshot_lock: RwLock::new(()),
            inode_items: Arc::clone(&tree_use.inode_items),
            names: Arc::clone(&tree_use.names),
            log_journal: LogJournal::default(),
        };
        tree.note_snapshot(item.last_snapshot.get());
        tree
    }

    pub fn id(&self) -> RootId {
        self.id
    }

    /// Returns the root item, with changes that are not committed yet.
    pub fn item(&self) -> RootItem {
        self.item.get()
    }

    pub(crate) fn change_item(&self, change: impl FnOnce(&mut RootItem)) {
        self.item.change(change);
    }

    /// Returns the key of the tree's ROOT_ITEM.
    pub fn root_key(&self) -> Key {
        Key::new(self.id.0, KeyType::ROOT_ITEM, self.key_offset)
    }

    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.item.is_read_only()
    }

    #[inline]
    pub fn is_deleted(&self) -> bool {
        self.item.is_deleted()
    }

    /// Refuses a subvolume that has been deleted.
    #[inline]
    pub fn check_undeleted(&self) -> Result<()> {
        match self.is_deleted() {
            true => Err(Error::NoSuchSubvolume(self.id)),
            false => Ok(()),
        }
    }

    /// Refuses a deleted subvolume without held inodes.
    #[inline]
    pub fn check_alive(&self) -> Result<()> {
        match self.is_deleted() && !self.is_held() {
            true => Err(Error::NoSuchSubvolume(self.id)),
            false => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.item.is_held()
    }

    /// Counts a hold on an inode.
    pub fn acquire(&self) -> Result<()> {
        match self.item.acquire() {
            true => Ok(()),
            false => Err(Error::NoSuchSubvolume(self.id)),
        }
    }

    /// Drops a hold. True if it was the last one of a subvolume that has been deleted.
    pub fn release(&self) -> bool {
        self.item.release()
    }

    /// Has a subvolume stay read-only. None if it is not.
    pub fn keep_read_only(self: &Arc<Self>) -> Option<KeptReadOnly> {
        let is_kept = self.item.keep_read_only();
        is_kept.then(|| KeptReadOnly(Arc::clone(self)))
    }

    /// Returns whether it must stay read-only. During a change of the root item the answer stays no.
    pub fn is_kept_read_only(&self) -> bool {
        self.item.is_kept_read_only()
    }

    /// Refuses a subvolume that nothing may be changed in. An item found within a transaction is true of all
    /// of it.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.check_alive()?;
        match self.is_read_only() {
            true => Err(Error::ReadOnlySubvolume(self.id)),
            false => Ok(()),
        }
    }

    /// Returns the flags that the volume's options add to a new inode of `kind`.
    #[inline]
    pub fn new_inode_flags(&self, kind: FileKind) -> InodeFlags {
        match kind {
            FileKind::Regular => {
                InodeFlags::from_bits_retain(self.new_file_flags.load(Ordering::Relaxed))
            }
            _ => InodeFlags::empty(),
        }
    }

    /// Returns the transaction of the tree's last snapshot.
    pub fn last_snapshot(&self) -> u64 {
        self.item.last_snapshot()
    }

    /// Notes that transaction `transid` creates or has created a snapshot of the tree.
    pub fn note_snapshot(&self, transid: u64) {
        if self.id.is_subvolume() && transid > 0 {
            self.snapshot_in.fetch_max(transid, Ordering::Relaxed);
            self.sharing.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the generation up to which the tree's blocks may be shared, or 0 if none is.
    pub(crate) fn shared_up_to(&self) -> Transid {
        Transid(self.snapshot_in.load(Ordering::Relaxed))
    }

    /// Returns the tree's edits. Transactions make them, or a replay of the log in memory
    /// (`RootsOptions::edits_trees`).
    #[inline]
    pub(crate) fn live(&self) -> &Arc<LiveTree> {
        self.live.as_ref().expect("the volume was opened for edits")
    }

    /// Returns the tree as of the last commit.
    pub fn committed_view(&self) -> View {
        self.live().committed_view()
    }

    /// Returns the item as the running transaction has left it. Some(None) stands for a deletion.
    ///
    /// None: it has not touched the item, or has made and deleted it.
    pub fn edited(&self, key: &Key) -> Option<Option<Arc<[u8]>>> {
        self.live().edited(key)
    }

    /// Returns the changes of the running transaction in a range of keys, ascending. None stands for a deletion.
    pub fn edited_in(&self, range: RangeInclusive<Key>) -> Vec<(Key, Option<Arc<[u8]>>)> {
        self.live().edited_in(range)
    }

    /// Returns whether the running transaction has changed anything in a range of keys.
    pub fn is_edited_in(&self, range: RangeInclusive<Key>) -> bool {
        self.live().is_edited_in(range)
    }

    /// Returns whether a durable commit has all that was changed in a range of keys.
    pub fn is_committed_in(&self, range: &RangeInclusive<Key>) -> bool {
        self.live().is_committed_in(range)
    }

    /// Makes edits by transaction `transid`, under one lock. `names` tells of all names that are changed. Returns by
    /// how many bytes the mutable set grew.
    #[inline]
    pub(crate) fn edit(
        &self,
        edits: impl IntoIterator<Item = Edit>,
        names: Option<&NameChanges>,
        change: ItemChange,
        transid: Transid,
    ) -> i64 {
        if !self.log_journal.is_active() {
            return self.edit_unlogged(edits, names, change, transid);
        }
        let edits: Vec<Edit> = edits.into_iter().collect();
        self.log_journal.note(edits.iter().map(Edit::key));
        self.edit_unlogged(edits, names, change, transid)
    }

    #[inline]
    fn edit_unlogged(
        &self,
        edits: impl IntoIterator<Item = Edit>,
        names: Option<&NameChanges>,
        change: ItemChange,
        transid: Transid,
    ) -> i64 {
        let mut tickets = None;
        let edits = edits.into_iter().inspect(|edit| {
            // The first one: the mutable set is held from here on.
            if let (None, Some(names)) = (&tickets, names) {
                tickets = Some(names.take_out(&self.names));
            }
            self.inode_items.follow(self.id, edit, change, transid);
        });
        let grown = self.live().edit(edits);
        if let (Some(tickets), Some(names)) = (tickets, names) {
            names.enter(&self.names, tickets);
        }
        grown
    }

    /// Gives out an object id above all that were in use when the tree was first written to, or given out since.
    ///
    /// So caches never take a new inode for a deleted one of the same id.
    pub fn next_objectid(&self) -> Result<u64> {
        self.object_ids.take(&self.view)
    }

    /// Notes which object ids are in use. Called before anything is deleted from the tree.
    pub fn note_objectids(&self) -> Result<()> {
        self.object_ids.note(&self.view)
    }

    pub(crate) fn is_committed(&self, committed: u64) -> bool {
        self.dirty_in.load(Ordering::Acquire) <= committed
    }
}
