//! Options for opening a volume.
//!
//! Each option is a row of one table: documentation, setter, place of the value, and words of `mount -o`. From the table
//! are made:
//!
//! - the setters of [`OpenOptions`], and of the library's builder unless the row is `[seldom]`
//! - the options of C and Python, by name ([`OpenOption`])
//! - words of mounts, with their help texts and completions

mod mount_word;
mod named;
mod value;

use std::path::PathBuf;
use std::time::Duration;

use rustix::mount::MountFlags;
use ubtrfs_device::{Access, CopyChoice, PoolOptions};
use ubtrfs_storage::TransactionOptions;
use ubtrfs_storage::discard::{DiscardDelays, DiscardLimits, DiscardMode, DiscardOptions};
use ubtrfs_storage::roots::{Rescue, RootsOptions};
use ubtrfs_tree::StoreOptions;

use self::mount_word::{word_bytes, word_compress};
use self::value::{OptionValue, kind_of};
use crate::inode::{Compress, DataOptions};

pub use self::mount_word::{
    MountWord, WordEffect, WordGroup, WordOutcome, WordRefusal, WordRemount, word_number, word_text,
};
pub use self::named::{OpenOption, OptionError, volume_words};
pub use self::value::OptionKind;

/// Calls a macro with the table of options. The columns are the documentation, which names no language, the mark
/// `[seldom]`, the setter, the place of the value, the value, and words of `mount -o`.
#[doc(hidden)]
#[macro_export]
macro_rules! with_open_options {
    ($define:ident) => {
        $define! {
            /// Opens the volume read-only. Other processes may also open it read-only.
            read_only(read_only: bool) => read_only = read_only;

            /// Opens the volume read-only, as of the last commit: later fsyncs are ignored. Use this to read a volume
            /// whose log of such fsyncs is damaged.
            as_committed(as_committed: bool) => data.rescue.no_log_replay = as_committed;

            /// Opens the volume although devices are missing, as far as the profiles allow.
            degraded(degraded: bool) => degraded = degraded,
                [Word::flag("degraded", |options| options.degraded = true)];

            /// Sets the places to search for the volume's other devices: files, folders (for the files directly in
            /// them) or `/dev` (for all block devices). Without one, only the named devices are opened.
            scan(places: impl IntoIterator<Item = impl Into<::std::path::PathBuf>>) => scan =
                places.into_iter().map(Into::into).collect();

            /// Chooses the volume if the disks hold several: its UUID or label, or the name of its array or LVM volume.
            /// Only for volumes on partitions, md arrays and LVM volumes, which are only read.
            volume(name: impl Into<String>) => volume = Some(name.into());

            /// Limits all caches and buffers to their shares of this number of bytes of memory.
            memory_bytes(bytes: u64) => memory_bytes = Some(bytes),
                [Word::value("memory", "BYTES", set_memory).in_group(WordGroup::Ours)];

            /// Sets the size of the cache of tree blocks, in bytes.
            [seldom] cache_bytes(bytes: u64) => cache_bytes = bytes;

            /// Sets the size of the cache of decompressed extents, in bytes.
            [seldom] decompressed_bytes(bytes: u64) => decompressed_bytes = bytes;

            /// Sets the memory limit for the changes of one transaction, in bytes. Operations wait if a transaction
            /// uses it up while the previous one is being committed.
            [seldom] delta_bytes(bytes: u64) => transaction.delta_bytes = bytes;

            /// Sets the memory limit for buffered data, in bytes. A write beyond it first writes data back.
            [seldom] buffer_bytes(bytes: u64) => data.buffer_bytes = bytes;

            /// Sets the longest time that a change stays uncommitted. Without one, the caller's thread commits, only on
            /// request and under memory pressure.
            commit_interval(interval: Option<::std::time::Duration>) => commit_interval = interval,
                [Word::value("commit", "SECONDS", set_commit).live()];

            /// Keeps pure time changes in memory until the file changes otherwise or is synced, for at most a day. A
            /// crash may lose them.
            lazy_times(lazy_times: bool) => lazy_times = lazy_times, [
                Word::flag("lazytime", |options| options.lazy_times = true)
                    .in_group(WordGroup::System).remount(lazytime(true)),
                Word::flag("nolazytime", |options| options.lazy_times = false)
                    .in_group(WordGroup::System).remount(lazytime(false)).hidden(),
            ];

            /// Writes a log in place of a commit to sync a single file or directory, if the log can represent the
            /// changes.
            fsync_log(wanted: bool) => fsync_log = wanted, [
                Word::flag("notreelog", |options| options.fsync_log = false),
                Word::flag("treelog", |options| options.fsync_log = true).opposite(),
            ];

            /// Writes back the data of all files when one file is synced.
            [seldom] flush_on_commit(flush_on_commit: bool) => data.flush_on_commit = flush_on_commit, [
                Word::flag("flushoncommit", |options| options.data.flush_on_commit = true).live(),
                Word::flag("noflushoncommit", |options| options.data.flush_on_commit = false)
                    .live().opposite(),
            ];

            /// Flushes the caches of devices in each commit and sync. If disabled, a crash of the machine can destroy the
            /// volume; a crash of the program cannot. For images that are rebuilt after a crash.
            barriers(barriers: bool) => barriers = barriers, [
                Word::flag("nobarrier", |options| options.barriers = false),
                Word::flag("barrier", |options| options.barriers = true).opposite(),
            ];

            /// Distrusts the free-space tree, and rebuilds it in the first commit that has room for it. The volume
            /// commits even if nothing else changes. Only for writing; no effect on a volume without such a tree.
            [seldom] clear_free_space_tree(clear: bool) => transaction.clear_free_space_tree = clear,
                [Word::flag("clear_cache", |options| options.transaction.clear_free_space_tree = true)];

            /// Adds a free-space tree to a volume without one, and drops its free-space caches, like the kernel's mount
            /// option `space_cache=v2`. Only for writing.
            [seldom] free_space_tree(wanted: bool) => transaction.free_space_tree = wanted,
                [Word::optional_value("space_cache", "v2", set_space_cache).values(&["v2"])];

            /// Enables POSIX ACLs. If disabled, new files get no ACL, and stored ACLs are ignored but kept.
            [seldom] acls(acls: bool) => acls = acls, [
                Word::flag("noacl", |options| options.acls = false),
                Word::flag("acl", |options| options.acls = true).opposite(),
            ];

            /// Sets the compression of files without a flag or property of their own. Also applies to the initial
            /// contents of a new volume.
            compress(compress: $crate::Compress) => data.compress = compress, [
                Word::optional_value("compress", "ALGORITHM[:LEVEL]", |options, value| {
                    set_compress(options, word_compress(value, false)?)
                }).values(&["", "lzo", "no", "zlib", "zstd"]).live(),
                Word::optional_value("compress-force", "", |options, value| {
                    set_compress(options, word_compress(value, true)?)
                }).values(&["", "lzo", "zlib", "zstd"]).live(),
            ];

            /// Sets the size of the largest inline file, in bytes; 0 disables inline files. The limit is the room in a
            /// leaf and, unless the file is compressed, less than a sector.
            [seldom] max_inline_bytes(bytes: u64) => data.max_inline_bytes = bytes,
                [Word::value("max_inline", "BYTES", set_max_inline).live()];

            /// Overwrites new files in place, without checksums and compression, like `-o nodatacow`.
            no_data_cow(no_data_cow: bool) => data.no_data_cow = no_data_cow, [
                Word::flag("nodatacow", set_no_data_cow).live(),
                Word::flag("datacow", |options| options.data.no_data_cow = false).live().opposite(),
            ];

            /// Stores new files without checksums, like `-o nodatasum`: corruption is then not detected.
            no_data_sum(no_data_sum: bool) => data.no_data_sum = no_data_sum, [
                Word::flag("nodatasum", |options| options.data.no_data_sum = true).live(),
                Word::flag("datasum", set_data_sum).live().opposite(),
            ];

            /// Sets when freed space is discarded in the file or on the device. By default that is in the background
            /// and when the volume is closed, if a device supports discards. A trim discards at any time.
            discard(mode: Option<$crate::DiscardMode>) => transaction.discard.mode = mode, [
                Word::optional_value("discard", "sync|async", set_discard)
                    .values(&["", "async", "sync"]).live(),
                Word::flag("nodiscard", |options| options.transaction.discard.mode = Some(DiscardMode::None)).live(),
            ];
        }
    };
}

