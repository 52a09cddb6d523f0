//! Options for opening a volume.

use std::path::PathBuf;
use std::time::Duration;

use ubtrfs_device::{Access, CopyChoice, PoolOptions};
use ubtrfs_storage::TransactionOptions;
use ubtrfs_storage::discard::{DiscardDelays, DiscardLimits, DiscardMode, DiscardOptions};
use ubtrfs_storage::roots::{Rescue, RootsOptions};
use ubtrfs_tree::StoreOptions;

use crate::inode::{Compress, DataOptions};

/// Calls a macro with the options that [`OpenOptions`] and the builder of the library share, so that each is
/// written once. An option consists of its documentation, its name and argument, and the expression that sets
/// it.
#[doc(hidden)]
#[macro_export]
macro_rules! with_open_options {
    ($define:ident) => {
        $define! {
            /// Opens the volume although devices are missing, as far as the profiles allow.
            degraded(degraded: bool) => |options| options.degraded = degraded;

            /// Sets the places to search for the volume's other devices: files, folders (for the files
            /// directly in them) or `/dev` (for all block devices). By default only the named devices are
            /// opened.
            scan(places: impl IntoIterator<Item = impl Into<::std::path::PathBuf>>) => |options|
                options.scan = places.into_iter().map(Into::into).collect();

            /// Sets the budget of the cache of tree blocks, in bytes.
            cache_bytes(bytes: u64) => |options| options.cache_bytes = bytes;

            /// Sets the budget of the cache of decompressed extents, in bytes.
            decompressed_bytes(bytes: u64) => |options| options.decompressed_bytes = bytes;

            /// Sets the memory budget for the changes of one transaction, in bytes. Operations wait if a
            /// transaction uses it up while the previous one is being committed.
            delta_bytes(bytes: u64) => |options| options.delta_bytes = bytes;

            /// Sets the budget for buffered data, in bytes. A write beyond it first writes data back.
            buffer_bytes(bytes: u64) => |options| options.data.buffer_bytes = bytes;

            /// Lowers all caches and budgets to their shares of `bytes` of memory. Call it after setting
            /// them.
            limit_memory(bytes: u64) => |options| options.lower_budgets(bytes);

            /// Sets the longest time that a change stays uncommitted. With None, the caller's thread commits,
            /// only on request and under memory pressure.
            commit_interval(interval: Option<::std::time::Duration>) => |options|
                options.commit_interval = interval;

            /// Keeps pure time changes in memory until the file changes otherwise or is synced, for at most a
            /// day. A crash may lose them.
            lazy_times(lazy_times: bool) => |options| options.lazy_times = lazy_times;

            /// Writes a log in place of a commit to sync a single file or directory, if the log can represent
            /// the changes. The default is on.
            fsync_log(wanted: bool) => |options| options.fsync_log = wanted;

            /// Writes back the data of all files when one file is synced.
            flush_on_commit(flush_on_commit: bool) => |options|
                options.data.flush_on_commit = flush_on_commit;

            /// Distrusts the free-space tree, and rebuilds it in the first commit that has room for it. The
            /// volume commits even if nothing else changes. Only for writing; no effect on a volume without
            /// such a tree.
            clear_free_space_tree(clear: bool) => |options| options.clear_free_space_tree = clear;

            /// Adds a free-space tree to a volume without one, and drops its free-space caches, like the
            /// kernel's mount option `space_cache=v2`. Only for writing.
            free_space_tree(wanted: bool) => |options| options.free_space_tree = wanted;

            /// Enables POSIX ACLs, which is the default. If disabled, new files get no ACL, and stored ACLs
            /// are ignored but kept.
            acls(acls: bool) => |options| options.acls = acls;

            /// Sets the compression of files without a flag or property of their own. The default is no
            /// compression.
            compress(compress: $crate::Compress) => |options| options.data.compress = compress;

            /// Sets the size of the largest inline file, in bytes. The default is 2048, and 0 disables inline
            /// files. The limit is the room in a leaf and, unless the file is compressed, less than a sector.
            max_inline_bytes(bytes: u64) => |options| options.data.max_inline_bytes = bytes;

            /// Overwrites new files in place, without checksums and compression, like `-o nodatacow`.
            no_data_cow(no_data_cow: bool) => |options| options.data.no_data_cow = no_data_cow;

            /// Stores new files without checksums, like `-o nodatasum`: corruption is then not detected.
            no_data_sum(no_data_sum: bool) => |options| options.data.no_data_sum = no_data_sum;
        }
    };
}

/// Defines the methods of [`OpenOptions`] that set options.
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

/// Options of `Volume::open`. The defaults suit an image on an otherwise idle machine.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    degraded: bool,
    scan: Vec<PathBuf>,
    pub(super) cache_bytes: u64,
    pub(super) decompressed_bytes: u64,
    /// The budget for unused inodes.
    pub(super) inode_bytes: u64,
    /// The budget of the cache of inode items, and of the cache of names.
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

    /// Takes the memory of the caches of tree blocks and inode items, but for their least.
    #[cfg(test)]
    pub(crate) fn without_caches(self) -> Self {
        OpenOptions {
            cache_bytes: 0,
            lookup_bytes: 0,
            ..self
        }
    }

    /// Returns the compression of files without a setting of their own.
    pub fn default_compression(&self) -> Compress {
        self.data.compress
    }

    /// Opens the volume for writing, exclusively.
    #[must_use]
    pub fn writable(mut self, writable: bool) -> Self {
        self.writable = writable;
        self
    }

    /// Sets the discard mode. None, the default, selects `Async` if a device supports discards.
    #[must_use]
    pub fn discard(mut self, mode: Option<DiscardMode>) -> Self {
        self.discard.mode = mode;
        self
    }

    /// Sets the limits of the background discard (`Volume::set_discard_limits`).
    #[must_use]
    pub fn discard_limits(mut self, limits: DiscardLimits) -> Self {
        self.discard.limits = limits;
        self
    }

    /// Sets how long freed space waits for its background discard, as it may be reused before.
    #[must_use]
    pub fn discard_delays(mut self, delays: DiscardDelays) -> Self {
        self.discard.delays = delays;
        self
    }

    /// Enables background discards of free metadata space. The default is off.
    #[must_use]
    pub fn discard_metadata(mut self, metadata: bool) -> Self {
        self.discard.metadata = metadata;
        self
    }

    /// Sets the longest time that closing spends on waiting discards, so that the image of a deleted file
    /// becomes small. The default is 10 s. Zero skips them.
    #[must_use]
    pub fn discard_at_close(mut self, at_most: Duration) -> Self {
        self.discard.at_close = at_most;
        self
    }

    /// Sets the faults that are tolerated when a damaged volume is read.
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
            .superblock_copies(if self.data.rescue.use_backup_root {
                CopyChoice::Any
            } else {
                CopyChoice::First
            })
            .access(if self.writable {
                Access::Write
            } else {
                Access::Read
            })
    }

    /// Returns whether readers see the contents of the fsync log.
    pub(super) fn shows_log(&self) -> bool {
        !self.data.rescue.no_log_replay
    }

    /// Returns the options of the trees. `has_log` is whether the volume has an fsync log.
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
