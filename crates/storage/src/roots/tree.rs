//! The trees of a volume by id, with their root items.
//!
//! Invariants
//! - TREE-1: a tree of a writable volume is one object while it has users or uncommitted edits. Its delta is in this
//!   object only.
//! - TREE-2: the root item in memory is authoritative for a writable volume. The item in the root tree is as of the
//!   last commit, and only commits write it.
//! - TREE-3: a deleted subvolume remains usable while any of its inodes is held. After the last hold is released, no
//!   inode of it can be held again. Only then are its blocks freed.

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

/// State shared by the trees of a volume.
#[derive(Debug)]
pub(super) struct TreeUse {
    /// Whether transactions edit them.
    pub(super) writable: bool,
    /// Whether trees can be edited at all, be it in memory only.
    pub(super) edited: bool,
    /// Whether ACLs are enforced.
    pub(super) acls: bool,
    /// `InodeFlags` of new regular files.
    pub(super) new_file_flags: Arc<AtomicU64>,
    pub(super) inode_items: Arc<InodeItemCache>,
    pub(super) names: Arc<NameCache>,
    /// Whether any tree in memory may share blocks with a snapshot.
    pub(super) sharing: Arc<AtomicBool>,
}

/// A tree with its root item.
#[derive(Debug)]
pub struct Tree {
    pub view: View,
    pub(crate) id: RootId,
    /// The key offset of its ROOT_ITEM: the creating transaction for a snapshot.
    pub(crate) key_offset: u64,
    item: SharedRootItem,
    /// None on a volume whose trees cannot be edited.
    live: Option<Arc<LiveTree>>,
    /// Whether ACLs are enforced.
    pub acls: bool,
    /// The flags that the volume's options add to new regular files.
    new_file_flags: Arc<AtomicU64>,
    /// The transaction of the latest snapshot of the tree. Blocks that are no newer may be shared.
    snapshot_in: AtomicU64,
    sharing: Arc<AtomicBool>,
    /// The last transaction that edited this tree.
    pub(crate) dirty_in: AtomicU64,
    object_ids: ObjectIds,
    /// Whether orphan inodes from earlier mounts have been searched for.
    pub orphans_finished: AtomicBool,
    /// Held shared by writers without copy on write, exclusively by the creation of a snapshot.
    ///
    /// The creation holds it from before the freeze whose state the snapshot contains until the snapshot exists. It
    /// also prevents the tree from being freed.
    pub nocow_lock: RwLock<()>,
    /// Held shared while a subvolume in it or a snapshot of it is pending, exclusively by its deletion. Taken with
    /// `InodeTable::rename_lock` held, which creations release before.
    pub snapshot_lock: RwLock<()>,
    pub inode_items: Arc<InodeItemCache>,
    pub names: Arc<NameCache>,
    pub log_journal: LogJournal,
}

/// A hold that keeps a subvolume read-only.
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

    /// Returns the root item, including uncommitted changes.
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

    /// Fails if the subvolume has been deleted.
    #[inline]
    pub fn check_undeleted(&self) -> Result<()> {
        if self.is_deleted() {
            Err(Error::NoSuchSubvolume(self.id))
        } else {
            Ok(())
        }
    }

    /// Fails if the subvolume has been deleted and none of its inodes is held.
    #[inline]
    pub fn check_alive(&self) -> Result<()> {
        if self.is_deleted() && !self.is_held() {
            Err(Error::NoSuchSubvolume(self.id))
        } else {
            Ok(())
        }
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.item.is_held()
    }

    /// Takes a hold on an inode.
    pub fn acquire(&self) -> Result<()> {
        if self.item.acquire() {
            Ok(())
        } else {
            Err(Error::NoSuchSubvolume(self.id))
        }
    }

    /// Releases a hold. Returns true if it was the last one of a deleted subvolume.
    pub fn release(&self) -> bool {
        self.item.release()
    }

    /// Keeps a subvolume read-only, or returns None if it is writable.
    pub fn keep_read_only(self: &Arc<Self>) -> Option<KeptReadOnly> {
        let is_kept = self.item.keep_read_only();
        is_kept.then(|| KeptReadOnly(Arc::clone(self)))
    }

    /// Returns whether the subvolume must stay read-only. A false result stays valid during a change of the root item.
    pub fn is_kept_read_only(&self) -> bool {
        self.item.is_kept_read_only()
    }

    /// Fails if the subvolume is read-only or gone. Within a transaction, the result stays valid until its end.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.check_alive()?;
        if self.is_read_only() {
            Err(Error::ReadOnlySubvolume(self.id))
        } else {
            Ok(())
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

    /// Returns the newest generation of blocks that may be shared, or 0 if none is shared.
    pub(crate) fn shared_up_to(&self) -> Transid {
        Transid(self.snapshot_in.load(Ordering::Relaxed))
    }

    /// Returns the tree's edits, made by transactions or by a log replay in memory (`RootsOptions::edits_trees`).
    #[inline]
    pub(crate) fn live(&self) -> &Arc<LiveTree> {
        self.live.as_ref().expect("the volume was opened for edits")
    }

    /// Returns the tree as of the last commit.
    pub fn committed_view(&self) -> View {
        self.live().committed_view()
    }

    /// Returns the item if the running transaction has edited it. Some(None) means a deletion.
    ///
    /// None means that the transaction has not edited the item, or has both inserted and deleted it.
    pub fn edited(&self, key: &Key) -> Option<Option<Arc<[u8]>>> {
        self.live().edited(key)
    }

    /// Returns the edits of the running transaction in a range of keys, ascending. None means a deletion.
    pub fn edited_in(&self, range: RangeInclusive<Key>) -> Vec<(Key, Option<Arc<[u8]>>)> {
        self.live().edited_in(range)
    }

    /// Returns whether the running transaction has edited a range of keys.
    pub fn is_edited_in(&self, range: RangeInclusive<Key>) -> bool {
        self.live().is_edited_in(range)
    }

    /// Returns whether all edits in a range of keys are durably committed.
    pub fn is_committed_in(&self, range: &RangeInclusive<Key>) -> bool {
        self.live().is_committed_in(range)
    }

    /// Makes edits by transaction `transid` under one lock. `names` must list all names that change. Returns the growth
    /// of the mutable set in bytes.
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
            // At the first edit: the mutable set is locked from here on.
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

    /// Allocates an object id greater than all in use when the tree was first written to, and than all allocated since.
    ///
    /// The id of a deleted inode is therefore never reused while its items may be cached.
    pub fn next_objectid(&self) -> Result<u64> {
        self.object_ids.take(&self.view)
    }

    /// Notes the highest object id in use. Called before anything is deleted from the tree.
    pub fn note_objectids(&self) -> Result<()> {
        self.object_ids.note(&self.view)
    }

    pub(crate) fn is_committed(&self, committed: u64) -> bool {
        self.dirty_in.load(Ordering::Acquire) <= committed
    }
}
