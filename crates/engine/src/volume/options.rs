//! How a volume is opened.

use std::path::PathBuf;
use std::time::Duration;

use ubtrfs_device::{Access, CopyChoice, PoolOptions};
use ubtrfs_transaction::TransactionOptions;
use ubtrfs_transaction::discard::{DiscardDelays, DiscardLimits, DiscardMode, DiscardOptions};
use ubtrfs_transaction::roots::{Rescue, RootsOptions};
use ubtrfs_tree::StoreOptions;

use crate::inode::{Compress, DataOptions};

/// Options of `Volume::open`; the default suits an image on a quiet machine.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    degraded: bool,
    scan: Vec<PathBuf>,
    pub(super) cache_bytes: u64,
    pub(super) decompressed_bytes: u64,
    /// Budget of the inodes that are not held.
    pub(super) inode_bytes: u64,
    /// Budget of the inode items and of the names that are kept beside the trees, each.
    pub(super) lookup_bytes: u64,
    pub(super) writable: bool,
    pub(super) delta_bytes: u64,
    pub(super) commit_interval: Option<Duration>,
    pub(super) lazy_times: bool,
    pub(super) clear_free_space_tree: bool,
    pub(super) free_space_tree: bool,
    pub(super) acls: bool,
    pub(super) fsync_log: bool,
    pub(super) discard: DiscardOptions,
    pub(super) data: DataOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            degraded: false,
            scan: Vec::new(),
            cache_bytes: 256 << 20,
            decompressed_bytes: 32 << 20,
            inode_bytes: 32 << 20,
            lookup_bytes: 32 << 20,
            writable: false,
            delta_bytes: 128 << 20,
            commit_interval: Some(Duration::from_secs(30)),
            lazy_times: false,
            clear_free_space_tree: false,
            free_space_tree: false,
            acls: true,
            fsync_log: true,
            discard: DiscardOptions {
                at_close: Duration::from_secs(10),
                ..DiscardOptions::default()
            },
            data: DataOptions::default(),
        }
    }
}

