//! Options for reading a damaged volume (`rescue=`). Only a volume opened from older roots can be written to.

use ubtrfs_format::superblock::Superblock;

/// The faults to ignore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    /// Use the roots of an earlier transaction if the current roots cannot be read. The next transaction then
    /// replaces the last one. A read-only volume may also use another copy of the superblock if the first is not valid.
    pub use_backup_root: bool,
    /// Ignore unreadable trees that are not needed to read files. Devices may be truncated.
    pub ignore_bad_roots: bool,
    /// Open even if the chunk tree or the root tree cannot be read. Only trees and blocks with known addresses are then
    /// readable.
    pub ignore_bad_top_trees: bool,
    /// Return data without verification.
    pub ignore_data_csums: bool,
    /// Accept tree blocks with wrong checksums, if their contents are otherwise valid.
    pub ignore_meta_csums: bool,
    /// Accept unknown flags in the superblock.
    pub ignore_super_flags: bool,
    /// Accept unknown flags of root items and inodes.
    pub ignore_item_flags: bool,
    /// Open the state of the last commit, without the fsync log.
    pub no_log_replay: bool,
}

impl Rescue {
    /// Returns whether to ignore a tree that could not be read. A tree that is merely not in memory (`would_block`) is
    /// not damaged.
    pub fn tolerates_missing_tree(&self, would_block: bool) -> bool {
        self.ignore_bad_roots && !would_block
    }
}

/// Returns a superblock for each transaction in the list of backup roots, the newest first. Their blocks may have been
/// overwritten by later transactions, which the generations reveal.
pub fn backups(newest: &Superblock) -> Vec<Superblock> {
    let mut roots: Vec<_> = newest.super_roots.iter().collect();
    roots.retain(|roots| roots.tree_root.get() != 0);
    roots.sort_by_key(|roots| std::cmp::Reverse(roots.tree_root_gen.get()));
    let with_roots = roots.into_iter().map(|roots| {
        let mut superblock = newest.clone();
        superblock.root = roots.tree_root;
        superblock.generation = roots.tree_root_gen;
        superblock.root_level = roots.tree_root_level;
        superblock.chunk_root = roots.chunk_root;
        superblock.chunk_root_generation = roots.chunk_root_gen;
        superblock.chunk_root_level = roots.chunk_root_level;
        // The log applies only to the newest transaction.
        if superblock.generation != newest.generation {
            superblock.clear_log();
        }
        superblock
    });
    with_roots.collect()
}
