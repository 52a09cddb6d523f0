//! The division of a volume's memory among its caches and budgets.
//!
//! The real memory of a budget is larger than the bytes it counts. A delta is committed while the next one
//! grows, a commit keeps additional lists, and freed memory is not returned at once. All shares together are
//! therefore less than a third.
//!
//! Not here: the available memory (`ubtrfs_device::memory_limit`), buffers of requests (`fuse`).

use super::OpenOptions;

/// The least memory that is known to suffice for a volume under any load.
pub const LEAST_MEMORY_BYTES: u64 = 128 << 20;
/// Below this, shares do not get smaller.
const LEAST_SHARED_BYTES: u64 = LEAST_MEMORY_BYTES / 2;

const DELTA_SHARE: u64 = 24;
const NODES_SHARE: u64 = 8;
const BUFFER_SHARE: u64 = 16;
const DECOMPRESSED_SHARE: u64 = 64;
const INODES_SHARE: u64 = 64;
const LOOKUPS_SHARE: u64 = 64;

impl OpenOptions {
    /// Lowers every budget to its share of `memory_bytes`.
    pub(super) fn lower_budgets(&mut self, memory_bytes: u64) {
        let memory = memory_bytes.max(LEAST_SHARED_BYTES);
        let lower = |budget: &mut u64, share: u64| *budget = (*budget).min(memory / share);
        lower(&mut self.delta_bytes, DELTA_SHARE);
        lower(&mut self.cache_bytes, NODES_SHARE);
        lower(&mut self.data.buffer_bytes, BUFFER_SHARE);
        lower(&mut self.decompressed_bytes, DECOMPRESSED_SHARE);
        lower(&mut self.inode_bytes, INODES_SHARE);
        lower(&mut self.lookup_bytes, LOOKUPS_SHARE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_lowered_to_their_shares_and_never_raised() {
        let usual = OpenOptions::new();
        let small = usual.clone().limit_memory(128 << 20);
        assert_eq!(small.delta_bytes, (128 << 20) / DELTA_SHARE);
        assert_eq!(small.cache_bytes, 16 << 20);
        assert_eq!(small.data.buffer_bytes, 8 << 20);
        assert_eq!(small.decompressed_bytes, 2 << 20);
        assert_eq!(small.inode_bytes, 2 << 20);
        assert_eq!(small.lookup_bytes, 2 << 20);
        let least = usual.clone().limit_memory(0);
        assert_eq!(least.cache_bytes, LEAST_SHARED_BYTES / NODES_SHARE);
        let large = usual.clone().limit_memory(1 << 40);
        assert_eq!(format!("{large:?}"), format!("{usual:?}"));
    }
}
