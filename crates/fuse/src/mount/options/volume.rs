//! The options of the volume itself, from `mount -t btrfs`.

use std::time::Duration;

use ubtrfs_device::memory_limit;
use ubtrfs_fs::{Compress, DiscardMode, OpenOptions};

use super::{Options, values};

impl Options {
    /// Returns the options for opening the volume, without its devices.
    pub fn open_options(&self, writable: bool) -> OpenOptions {
        let mut options = OpenOptions::new()
            .writable(writable)
            .delta_bytes(MOST_DELTA_BYTES)
            .limit_memory(self.memory_bytes())
            .compress(self.compress)
            .no_data_cow(self.no_data_cow)
            .no_data_sum(self.no_data_sum)
            .flush_on_commit(self.flush_on_commit)
            .fsync_log(!self.no_tree_log)
            .lazy_times(self.lazy_times)
            .discard(self.discard)
            .clear_free_space_tree(self.clear_cache)
            .free_space_tree(self.free_space_tree)
            // Unmounting waits for no discard.
            .discard_at_close(Duration::ZERO)
            .rescue(self.rescue.of_engine())
            // The kernel checks permissions on files with ACLs, which `fakeroot` must avoid.
            .acls(!self.no_acl && !self.fakeroot);
        if let Some(bytes) = self.max_inline_bytes {
            options = options.max_inline_bytes(bytes);
        }
        if let Some(interval) = self.commit {
            options = options.commit_interval(Some(interval));
        }
        options
    }

    /// Returns the memory limit of the mount: the option, or the limit of the machine and the control groups.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or_else(memory_limit)
    }

    /// Adds a word without a value. Returns false if it is not an option of the volume.
    pub(super) fn add_volume_flag(&mut self, name: &str) -> bool {
        match name {
            "degraded" => self.degraded = true,
            "acl" => self.no_acl = false,
            "noacl" => self.no_acl = true,
            "usebackuproot" | "recovery" => self.rescue.use_backup_root = true,
            "nologreplay" | "norecovery" => self.rescue.no_log_replay = true,
            "compress" | "compress-force" => {
                let usual = values::compress("zlib", name == "compress-force");
                self.set_compress(usual.unwrap_or_default());
            }
            "datacow" => self.no_data_cow = false,
            "nodatacow" => {
                self.compress = Compress::default();
                self.no_data_cow = true;
                self.no_data_sum = true;
            }
            "datasum" => {
                self.no_data_cow = false;
                self.no_data_sum = false;
            }
            "nodatasum" => self.no_data_sum = true,
            "clear_cache" => self.clear_cache = true,
            "flushoncommit" => self.flush_on_commit = true,
            "noflushoncommit" => self.flush_on_commit = false,
            // The bare word is the older form, as in the kernel.
            "discard" => self.discard = Some(DiscardMode::Sync),
            "nodiscard" => self.discard = Some(DiscardMode::None),
            "treelog" => self.no_tree_log = false,
            "notreelog" => self.no_tree_log = true,
            "user_subvol_rm_allowed" => self.user_subvol_rm_allowed = true,
            "nouser_subvol_rm_allowed" => self.user_subvol_rm_allowed = false,
            _ => return false,
        }
        true
    }

    /// Adds a word with a value. Returns whether it is an option of the volume, or `None` if the value is bad.
    pub(super) fn add_volume_value(&mut self, name: &str, value: &str) -> Option<bool> {
        match name {
            "compress" | "compress-force" => {
                self.set_compress(values::compress(value, name == "compress-force")?);
            }
            "memory" => self.memory_bytes = Some(values::bytes(value).filter(|&bytes| bytes > 0)?),
            "max_inline" => self.max_inline_bytes = Some(values::bytes(value)?),
            "commit" => {
                let seconds = values::number(value).filter(|&seconds| seconds <= MAX_COMMIT)?;
                self.commit = (seconds > 0).then(|| Duration::from_secs(seconds));
            }
            "discard" => {
                self.discard = Some(match value {
                    "sync" => DiscardMode::Sync,
                    "async" => DiscardMode::Async,
                    _ => return None,
                });
            }
            "space_cache" if value == "v2" => self.free_space_tree = true,
            // Other values are refused with the reason.
            "space_cache" => return Some(false),
            _ => return Some(false),
        }
        Some(true)
    }

    /// Sets compression, which implies copy on write and checksums, as in the kernel.
    fn set_compress(&mut self, compress: Compress) {
        if compress != Compress::default() {
            self.no_data_cow = false;
            self.no_data_sum = false;
        }
        self.compress = compress;
    }
}

/// The upper limit of a transaction's size. A longer transaction rewrites each tree block less often. The kernel keeps
/// its dirty tree blocks in the page cache, so there the limit grows with the machine. A mount scales likewise, up to
/// this.
const MOST_DELTA_BYTES: u64 = 1 << 30;

/// More than a century overflows clocks.
const MAX_COMMIT: u64 = u32::MAX as u64;
