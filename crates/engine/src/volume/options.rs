//! How a volume is opened.

use std::path::PathBuf;
use std::time::Duration;

use ubtrfs_device::{Access, CopyChoice, PoolOptions};
use ubtrfs_transaction::TransactionOptions;
use ubtrfs_transaction::discard::{DiscardDelays, DiscardLimits, DiscardMode, DiscardOptions};
use ubtrfs_transaction::roots::{Rescue, RootsOptions};
use ubtrfs_tree::StoreOptions;

use crate::inode::{Compress, DataOptions};

/// Calls a macro with the options that [`OpenOptions`] and the builder of the library have alike, so that each stands once.
/// An option is its documentation, its name and argument, and how it is noted.
#[doc(hidden)]
#[macro_export]
macro_rules! with_open_options {
    ($define:ident) => {
        $define! {
            /// Opens although devices are missing, as far as the profiles allow.
            degraded(degraded: bool) => |options| options.degraded = degraded;

            /// Sets the places where the volume's other devices are searched: files, folders (for what is directly in
            /// them) or `/dev` (for all block devices). Without it only the devices that are named are opened.
            scan(places: impl IntoIterator<Item = impl Into<::std::path::PathBuf>>) => |options|
                options.scan = places.into_iter().map(Into::into).collect();

            /// Sets the budget of the cache of tree blocks, in bytes.
            cache_bytes(bytes: u64) => |options| options.cache_bytes = bytes;

            /// Sets the budget of the cache of decompressed extents, in bytes.
            decompressed_bytes(bytes: u64) => |options| options.decompressed_bytes = bytes;

            /// Sets the budget of the changes of one transaction in memory, in bytes. Operations wait once a
            /// transaction has used it up while the one before commits.
            delta_bytes(bytes: u64) => |options| options.delta_bytes = bytes;

            /// Sets the budget of written data that has no extent yet, in bytes. A write beyond it writes data back
            /// first.
            buffer_bytes(bytes: u64) => |options| options.data.buffer_bytes = bytes;

            /// Lowers all caches and budgets to their shares of so much memory. Call it after those that set them.
            limit_memory(bytes: u64) => |options| options.lower_budgets(bytes);

            /// Sets how long a change may stay uncommitted. None commits on request and under pressure of memory only,
            /// in the thread of the caller.
            commit_interval(interval: Option<::std::time::Duration>) => |options|
                options.commit_interval = interval;

            /// Keeps changes of times alone in memory until the file changes otherwise or is synced, or for a day. A crash
            /// may lose them.
            lazy_times(lazy_times: bool) => |options| options.lazy_times = lazy_times;

            /// Has the sync of a single file or directory write a log in place of a commit, where the log can say what was
            /// changed. That is the default.
            fsync_log(wanted: bool) => |options| options.fsync_log = wanted;

            /// Has the data of all files written back when one is synced.
            flush_on_commit(flush_on_commit: bool) => |options|
                options.data.flush_on_commit = flush_on_commit;

            /// Distrusts the free-space tree, and makes it anew with the first commit that has room for it. One comes
            /// although nothing else is changed. Only for writing, and without effect on a volume that has no such tree.
            clear_free_space_tree(clear: bool) => |options| options.clear_free_space_tree = clear;

            /// Gives a volume without a free-space tree one, and drops the caches of free space that it has. The mount
            /// option `space_cache=v2` of the kernel does so as well. Only for writing.
            free_space_tree(wanted: bool) => |options| options.free_space_tree = wanted;

            /// Has POSIX ACLs count, which is the default. Where they do not, no new file gets one, and those that are
            /// stored stay as they are.
            acls(acls: bool) => |options| options.acls = acls;

            /// Sets how files are compressed that do not say it themselves, by a flag or a property. The default is not
            /// to compress.
            compress(compress: $crate::Compress) => |options| options.data.compress = compress;

            /// Sets the size of the largest file that is kept in its item, in bytes. The default is 2048, and 0 keeps
            /// no file so. The size is limited to the room in a leaf, and to less than a sector unless the file is
            /// compressed.
            max_inline_bytes(bytes: u64) => |options| options.data.max_inline_bytes = bytes;

            /// Has new files overwritten in place, as `-o nodatacow`: without checksums, and without compression.
            no_data_cow(no_data_cow: bool) => |options| options.data.no_data_cow = no_data_cow;

            /// Gives new files no checksums, as `-o nodatasum`: what a device then returns is taken for true.
            no_data_sum(no_data_sum: bool) => |options| options.data.no_data_sum = no_data_sum;
        }
    };
}

/// Methods of [`OpenOptions`] that note options.
macro_rules! setters {
    ($($(#[$attr:meta])* $name:ident($arg:ident: $ty:ty) => |$options:ident| $set:expr;)*) => {$(
        $(#[$attr])*
        #[must_use]
        pub fn $name(mut self, $arg: $ty) -> Self {
            let $options = &mut self;
            $set;
            self
        }
    )*};
}

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
    with_open_options! { setters }

    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the compression of files that do not say it themselves.
    pub fn default_compression(&self) -> Compress {
        self.data.compress
    }

    /// Opens for writing, alone.
    #[must_use]
    pub fn writable(mut self, writable: bool) -> Self {
        self.writable = writable;
        self
    }

    /// Sets when freed space is discarded. None, which is the default, is `Async` where a device takes discards.
    #[must_use]
    pub fn discard(mut self, mode: Option<DiscardMode>) -> Self {
        self.discard.mode = mode;
        self
    }

    /// Sets how fast the background discards (`Volume::set_discard_limits`).
    #[must_use]
    pub fn discard_limits(mut self, limits: DiscardLimits) -> Self {
        self.discard.limits = limits;
        self
    }

    /// Sets how long freed space waits for the background, in the hope that it is used again.
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

    /// Sets for how long closing goes on with discards that wait for the background, so that the image of a deleted
    /// file is small afterwards. The default is 10 s. Zero ends them at once.
    #[must_use]
    pub fn discard_at_close(mut self, at_most: Duration) -> Self {
        self.discard.at_close = at_most;
        self
    }

    /// Sets the faults that a reader of a damaged volume passes over.
    #[must_use]
    pub fn rescue(mut self, rescue: Rescue) -> Self {
        self.data.rescue = rescue;
        self
    }

    pub(super) fn pool_options(&self) -> PoolOptions {
        PoolOptions::default()
            .degraded(self.degraded)
            .ignore_truncation(self.data.rescue.ignore_bad_roots)
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

    /// Returns whether a reader sees what the fsync log holds.
    pub(super) fn shows_log(&self) -> bool {
        !self.data.rescue.no_log_replay
    }

    /// Returns the options of the trees. `has_log` says whether the volume has an fsync log.
    pub(super) fn roots_options(&self, has_log: bool) -> RootsOptions {
        RootsOptions {
            writable: self.writable,
            edits_trees: self.shows_log() && has_log,
            acls: self.acls,
            new_file_flags: self.data.new_file_flags(),
            lazy_times: self.lazy_times,
            ignore_bad_top_trees: self.data.rescue.ignore_bad_top_trees && !self.writable,
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