/// A word that sets an option of a volume.
type Word = MountWord<OpenOptions>;

const fn lazytime(is_set: bool) -> WordRemount {
    let flag = MountFlags::LAZYTIME;
    WordRemount::Flags {
        decided: flag,
        set: if is_set { flag } else { MountFlags::empty() },
    }
}

fn set_memory(options: &mut OpenOptions, value: &[u8]) -> Result<(), WordRefusal> {
    match word_bytes(value)? {
        0 => return Err(WordRefusal::BadValue),
        bytes => options.memory_bytes = Some(bytes),
    }
    Ok(())
}

/// Sets the commit interval; 0 is the default, as in the kernel.
fn set_commit(options: &mut OpenOptions, value: &[u8]) -> Result<(), WordRefusal> {
    options.commit_interval = Some(match word_number(value)? {
        0 => DEFAULT_COMMIT_INTERVAL,
        seconds if seconds > MAX_COMMIT_SECONDS => return Err(WordRefusal::BadValue),
        seconds => Duration::from_secs(seconds),
    });
    Ok(())
}

fn set_max_inline(options: &mut OpenOptions, value: &[u8]) -> Result<(), WordRefusal> {
    options.data.max_inline_bytes = word_bytes(value)?;
    Ok(())
}

/// Adds a free-space tree. The kernel also refuses other caches for a volume with the tree.
fn set_space_cache(options: &mut OpenOptions, value: Option<&[u8]>) -> Result<(), WordRefusal> {
    if value != Some(b"v2") {
        return Err(WordRefusal::Unsupported(ONLY_SPACE_CACHE_V2));
    }
    options.transaction.free_space_tree = true;
    Ok(())
}

