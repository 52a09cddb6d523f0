//! An open volume: the public API of the layers below.
//!
//! Not here: trees (`roots`), transactions (`transaction`), inodes (`inode`), data (`file`), names
//! (`namespace`).

mod attributes;
mod background;
mod clear_log;
mod data;
mod devices;
mod discard;
mod group;
mod lifetime;
mod memory;
mod names;
mod open_file;
mod options;
mod reconfigure;
mod relocate;
mod statfs;
mod subvolumes;
mod trees;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, DeviceName, Pool, nonblocking};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_storage::roots::{Roots, backups, check_writable};
use ubtrfs_storage::{SpaceReclaim, TransactionManager, WriterStats};

pub use clear_log::ClearedLog;
pub use memory::LEAST_MEMORY_BYTES;
pub use open_file::OpenFile;
pub use options::{
    MountWord, ONLY_SPACE_CACHE_V2, OPEN_OPTIONS, OpenOption, OpenOptions, OptionError, OptionKind,
    WordEffect, WordGroup, WordOutcome, WordRefusal, WordRemount, volume_words, word_number,
    word_text,
};
pub use statfs::StatFs;

use crate::error::Result;
use crate::file::{FileSync, Files};
use crate::inode::Inodes;
use crate::log::{self, TreeLog};
use crate::namespace::Namespace;
use crate::subvolume::Subvolumes;
use statfs::KnownStatFs;

/// An open volume, shared between threads as `Arc<Volume>`.
#[derive(Debug)]
pub struct Volume {
    pub(crate) roots: Arc<Roots>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) files: Arc<Files>,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) log: Arc<TreeLog>,
    pub(crate) subvolumes: Subvolumes,
    pub(crate) known_statfs: KnownStatFs,
}

impl Volume {
    /// Opens the volume on the named devices, and on devices found with them.
    pub fn open<D: Clone + Into<DeviceName>>(
        devices: &[D],
        options: &OpenOptions,
    ) -> Result<Arc<Volume>> {
        let pool = Pool::open(devices, &options.pool_options())?;
        Self::from_pool(pool, options)
    }

    /// Opens a volume on devices of the caller, for example in memory.
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
        let options = &options.within_memory();
        if options.is_writable() {
            check_writable(&superblock)?;
        }
        let roots_options = options.roots_options(superblock.has_log());
        let roots = Arc::new(Roots::open(pool, superblock, &roots_options)?);
        roots.load_device_errors()?;
        let manager = if options.is_writable() {
            let manager = Arc::new(TransactionManager::open(&roots, &options.transaction)?);
            manager.refuse_marks()?;
            Some(manager)
        } else {
            None
        };
        let inodes = Arc::new(Inodes::new(
            &roots,
            manager,
            options.inode_bytes,
            &options.data,
        ));
        let rescue = options.data.rescue;
        let files = Arc::new(Files::new(&inodes, rescue, options.decompressed_bytes));
        let namespace = Arc::new(Namespace::new(&files));
        let volume = Volume {
            subvolumes: Subvolumes::new(&namespace),
            log: Arc::new(TreeLog::new(&files, options.fsync_log)),
            known_statfs: KnownStatFs::default(),
            roots,
            inodes,
            files,
            namespace,
        };
        let volume = Arc::new(volume);
        if options.is_writable() {
            let replayed = log::replay(&volume.inodes);
            // The replay may have read the first mark, and failed because of it.
            volume.roots.refuse_marks()?;
            replayed?;
        } else if options.shows_log() {
            log::replay_in_memory(&volume.inodes)?;
        }
        if let Ok(manager) = volume.inodes.transactions() {
            let reclaim: Arc<dyn SpaceReclaim> = Arc::clone(&volume.files) as _;
            manager.set_reclaim(Arc::downgrade(&reclaim));
            let file_sync: Arc<dyn FileSync> = Arc::clone(&volume.log) as _;
            volume.files.set_file_sync(Arc::downgrade(&file_sync));
            if let Some(interval) = options.commit_interval {
                // Start it last: nothing must be committed to a volume that fails to open.
                let started = volume.start_background(interval);
                started.inspect_err(|_| manager.close())?;
            }
        }
        Ok(volume)
    }

    /// Returns the write counters since the volume was opened, or None on a read-only volume.
    pub fn writer_stats(&self) -> Option<WriterStats> {
        self.inodes
            .transactions()
            .ok()
            .map(|manager| manager.stats())
    }
}

impl Drop for Volume {
    /// Closes the volume. Errors are only logged: callers that need them call `close` first.
    fn drop(&mut self) {
        if self.is_drop_in_fork() {
            return;
        }
        let Ok(manager) = self.inodes.transactions() else {
            return;
        };
        manager.stop_background();
        if manager.check_alive().is_ok()
            && let Err(error) = nonblocking::blocking_scope(|| self.close())
        {
            tracing::error!(%error, "the last changes could not be committed");
        }
    }
}
