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
    /// Returns the options with every budget lowered to its share of the memory limit.
    pub(super) fn within_memory(&self) -> OpenOptions {
        let mut options = self.clone();
        if let Some(limit) = self.memory_limit() {
            let memory = limit.max(LEAST_SHARED_BYTES);
            let lower = |budget: &mut u64, share: u64| *budget = (*budget).min(memory / share);
            lower(&mut options.transaction.delta_bytes, DELTA_SHARE);
            lower(&mut options.cache_bytes, NODES_SHARE);
            lower(&mut options.data.buffer_bytes, BUFFER_SHARE);
            lower(&mut options.decompressed_bytes, DECOMPRESSED_SHARE);
            lower(&mut options.inode_bytes, INODES_SHARE);
            lower(&mut options.lookup_bytes, LOOKUPS_SHARE);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_lowered_to_their_shares_and_never_raised() {
        let usual = OpenOptions::new();
        let within = |bytes| usual.clone().memory_bytes(bytes).within_memory();
        let small = within(128 << 20);
        assert_eq!(small.transaction.delta_bytes, (128 << 20) / DELTA_SHARE);
        assert_eq!(small.cache_bytes, 16 << 20);
        assert_eq!(small.data.buffer_bytes, 8 << 20);
        assert_eq!(small.decompressed_bytes, 2 << 20);
        assert_eq!(small.inode_bytes, 2 << 20);
        assert_eq!(small.lookup_bytes, 2 << 20);
        let least = within(0);
        assert_eq!(least.cache_bytes, LEAST_SHARED_BYTES / NODES_SHARE);
        assert_eq!(within(1 << 40), usual.clone().memory_bytes(1 << 40));
    }
}
