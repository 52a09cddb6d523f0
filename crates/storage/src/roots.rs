//! The roots of a volume: its devices, its node cache, its superblock, and its trees by id.
//!
//! Opening reads the superblocks, the chunk tree and the root of the root tree. Everything else is read on demand, so a
//! volume of any size opens in a few reads.
//!
//! Locks: none held across IO but the caches' per-key waits.
//! Not here: transactions, and the meaning of subvolume items.

mod block_groups;
pub mod blocks;
mod device_errors;
mod inode_items;
mod lazy_times;
mod log_journal;
mod mapping;
mod names;
mod rescue;
mod subvolumes;
mod tree;
mod tree_source;
mod tree_table;
mod writable;

#[cfg(test)]
pub(crate) mod test_roots;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use ubtrfs_device::{OpeningProcess, Pool};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::{Chunk, DevItem, InodeFlags, RootItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_tree::{BlockFormat, CommittedRoot, LiveTree, NodeStore, StoreOptions, View};
use zerocopy::{FromBytes, FromZeros};

pub use block_groups::BlockGroupRecord;
pub(crate) use device_errors::device_errors_key;
use inode_items::InodeItemCache;
pub use inode_items::{ItemChange, Ticket, is_inode_item};
pub use lazy_times::{LONGEST, LazyTimes};
pub use log_journal::LogJournal;
use names::NameCache;
pub use names::{Name, NameChanges};
pub use rescue::Rescue;
pub use rescue::backups;
pub use subvolumes::SubvolumePlace;
pub use subvolumes::inode_of;
use tree::TreeUse;
pub use tree::{KeptReadOnly, Tree};
pub use tree_source::{CommittedState, TreeSource};
pub(crate) use tree_source::{find_root_item, recorded_root};
pub use tree_table::TreeRef;
use tree_table::TreeTable;
pub use writable::check_writable;

use crate::error::{CorruptItem, Error, Result};
use crate::file_id::FileId;

/// Options for opening the roots of a volume.
#[derive(Debug)]
pub struct RootsOptions {
    /// Whether transactions edit trees.
    pub writable: bool,
    /// Whether trees can be edited. The edits of a read-only volume stay in memory.
    pub edits_trees: bool,
    /// Whether POSIX ACLs are enforced.
    pub acls: bool,
    /// Initial flags of new regular files.
    pub new_file_flags: InodeFlags,
    pub lazy_times: bool,
    /// Whether the chunk tree and the root tree may be unreadable.
    pub ignore_bad_top_trees: bool,
    /// Memory budget of the inode item cache, and again of the name cache.
    pub lookup_bytes: u64,
    pub store: StoreOptions,
}

/// The trees of an open volume. Shared as `Arc<Roots>`.
#[derive(Debug)]
pub struct Roots {
    pool: Arc<Pool>,
    store: Arc<NodeStore>,
    /// The superblock of the last commit.
    superblock: ArcSwap<Superblock>,
    chunk_tree: Arc<Tree>,
    root_tree: Arc<Tree>,
    trees: TreeTable,
    /// Stored in the headers of new blocks.
    chunk_tree_uuid: Uuid,
    /// Copies of superblock fields that never change.
    sectorsize: u64,
    csum_bytes: u64,
    tree_use: TreeUse,
    process: OpeningProcess,
}

impl Roots {
    /// Opens the trees of `superblock`.
    pub fn open(pool: &Arc<Pool>, superblock: Superblock, options: &RootsOptions) -> Result<Roots> {
        let pool = Arc::clone(pool);
        let store = Arc::new(NodeStore::new(Arc::clone(&pool), &options.store));
        let tree_use = TreeUse {
            writable: options.writable,
            edited: options.writable || options.edits_trees,
            acls: options.acls,
            new_file_flags: Arc::new(options.new_file_flags.bits().into()),
            inode_items: Arc::new(InodeItemCache::new(options.lookup_bytes)),
            names: Arc::new(NameCache::new(options.lookup_bytes)),
            sharing: Arc::default(),
        };
        tree_use.inode_items.lazy.set_wanted(options.lazy_times);
        let tree = |committed| Arc::new(open_tree(&store, committed, &tree_use, 0, None));
        let mut roots = Roots {
            chunk_tree: tree(chunk_root(&superblock)),
            root_tree: tree(tree_root(&superblock)),
            superblock: ArcSwap::from_pointee(superblock),
            trees: TreeTable::default(),
            chunk_tree_uuid: Uuid::default(),
            sectorsize: u64::from(pool.superblock().sectorsize.get()),
            csum_bytes: pool.superblock().csum_type().size_bytes() as u64,
            tree_use,
            pool,
            store,
            process: OpeningProcess::this(),
        };
        let passes_over = |error: Error| {
            if !options.ignore_bad_top_trees {
                return Err(error);
            }
            tracing::warn!(%error, "going on without it");
            Ok(())
        };
        roots.load_chunks().or_else(passes_over)?;
        match roots.root_tree().read_root() {
            Ok(root) => roots.chunk_tree_uuid = root.node().header().chunk_tree_uuid,
            Err(error) => passes_over(error.into())?,
        }
        Ok(roots)
    }