/// Sets compression, which implies copy on write and checksums, as in the kernel.
fn set_compress(options: &mut OpenOptions, compress: Compress) -> Result<(), WordRefusal> {
    if compress != Compress::default() {
        options.data.no_data_cow = false;
        options.data.no_data_sum = false;
    }
    options.data.compress = compress;
    Ok(())
}

/// Turns copy on write off, which implies no checksums and no compression, as in the kernel.
fn set_no_data_cow(options: &mut OpenOptions) {
    options.data.compress = Compress::default();
    options.data.no_data_cow = true;
    options.data.no_data_sum = true;
}

/// Turns checksums on, which implies copy on write, as in the kernel.
fn set_data_sum(options: &mut OpenOptions) {
    options.data.no_data_cow = false;
    options.data.no_data_sum = false;
}

/// Sets the mode of discards. The bare word is the older form, as in the kernel.
fn set_discard(options: &mut OpenOptions, value: Option<&[u8]>) -> Result<(), WordRefusal> {
    options.transaction.discard.mode = Some(match value {
        None | Some(b"sync") => DiscardMode::Sync,
        Some(b"async") => DiscardMode::Async,
        Some(_) => return Err(WordRefusal::BadValue),
    });
    Ok(())
}

/// The reason why other values of `space_cache` are refused.
pub const ONLY_SPACE_CACHE_V2: &str =
    "no cache of free space is written but the tree of space_cache=v2, where a volume has it";

const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(30);
/// More than a century overflows clocks.
const MAX_COMMIT_SECONDS: u64 = u32::MAX as u64;

