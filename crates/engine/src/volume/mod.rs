//! An open volume: the public face of the layers.
//!
//! Not here: trees (`roots`), transactions (`transaction`), inodes (`inode`), data (`file`), names (`namespace`).

mod background;
mod lifetime;
mod memory;
mod options;
mod reconfigure;
mod statfs;
mod trees;

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use ubtrfs_device::{BlockDevice, Pool, waiting};
use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::superblock::Superblock;

pub use memory::LEAST_MEMORY_BYTES;
pub use options::OpenOptions;
pub use statfs::StatFs;

use crate::error::{Error, Result};
use crate::file::{CacheStats, DataPath, DecompressedExtents};
use crate::inode::{InodeTable, LookupRefs, OrphanQueue};
use crate::roots::{Roots, backups, check_writable};
use crate::transaction::{Cost, Permit, SpaceReclaim, TransactionManager, Txn, WriterStats};
use statfs::KnownStatFs;

/// An open volume. Shared by threads as `Arc<Volume>`.
#[derive(Debug)]
pub struct Volume {
    pub(crate) roots: Arc<Roots>,
    pub(crate) decompressed: DecompressedExtents,
    pub(crate) data: DataPath,
    pub(crate) inodes: InodeTable,
    pub(crate) lookup_refs: RwLock<Option<Arc<dyn LookupRefs>>>,
    pub(crate) orphan_queue: OrphanQueue,
    /// None on a volume that is only read.
    writer: Option<Arc<TransactionManager>>,
    known_statfs: KnownStatFs,
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
        for backup in backups(&newest) {
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
        if options.writable {
            check_writable(&superblock)?;
        }
        let roots = Arc::new(Roots::open(pool, superblock, &options.roots_options())?);
        let transactions = options.transaction_options();
        let writer = match options.writable {
            true => Some(Arc::new(TransactionManager::open(&roots, &transactions)?)),
            false => None,
        };
        let volume = Volume {
            roots,
            decompressed: DecompressedExtents::new(options.decompressed_bytes),
            data: DataPath::new(options.data),
            inodes: InodeTable::new(options.inode_bytes),
            lookup_refs: RwLock::default(),
            orphan_queue: OrphanQueue::default(),
            writer,
            known_statfs: KnownStatFs::default(),
        };
        let volume = Arc::new(volume);
        if let Some(writer) = &volume.writer {
            let reclaim: Arc<dyn SpaceReclaim> = volume.clone();
            writer.set_reclaim(Arc::downgrade(&reclaim));
            if let Some(interval) = options.commit_interval {
                // Nothing is committed to what cannot be opened.
                let started = volume.start_background(interval);
                started.inspect_err(|_| writer.close())?;
            }
        } else if volume.roots.superblock().log_root.get() != 0 {
            tracing::warn!(
                "the volume has a log tree: showing the state of the last commit, without it"
            );
        }
        Ok(volume)
    }

    /// What writing needs; an error on a volume that was opened for reading.
    pub(crate) fn writer(&self) -> Result<&Arc<TransactionManager>> {
        self.writer.as_ref().ok_or(Error::ReadOnly)
    }

    /// Makes sure of memory and space for an operation (`TransactionManager::admit`).
    pub(crate) fn admit(&self, cost: Cost) -> Result<Permit<'_>> {
        self.writer()?.admit(cost)
    }

    /// Enters the running transaction (`TransactionManager::enter`).
    pub(crate) fn enter<'v>(&'v self, permit: Permit<'v>) -> Result<Txn<'v>> {
        self.writer()?.enter(permit)
    }

    /// What has been written since it was opened; None on a volume that is only read.
    pub fn writer_stats(&self) -> Option<WriterStats> {
        self.writer.as_ref().map(|writer| writer.stats())
    }

    /// How often a decompressed extent was found in memory.
    pub fn decompressed_stats(&self) -> CacheStats {
        self.decompressed.stats()
    }

    /// The subvolume that is mounted if none is named.
    pub fn default_subvolume(&self) -> Result<RootId> {
        let dir = match self.roots.superblock().root_dir_objectid.get() {
            0 => objectid::ROOT_TREE_DIR,
            dir => dir,
        };
        let found = crate::namespace::find_entry(&self.roots.root_tree(), dir, b"default")?;
        Ok(found.map_or(RootId::FS_TREE, |entry| RootId(entry.location.objectid)))
    }
}

impl SpaceReclaim for Volume {
    fn write_back_dirty(&self) -> Result<()> {
        self.write_back_all()
    }

    fn evict_orphans(&self) {
        Volume::evict_orphans(self);
    }

    fn write_lazy_times(&self) -> Result<()> {
        self.write_times()
    }
}

impl Drop for Volume {
    /// Closes it; whoever must know whether that worked calls `close` before.
    fn drop(&mut self) {
        let Some(writer) = self.writer.as_ref() else {
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