impl OpenOptions {
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens although devices are missing, as far as the profiles allow.
    #[must_use]
    pub fn degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }

    /// Folders and devices among which the volume's other devices are looked for.
    #[must_use]
    pub fn scan(mut self, scan: Vec<PathBuf>) -> Self {
        self.scan = scan;
        self
    }

    /// Budget of the cache of tree blocks, in bytes.
    #[must_use]
    pub fn cache_bytes(mut self, cache_bytes: u64) -> Self {
        self.cache_bytes = cache_bytes;
        self
    }

    /// Budget of the cache of decompressed extents, in bytes.
    #[must_use]
    pub fn decompressed_bytes(mut self, decompressed_bytes: u64) -> Self {
        self.decompressed_bytes = decompressed_bytes;
        self
    }

    /// Opens for writing, alone.
    #[must_use]
    pub fn writable(mut self, writable: bool) -> Self {
        self.writable = writable;
        self
    }

    /// Budget of the changes of one transaction in memory, in bytes. Operations wait once a transaction
    /// has used it up while the one before commits.
    #[must_use]
    pub fn delta_bytes(mut self, delta_bytes: u64) -> Self {
        self.delta_bytes = delta_bytes;
        self
    }

    /// How long a change may stay uncommitted; None commits on request and under pressure only, in the
    /// caller's thread.
    #[must_use]
    pub fn commit_interval(mut self, interval: Option<Duration>) -> Self {
        self.commit_interval = interval;
        self
    }

    /// Keeps changes of times alone in memory until the inode changes otherwise or is synced, or for a day. A crash
    /// may lose them.
    #[must_use]
    pub fn lazy_times(mut self, lazy_times: bool) -> Self {
        self.lazy_times = lazy_times;
        self
    }

    /// Distrusts the free-space tree, and makes it anew with the first commit that has room for it. One comes although
    /// nothing else is changed. Only for writing, and without effect on a volume that has no such tree.
    #[must_use]
    pub fn clear_free_space_tree(mut self, clear: bool) -> Self {
        self.clear_free_space_tree = clear;
        self
    }

    /// Gives a volume without a free-space tree one, and drops the caches of free space that it has. The mount option
    /// `space_cache=v2` of the kernel does so as well. Only for writing.
    #[must_use]
    pub fn free_space_tree(mut self, wanted: bool) -> Self {
        self.free_space_tree = wanted;
        self
    }

    /// Whether a sync of a single file or directory writes a log in place of a commit, where the log can say what was
    /// changed. It does if nothing is said.
    #[must_use]
    pub fn fsync_log(mut self, wanted: bool) -> Self {
        self.fsync_log = wanted;
        self
    }

    /// When freed space is discarded. None, as if nothing is said, is `Async` where a device takes discards.
    #[must_use]
    pub fn discard(mut self, mode: Option<DiscardMode>) -> Self {
        self.discard.mode = mode;
        self
    }

    /// How fast the background discards (`Volume::set_discard_limits`).
    #[must_use]
    pub fn discard_limits(mut self, limits: DiscardLimits) -> Self {
        self.discard.limits = limits;
        self
    }

    /// How long freed space waits for the background, in the hope that it is used again.
    #[must_use]
    pub fn discard_delays(mut self, delays: DiscardDelays) -> Self {
        self.discard.delays = delays;
        self
    }

    /// Has the background discard free space of metadata, which it does not if nothing is said.
    #[must_use]
    pub fn discard_metadata(mut self, metadata: bool) -> Self {
        self.discard.metadata = metadata;
        self
    }

    /// For how long closing goes on with what waits for the background, so that the image of a deleted file is small
    /// afterwards. 10 s if nothing is said; at once with zero.
    #[must_use]
    pub fn discard_at_close(mut self, at_most: Duration) -> Self {
        self.discard.at_close = at_most;
        self
    }

    /// Whether POSIX ACLs count. Where they do not, no new file gets one, and those that are stored stay as they are.
    #[must_use]
    pub fn acls(mut self, acls: bool) -> Self {
        self.acls = acls;
        self
    }

    /// How files are compressed that do not say it themselves.
    #[must_use]
    pub fn compress(mut self, compress: Compress) -> Self {
        self.data.compress = compress;
        self
    }

    /// The largest file that is kept in its item, in bytes. It is at most what a leaf has room for, and less than a
    /// sector unless the file is compressed.
    #[must_use]
    pub fn max_inline_bytes(mut self, max_inline_bytes: u64) -> Self {
        self.data.max_inline_bytes = max_inline_bytes;
        self
    }

    /// Has new files overwritten where they lie, without checksums.
    #[must_use]
    pub fn no_data_cow(mut self, no_data_cow: bool) -> Self {
        self.data.no_data_cow = no_data_cow;
        self
    }

    /// Gives new files no checksums.
    #[must_use]
    pub fn no_data_sum(mut self, no_data_sum: bool) -> Self {
        self.data.no_data_sum = no_data_sum;
        self
    }

    /// The faults that a reader of a damaged volume passes over.
    #[must_use]
    pub fn rescue(mut self, rescue: Rescue) -> Self {
        self.data.rescue = rescue;
        self
    }

    /// Has the data of all files written back when one is synced.
    #[must_use]
    pub fn flush_on_commit(mut self, flush_on_commit: bool) -> Self {
        self.data.flush_on_commit = flush_on_commit;
        self
    }

    /// Budget of written data that has no extent yet, in bytes. A write beyond it writes data back first.
    #[must_use]
    pub fn buffer_bytes(mut self, buffer_bytes: u64) -> Self {
        self.data.buffer_bytes = buffer_bytes;
        self
    }

    pub(super) fn pool_options(&self) -> PoolOptions {
        PoolOptions::default()
            .degraded(self.degraded)
            .ignore_super_flags(self.data.rescue.ignore_super_flags && !self.writable)
            .scan(self.scan.clone())
            .superblock_copies(match self.data.rescue.use_backup_root {
                true => CopyChoice::Any,
                false => CopyChoice::First,
            })
            .access(if self.writable {
                Access::Write
            } else {
                Access::Read
            })
    }

    /// Whether a reader sees what the fsync log holds.
    pub(super) fn shows_log(&self) -> bool {
        !self.data.rescue.no_log_replay
    }

    /// `has_log`: whether the volume has an fsync log.
    pub(super) fn roots_options(&self, has_log: bool) -> RootsOptions {
        RootsOptions {
            writable: self.writable,
            edits_trees: self.shows_log() && has_log,
            acls: self.acls,
            new_file_flags: self.data.new_file_flags(),
            lazy_times: self.lazy_times,
            lookup_bytes: self.lookup_bytes,
            store: self.store_options(),
        }
    }

    pub(super) fn transaction_options(&self) -> TransactionOptions {
        TransactionOptions {
            delta_bytes: self.delta_bytes,
            clear_free_space_tree: self.clear_free_space_tree,
            free_space_tree: self.free_space_tree,
            discard: self.discard,
        }
    }

    fn store_options(&self) -> StoreOptions {
        StoreOptions {
            cache_bytes: self.cache_bytes,
            ignore_csums: self.data.rescue.ignore_meta_csums,
            ..StoreOptions::default()
        }
    }
}