/// Defines the methods of [`OpenOptions`] that set options.
macro_rules! setters {
    ($($(#[doc = $doc:literal])* $([$seldom:ident])? $name:ident($arg:ident: $ty:ty)
        => $($place:ident).+ = $value:expr $(, [$($word:expr),* $(,)?])?;)*) => {$(
        $(#[doc = $doc])*
        #[must_use]
        pub fn $name(mut self, $arg: $ty) -> Self {
            self.$($place).+ = $value;
            self
        }
    )*};
}

/// Defines the table of options by name.
macro_rules! rows {
    ($($(#[doc = $doc:literal])* $([$seldom:ident])? $name:ident($arg:ident: $ty:ty)
        => $($place:ident).+ = $value:expr $(, [$($word:expr),* $(,)?])?;)*) => {
        /// The options of a volume, in the order of documentation.
        pub static OPEN_OPTIONS: &[OpenOption] = &[$(OpenOption {
            name: stringify!($name),
            kind: kind_of(|options: &OpenOptions| &options.$($place).+),
            lines: &[$($doc),*],
            words: &[$($($word),*)?],
            set: |options, text| options.$($place).+.set_text(text),
            text: |options| options.$($place).+.text(),
        }),*];
    };
}

with_open_options! { rows }

/// Options of `Volume::open`. The defaults suit an image on an otherwise idle machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    pub(super) read_only: bool,
    degraded: bool,
    scan: Vec<PathBuf>,
    /// The name of a volume on layers, which the library assembles.
    volume: Option<String>,
    /// The memory that the caches and budgets must fit in.
    memory_bytes: Option<u64>,
    pub(super) cache_bytes: u64,
    pub(super) decompressed_bytes: u64,
    /// The budget for unused inodes.
    pub(super) inode_bytes: u64,
    /// The budget of the cache of inode items, and of the cache of names.
    pub(super) lookup_bytes: u64,
    pub(super) commit_interval: Option<Duration>,
    pub(super) lazy_times: bool,
    barriers: bool,
    pub(super) acls: bool,
    pub(super) fsync_log: bool,
    pub(super) transaction: TransactionOptions,
    pub(super) data: DataOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: true,
            degraded: false,
            scan: Vec::new(),
            volume: None,
            memory_bytes: None,
            cache_bytes: 256 << 20,
            decompressed_bytes: 32 << 20,
            inode_bytes: 32 << 20,
            lookup_bytes: 32 << 20,
            commit_interval: Some(DEFAULT_COMMIT_INTERVAL),
            lazy_times: false,
            barriers: true,
            acls: true,
            fsync_log: true,
            transaction: TransactionOptions {
                discard: DiscardOptions {
                    at_close: Duration::from_secs(10),
                    ..DiscardOptions::default()
                },
                ..TransactionOptions::default()
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

    /// Returns whether an option requires that the volume is opened read-only.
    pub fn reads_only(&self) -> bool {
        self.read_only || self.data.rescue.no_log_replay
    }

    /// Returns the places to search for other devices.
    pub fn scan_places(&self) -> &[PathBuf] {
        &self.scan
    }

    /// Returns the name of the chosen volume.
    pub fn chosen_volume(&self) -> Option<&str> {
        self.volume.as_deref()
    }

    /// Returns whether devices may be missing.
    pub fn may_be_degraded(&self) -> bool {
        self.degraded
    }

    /// Returns whether changes of only times stay in memory.
    pub fn has_lazy_times(&self) -> bool {
        self.lazy_times
    }

    /// Returns the memory that the caches and budgets must fit in, if it was set.
    pub fn memory_limit(&self) -> Option<u64> {
        self.memory_bytes
    }

    /// Returns the compression of files without a setting of their own.
    pub fn default_compression(&self) -> Compress {
        self.data.compress
    }

    /// Opens the volume for writing, exclusively.
    #[must_use]
    pub fn writable(self, writable: bool) -> Self {
        self.read_only(!writable)
    }

    /// Sets the limits of the background discard (`Volume::set_discard_limits`).
    #[must_use]
    pub fn discard_limits(mut self, limits: DiscardLimits) -> Self {
        self.transaction.discard.limits = limits;
        self
    }

    /// Sets how long freed space waits for its background discard, as it may be reused before.
    #[must_use]
    pub fn discard_delays(mut self, delays: DiscardDelays) -> Self {
        self.transaction.discard.delays = delays;
        self
    }

    /// Enables background discards of free metadata space. The default is off.
    #[must_use]
    pub fn discard_metadata(mut self, metadata: bool) -> Self {
        self.transaction.discard.metadata = metadata;
        self
    }

    /// Sets the longest time that closing spends on waiting discards, so that the image of a deleted file
    /// becomes small. The default is 10 s. Zero skips them.
    #[must_use]
    pub fn discard_at_close(mut self, at_most: Duration) -> Self {
        self.transaction.discard.at_close = at_most;
        self
    }

    /// Sets the faults that are tolerated when a damaged volume is read.
    #[must_use]
    pub fn rescue(mut self, rescue: Rescue) -> Self {
        self.data.rescue = rescue;
        self
    }

    pub(super) fn is_writable(&self) -> bool {
        !self.read_only
    }

    pub(super) fn pool_options(&self) -> PoolOptions {
        PoolOptions::default()
            .degraded(self.degraded)
            .ignore_truncation(self.data.rescue.ignore_bad_roots)
            .ignore_super_flags(self.data.rescue.ignore_super_flags && self.read_only)
            .scan(self.scan.clone())
            .skip_flushes(!self.barriers)
            .superblock_copies(if self.data.rescue.use_backup_root {
                CopyChoice::Any
            } else {
                CopyChoice::First
            })
            .access(if self.is_writable() {
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
            writable: self.is_writable(),
            edits_trees: self.shows_log() && has_log,
            acls: self.acls,
            new_file_flags: self.data.new_file_flags(),
            lazy_times: self.lazy_times,
            ignore_bad_top_trees: self.data.rescue.ignore_bad_top_trees && self.read_only,
            lookup_bytes: self.lookup_bytes,
            store: self.store_options(),
        }
    }

    fn store_options(&self) -> StoreOptions {
        StoreOptions {
            cache_bytes: self.cache_bytes,
            ignore_csums: self.data.rescue.ignore_meta_csums,
            ignore_flags: self.data.rescue.ignore_item_flags && self.read_only,
            finds_marks: self.is_writable(),
            ..StoreOptions::default()
        }
    }
}