    pub fn is_writable(&self) -> bool {
        self.tree_use.writable
    }

    /// Returns whether this process is a fork of the one that opened the volume, so that a drop must not change
    /// anything.
    pub fn is_drop_in_fork(&self) -> bool {
        self.process.is_left_by_pid()
    }

    /// Checks that this process opened the volume.
    ///
    /// Errors: this process is a fork of the one that did.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.process.is_left() {
            Err(Error::Forked)
        } else {
            Ok(())
        }
    }

    /// Sets the flags that the options of the volume add to new regular files.
    pub fn set_new_file_flags(&self, flags: InodeFlags) {
        self.tree_use
            .new_file_flags
            .store(flags.bits(), Ordering::Relaxed);
    }

    /// Returns a flag that is set if any tree in memory may share blocks with a snapshot.
    pub(crate) fn sharing(&self) -> &Arc<AtomicBool> {
        &self.tree_use.sharing
    }

    /// Returns whether POSIX ACLs are enforced (an option of the volume).
    pub fn counts_acls(&self) -> bool {
        self.tree_use.acls
    }

    /// Loads the chunk tree into the device layer, then checks that enough devices are present.
    fn load_chunks(&self) -> Result<()> {
        let view = self.chunk_tree();
        let corrupt = |key| Error::Corrupt {
            tree: RootId::CHUNK_TREE,
            key,
            what: CorruptItem::Undecodable,
        };
        let mut cursor = view.cursor().sequential();
        let mut more = cursor.seek(&Key::MIN)?;
        while more {
            if let Some((key, bytes)) = cursor.current() {
                match key.item_type {
                    KeyType::DEV_ITEM => {
                        let (item, _) =
                            DevItem::ref_from_prefix(bytes).map_err(|_| corrupt(key))?;
                        self.pool.add_dev_item(item)?;
                    }
                    KeyType::CHUNK_ITEM => {
                        let (chunk, stripes, _) =
                            Chunk::split(bytes).ok_or_else(|| corrupt(key))?;
                        self.pool.add_chunk(Logical(key.offset), chunk, stripes)?;
                    }
                    _ => {}
                }
            }
            more = cursor.advance()?;
        }
        self.store.adopt_seeds();
        Ok(self.pool.check_devices()?)
    }

    /// Returns the superblock as of the last commit.
    #[inline]
    pub fn superblock(&self) -> Arc<Superblock> {
        self.superblock.load_full()
    }

    /// Returns the times that are not in their items yet.
    #[inline]
    pub fn lazy_times(&self) -> &Arc<LazyTimes> {
        &self.tree_use.inode_items.lazy
    }

    /// Returns the device layer.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn chunk_tree_uuid(&self) -> Uuid {
        self.chunk_tree_uuid
    }

    /// Returns the node cache of the volume.
    pub fn node_store(&self) -> &Arc<NodeStore> {
        &self.store
    }

    /// Returns whether files may have holes without an extent item.
    #[inline]
    pub fn has_no_holes(&self) -> bool {
        self.superblock().incompat().contains(Incompat::NO_HOLES)
    }

    pub fn sectorsize(&self) -> u64 {
        self.sectorsize
    }

    /// Returns the number of bytes of one checksum.
    pub fn csum_bytes(&self) -> u64 {
        self.csum_bytes
    }

    pub fn chunk_tree(&self) -> View {
        self.chunk_tree.view.clone()
    }

    pub fn root_tree(&self) -> View {
        self.root_tree.view.clone()
    }

    /// Returns the root tree, for edits.
    pub fn root_tree_object(&self) -> &Arc<Tree> {
        &self.root_tree
    }

    /// Returns a tree listed in the root tree, or None.
    pub fn find_tree(&self, id: RootId) -> Result<Option<Arc<Tree>>> {
        self.check_process()?;
        if let Some(tree) = self.trees.get(id) {
            return Ok(Some(Arc::clone(&tree)));
        }
        loop {
            let root_tree = self.root_tree.view.committed();
            let Some((key, item)) = find_root_item(&self.root_tree(), id)? else {
                return Ok(None);
            };
            let root = recorded_root(id, &item);
            let tree = open_tree(&self.store, root, &self.tree_use, key.offset, Some(item));
            let committed = self.superblock().transid().0;
            let is_current = || self.root_tree.view.committed() == root_tree;
            // Otherwise a commit has published another root item in the meantime.
            if let Some(tree) = self.trees.get_or_insert(tree, committed, is_current) {
                return Ok(Some(tree));
            }
        }
    }

    /// Returns a tree if it is in memory.
    pub fn known_tree(&self, id: RootId) -> Option<TreeRef> {
        self.trees.get(id)
    }

    /// Removes a tree from memory. The next `find_tree` reads its root item again.
    pub(crate) fn forget_tree(&self, id: RootId) {
        self.trees.remove(id);
    }

    pub(crate) fn publish_superblock(&self, superblock: Superblock) {
        self.superblock.store(Arc::new(superblock));
    }

    /// Returns a tree that must exist.
    pub fn tree(&self, id: RootId) -> Result<Arc<Tree>> {
        self.find_tree(id)?.ok_or(Error::NoSuchTree(id))
    }

    /// Returns the deleted subvolumes that must not be freed yet (TREE-3).
    pub(crate) fn subvolumes_in_use(&self) -> Vec<RootId> {
        self.trees.kept()
    }

    /// Returns the tree of an inode. Inlined, because most calls begin with it and usually find the tree in memory.
    #[inline]
    pub fn tree_of(&self, id: FileId) -> Result<TreeRef> {
        self.check_process()?;
        let tree = match self.trees.get(id.root) {
            Some(tree) => tree,
            None => self.find_tree_of(id)?,
        };
        if id.root.is_subvolume() && tree.check_alive().is_ok() {
            Ok(tree)
        } else {
            Err(Error::NoSuchSubvolume(id.root))
        }
    }

    #[cold]
    fn find_tree_of(&self, id: FileId) -> Result<TreeRef> {
        let tree = self.find_tree(id.root)?;
        tree.map(TreeRef::from)
            .ok_or(Error::NoSuchSubvolume(id.root))
    }

    /// Returns the tree of a subvolume that has not been deleted.
    pub fn subvolume_tree(&self, id: RootId) -> Result<Arc<Tree>> {
        match self.find_tree(id)? {
            Some(tree) if id.is_subvolume() && !tree.is_deleted() => Ok(tree),
            _ => Err(Error::NoSuchSubvolume(id)),
        }
    }

    /// Returns a tree for the commit, including those that the superblock names.
    pub fn tree_for_commit(&self, id: RootId) -> Result<Arc<Tree>> {
        match id {
            RootId::ROOT_TREE => Ok(Arc::clone(&self.root_tree)),
            RootId::CHUNK_TREE => Ok(Arc::clone(&self.chunk_tree)),
            _ => self.tree(id),
        }
    }

    /// Adds a tree that a commit has just built and that has no root item yet.
    pub(crate) fn adopt_tree(&self, root: CommittedRoot, item: RootItem) -> Arc<Tree> {
        let tree = open_tree(&self.store, root, &self.tree_use, 0, Some(item));
        let tree = self.trees.get_or_insert(tree, u64::MAX, || true);
        tree.expect("always current")
    }

    /// Returns the properties common to all blocks of a transaction.
    pub(crate) fn block_format(&self, generation: Transid) -> BlockFormat {
        let superblock = self.superblock();
        BlockFormat {
            nodesize: superblock.nodesize.get() as usize,
            fsid: *superblock.metadata_fsid(),
            chunk_tree_uuid: self.chunk_tree_uuid,
            generation,
        }
    }
}

fn chunk_root(sb: &Superblock) -> CommittedRoot {
    CommittedRoot {
        tree: RootId::CHUNK_TREE,
        bytenr: Logical(sb.chunk_root.get()),
        level: sb.chunk_root_level,
        generation: Some(Transid(sb.chunk_root_generation.get())),
    }
}

fn tree_root(sb: &Superblock) -> CommittedRoot {
    CommittedRoot {
        tree: RootId::ROOT_TREE,
        bytenr: Logical(sb.root.get()),
        level: sb.root_level,
        generation: Some(sb.transid()),
    }
}

/// Creates the tree of a committed root. `item` is None for the trees that the superblock names.
fn open_tree(
    store: &Arc<NodeStore>,
    root: CommittedRoot,
    tree_use: &TreeUse,
    key_offset: u64,
    item: Option<RootItem>,
) -> Tree {
    let live = tree_use
        .edited
        .then(|| LiveTree::new(Arc::clone(store), root));
    let view = match &live {
        Some(live) => live.view(),
        None => View::new(Arc::clone(store), root),
    };
    Tree::new(
        view,
        live,
        key_offset,
        item.unwrap_or_else(RootItem::new_zeroed),
        tree_use,
    )
}
