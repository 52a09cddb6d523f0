//! An open volume: its devices, its node cache, and its trees by id.
//!
//! Opening reads the superblocks, the chunk tree and the root tree's root; everything else is read
//! when asked for, so that a volume of any size opens in a few reads.
//!
//! Locks: none held across IO but the caches' per-key waits.

mod options;
mod space;

use std::path::PathBuf;
use std::sync::Arc;

use quick_cache::sync::Cache;
use ubtrfs_device::{BlockDevice, Pool};
use ubtrfs_format::ids::{Logical, RootId, Transid, objectid};
use ubtrfs_format::item::{Chunk, DevItem, RootItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_tree::{CommittedRoot, NodeStore, View};
use zerocopy::FromBytes;

pub use options::OpenOptions;
pub use space::{BlockGroup, StatFs};

use crate::data::DecompressedExtents;
use crate::error::{CorruptItem, Error, Result};

/// A tree by its root item.
#[derive(Debug)]
pub struct Tree {
    pub view: View,
    pub item: RootItem,
}

/// An open volume. Shared by threads as `Arc<Volume>`.
#[derive(Debug)]
pub struct Volume {
    pool: Arc<Pool>,
    store: Arc<NodeStore>,
    trees: Cache<RootId, Arc<Tree>>,
    pub(crate) decompressed: DecompressedExtents,
}

/// How many root items stay decoded; a volume may have far more subvolumes.
const CACHED_TREES: usize = 4096;

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
        let store = Arc::new(NodeStore::new(Arc::clone(&pool), &options.store_options()));
        let volume = Volume {
            pool,
            store,
            trees: Cache::new(CACHED_TREES),
            decompressed: DecompressedExtents::new(options.decompressed_bytes),
        };
        volume.load_chunks()?;
        volume.root_tree().read_root()?;
        if volume.superblock().log_root.get() != 0 {
            tracing::warn!(
                "the volume has a log tree: showing the state of the last commit, without it"
            );
        }
        Ok(Arc::new(volume))
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

    pub fn superblock(&self) -> &Superblock {
        self.pool.superblock()
    }

    /// The device layer: devices, chunk map, read errors seen.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The cache that all trees of the volume are read through.
    pub fn node_store(&self) -> &Arc<NodeStore> {
        &self.store
    }

    pub(crate) fn sectorsize(&self) -> u64 {
        u64::from(self.superblock().sectorsize.get())
    }

    pub fn chunk_tree(&self) -> View {
        let sb = self.superblock();
        self.view(CommittedRoot {
            tree: RootId::CHUNK_TREE,
            bytenr: Logical(sb.chunk_root.get()),
            level: sb.chunk_root_level,
            generation: Some(Transid(sb.chunk_root_generation.get())),
        })
    }

    pub fn root_tree(&self) -> View {
        let sb = self.superblock();
        self.view(CommittedRoot {
            tree: RootId::ROOT_TREE,
            bytenr: Logical(sb.root.get()),
            level: sb.root_level,
            generation: Some(sb.transid()),
        })
    }

    fn view(&self, committed: CommittedRoot) -> View {
        View::new(Arc::clone(&self.store), committed)
    }

    /// A tree that the root tree names, or None.
    pub fn find_tree(&self, id: RootId) -> Result<Option<Arc<Tree>>> {
        if let Some(tree) = self.trees.get(&id) {
            return Ok(Some(tree));
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
        let view = self.view(CommittedRoot {
            tree: id,
            bytenr: item.bytenr(),
            level: item.level,
            generation: Some(item.transid()),
        });
        let tree = Arc::new(Tree { view, item });
        self.trees.insert(id, Arc::clone(&tree));
        Ok(Some(tree))
    }

    /// A tree that must exist.
    pub fn tree(&self, id: RootId) -> Result<Arc<Tree>> {
        self.find_tree(id)?.ok_or(Error::NoSuchTree(id))
    }

    /// The tree of a subvolume that can be entered: one that is not being deleted.
    pub fn subvolume_tree(&self, id: RootId) -> Result<Arc<Tree>> {
        match self.find_tree(id)? {
            Some(tree) if id.is_subvolume() && tree.item.refs.get() > 0 => Ok(tree),
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
