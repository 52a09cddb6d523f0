//! An open volume: its devices, its node cache, and its trees by id.
//!
//! Opening reads the superblocks, the chunk tree and the root tree's root; everything else is read
//! when asked for, so that a volume of any size opens in a few reads.
//!
//! Locks: none held across IO but the caches' per-key waits.

mod inode_items;
mod lazy_times;
mod mapping;
mod memory;
mod names;
mod options;
mod reconfigure;
mod rescue;
mod space;
mod tree;
mod writable;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::RwLock;
use ubtrfs_device::{BlockDevice, Pool, waiting};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{Logical, RootId, Transid, objectid};
use ubtrfs_format::item::{Chunk, DevItem, RootItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_tree::{CommittedRoot, LiveTree, NodeStore, View};
use zerocopy::{FromBytes, FromZeros};

use inode_items::InodeItems;
pub(crate) use inode_items::{ItemChange, is_inode_item};
pub(crate) use lazy_times::{LONGEST, LazyTimes};
pub use memory::LEAST_MEMORY_BYTES;
use names::Names;
pub(crate) use names::{Name, NameChanges};
pub use options::OpenOptions;
pub use rescue::Rescue;
pub use space::{BlockGroup, StatFs};
pub use tree::Tree;
pub(crate) use tree::TreeRef;
pub(crate) use writable::now;

use crate::data::{CacheStats, DataPath, DecompressedExtents};
use crate::error::{CorruptItem, Error, Result};
use crate::file_id::FileId;
use crate::fs::{InodeTable, LookupRefs, OrphanQueue};
use crate::txn::{Writer, WriterStats};
use tree::{TreeTable, TreeUse};
use writable::check_writable;

/// An open volume. Shared by threads as `Arc<Volume>`.
#[derive(Debug)]
pub struct Volume {
    pool: Arc<Pool>,
    store: Arc<NodeStore>,
    /// As of the last commit.
    superblock: ArcSwap<Superblock>,
    chunk_tree: Arc<Tree>,
    root_tree: Arc<Tree>,
    trees: TreeTable,
    pub(crate) decompressed: DecompressedExtents,
    pub(crate) data: DataPath,
    pub(crate) inodes: InodeTable,
    pub(crate) lookup_refs: RwLock<Option<Arc<dyn LookupRefs>>>,
    pub(crate) orphan_queue: OrphanQueue,
    /// None on a volume that is only read.
    writer: OnceLock<Arc<Writer>>,
    /// What headers of new blocks carry.
    chunk_tree_uuid: OnceLock<Uuid>,
    /// These two of the superblock never change.
    sectorsize: u64,
    csum_bytes: u64,
    tree_use: TreeUse,
    known_statfs: space::KnownStatFs,
}

impl Volume {
    /// Opens the volume that `paths` (or the devices found with them) hold.
    pub fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Arc<Volume>> {
        let pool = Pool::open(paths, &options.pool_options())?;
        Self::from_pool(pool, options)
    }

    /// Opens a volume on devices of the caller's own, as in memory.
    pub fn from_devices(
        devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
        options: &OpenOptions,
    ) -> Result<Arc<Volume>> {
        let pool = Pool::from_devices(devices, &options.pool_options())?;
        Self::from_pool(pool, options)
    }

    fn from_pool(pool: Pool, options: &OpenOptions) -> Result<Arc<Volume>> {
        let pool = Arc::new(pool);
        let newest = pool.superblock().clone();
        let mut opened = Self::with_roots_of(&pool, newest.clone(), options);
        if !options.data.rescue.use_backup_root {
            return opened;
        }
        for backup in rescue::backups(&newest) {
            let Err(error) = &opened else {
                break;
            };
            let generation = backup.generation.get();
            tracing::warn!(%error, generation, "trying the roots of an earlier transaction");
            pool.forget_chunk_tree()?;
            opened = Self::with_roots_of(&pool, backup, options);
        }
        opened
    }

    fn with_roots_of(
        pool: &Arc<Pool>,
        superblock: Superblock,
        options: &OpenOptions,
    ) -> Result<Arc<Volume>> {
        let pool = Arc::clone(pool);
        let store = Arc::new(NodeStore::new(Arc::clone(&pool), &options.store_options()));
        if options.writable {
            check_writable(&superblock)?;
        }
        let tree_use = TreeUse {
            writable: options.writable,
            acls: options.acls,
            new_file_flags: Arc::new(options.data.new_file_flags().bits().into()),
            inode_items: Arc::new(InodeItems::new(options.lookup_bytes)),
            names: Arc::new(Names::new(options.lookup_bytes)),
            sharing: Arc::default(),
        };
        tree_use.inode_items.lazy.set_wanted(options.lazy_times);
        let tree = |committed| Arc::new(open_tree(&store, committed, &tree_use, 0, None));
        let volume = Volume {
            chunk_tree: tree(chunk_root(&superblock)),
            root_tree: tree(tree_root(&superblock)),
            superblock: ArcSwap::from_pointee(superblock),
            trees: TreeTable::default(),
            decompressed: DecompressedExtents::new(options.decompressed_bytes),
            data: DataPath::new(options.data),
            inodes: InodeTable::new(options.inode_bytes),
            lookup_refs: RwLock::default(),
            orphan_queue: OrphanQueue::default(),
            writer: OnceLock::new(),
            chunk_tree_uuid: OnceLock::new(),
            sectorsize: u64::from(pool.superblock().sectorsize.get()),
            csum_bytes: pool.superblock().csum_type().size_bytes() as u64,
            tree_use,
            known_statfs: space::KnownStatFs::default(),
            pool,
            store,
        };
        volume.load_chunks()?;
        volume.root_tree().read_root()?;
        let volume = Arc::new(volume);
        if options.writable {
            volume.make_writable(options).inspect_err(|_| {
                // Nothing is committed to what cannot be opened: other roots may be tried, whose blocks that may overwrite.
                if let Some(writer) = volume.writer.get() {
                    writer.close();
                }
            })?;
        } else if volume.superblock().log_root.get() != 0 {
            tracing::warn!(
                "the volume has a log tree: showing the state of the last commit, without it"
            );
        }
        Ok(volume)
    }

    /// Whether POSIX ACLs count: an option of the volume.
    pub fn counts_acls(&self) -> bool {
        self.tree_use.acls
    }

    /// Feeds the chunk tree to the device layer, then asks whether all of it can be read.
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

    /// The superblock as of the last commit.
    pub fn superblock(&self) -> Arc<Superblock> {
        self.superblock.load_full()
    }

    /// What writing needs; an error on a volume that was opened for reading.
    pub(crate) fn writer(&self) -> Result<&Arc<Writer>> {
        self.writer.get().ok_or(Error::ReadOnly)
    }

    /// What has been written since it was opened; None on a volume that is only read.
    pub fn writer_stats(&self) -> Option<WriterStats> {
        self.writer.get().map(|writer| writer.stats())
    }

    /// How often a decompressed extent was found in memory.
    pub fn decompressed_stats(&self) -> CacheStats {
        self.decompressed.stats()
    }

    pub fn is_writable(&self) -> bool {
        self.tree_use.writable
    }

    /// Times that are in no item yet.
    pub(crate) fn lazy_times(&self) -> &LazyTimes {
        &self.tree_use.inode_items.lazy
    }

    /// The device layer: devices, chunk map, read errors seen.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The cache that all trees of the volume are read through.
    pub fn node_store(&self) -> &Arc<NodeStore> {
        &self.store
    }

    /// Whether files may have holes that no item tells of.
    pub(crate) fn has_no_holes(&self) -> bool {
        self.superblock().incompat().contains(Incompat::NO_HOLES)
    }

    pub(crate) fn sectorsize(&self) -> u64 {
        self.sectorsize
    }

    /// Bytes of one checksum.
    pub(crate) fn csum_bytes(&self) -> u64 {
        self.csum_bytes
    }

    pub fn chunk_tree(&self) -> View {
        self.chunk_tree.view.clone()
    }

    pub fn root_tree(&self) -> View {
        self.root_tree.view.clone()
    }

    /// The root tree for edits.
    pub(crate) fn root_tree_object(&self) -> &Arc<Tree> {
        &self.root_tree
    }

    /// A tree that the root tree names, or None.
    pub fn find_tree(&self, id: RootId) -> Result<Option<Arc<Tree>>> {
        if let Some(tree) = self.trees.get(id) {
            return Ok(Some(Arc::clone(&tree)));
        }
        let root_tree = self.root_tree();
        let mut cursor = root_tree.cursor();
        // A snapshot's root item has the transaction that made it as key offset; there is only one.
        if !cursor.seek_floor(&Key::new(id.0, KeyType::ROOT_ITEM, u64::MAX))? {
            return Ok(None);
        }
        let Some((key, bytes)) = cursor.current() else {
            return Ok(None);
        };
        if (key.objectid, key.item_type) != (id.0, KeyType::ROOT_ITEM) {
            return Ok(None);
        }
        let item = RootItem::decode(bytes).ok_or(Error::Corrupt {
            tree: RootId::ROOT_TREE,
            key,
            what: CorruptItem::Undecodable,
        })?;
        let root = CommittedRoot {
            tree: id,
            bytenr: item.bytenr(),
            level: item.level,
            generation: Some(item.transid()),
        };
        let tree = open_tree(&self.store, root, &self.tree_use, key.offset, Some(item));
        let committed = self.writer.get().map_or(u64::MAX, |w| w.committed().0);
        Ok(Some(self.trees.get_or_insert(tree, committed)))
    }

    /// A tree that is in memory.
    pub(crate) fn known_tree(&self, id: RootId) -> Option<TreeRef> {
        self.trees.get(id)
    }

    /// Has `find_tree` know a tree that the commit has just made, or know it anew.
    pub(crate) fn forget_tree(&self, id: RootId) {
        self.trees.remove(id);
    }

    pub(crate) fn publish_superblock(&self, superblock: Superblock) {
        self.superblock.store(Arc::new(superblock));
    }

    /// A tree that must exist.
    pub fn tree(&self, id: RootId) -> Result<Arc<Tree>> {
        self.find_tree(id)?.ok_or(Error::NoSuchTree(id))
    }

    /// The deleted subvolumes that are not to be freed yet (TREE-3).
    pub(crate) fn kept_subvolumes(&self) -> Vec<RootId> {
        self.trees.kept()
    }

    /// The tree that an inode is in. Most calls ask for it: what they do with one that is at hand is to become one piece
    /// of code with this.
    #[inline]
    pub(crate) fn tree_of(&self, id: FileId) -> Result<TreeRef> {
        let tree = match self.trees.get(id.root) {
            Some(tree) => tree,
            None => self.find_tree_of(id)?,
        };
        match id.root.is_subvolume() && tree.check_alive().is_ok() {
            true => Ok(tree),
            false => Err(Error::NoSuchSubvolume(id.root)),
        }
    }

    #[cold]
    fn find_tree_of(&self, id: FileId) -> Result<TreeRef> {
        let tree = self.find_tree(id.root)?;
        tree.map(TreeRef::from)
            .ok_or(Error::NoSuchSubvolume(id.root))
    }

    /// The tree of a subvolume that can be entered: one that has not been deleted.
    pub fn subvolume_tree(&self, id: RootId) -> Result<Arc<Tree>> {
        match self.find_tree(id)? {
            Some(tree) if id.is_subvolume() && !tree.is_deleted() => Ok(tree),
            _ => Err(Error::NoSuchSubvolume(id)),
        }
    }

    /// The subvolume that is mounted if none is named.
    pub fn default_subvolume(&self) -> Result<RootId> {
        let dir = match self.superblock().root_dir_objectid.get() {
            0 => objectid::ROOT_TREE_DIR,
            dir => dir,
        };
        let found = crate::fs::find_entry(&self.root_tree(), dir, b"default")?;
        Ok(found.map_or(RootId::FS_TREE, |entry| RootId(entry.location.objectid)))
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

/// `item` is None for the trees that the superblock names.
fn open_tree(
    store: &Arc<NodeStore>,
    root: CommittedRoot,
    tree_use: &TreeUse,
    key_offset: u64,
    item: Option<RootItem>,
) -> Tree {
    let live = tree_use
        .writable
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

impl Drop for Volume {
    /// Closes it; whoever must know whether that worked calls `close` before.
    fn drop(&mut self) {
        let Some(writer) = self.writer.get() else {
            return;
        };
        writer.stop_background();
        if writer.check_alive().is_ok()
            && let Err(error) = waiting::while_allowed(|| self.close())
        {
            tracing::error!(%error, "the last changes could not be committed");
        }
    }
}
