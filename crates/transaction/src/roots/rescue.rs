//! Ways to read a damaged volume: `rescue=` of a mount. Only the roots of an earlier transaction may be written to.

use ubtrfs_format::superblock::Superblock;

/// The faults that are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    /// Begin with the roots of an earlier transaction if those of the last one cannot be read. The next transaction is
    /// written as if the last one had never been. A reader takes another copy of the superblock if the first is not
    /// valid.
    pub use_backup_root: bool,
    /// Go on without trees that cannot be read, where files can be read without them. Devices may be cut short.
    pub ignore_bad_roots: bool,
    /// Open although the chunk tree or the root tree cannot be read. Only trees and blocks whose address is known can be
    /// read then.
    pub ignore_bad_top_trees: bool,
    /// Give data unverified.
    pub ignore_data_csums: bool,
    /// Believe tree blocks whose sums are wrong, if all else of them is right.
    pub ignore_meta_csums: bool,
    /// Accept unknown flags in the superblock.
    pub ignore_super_flags: bool,
    /// Show the state of the last commit, without the fsync log.
    pub no_log_replay: bool,
}

impl Rescue {
    /// Returns whether to go on without a tree whose reading failed. A tree that is only not at hand (`would_block`) is
    /// not damaged.
    pub fn goes_on_without_tree(&self, would_block: bool) -> bool {
        self.ignore_bad_roots && !would_block
    }
}

/// Returns the superblock with the roots of each transaction that it remembers, the newest first. Blocks of a later
/// transaction may lie over theirs, which the generations show.
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
        // The log goes on from the newest transaction only.
        if superblock.generation != newest.generation {
            superblock.clear_log();
        }
        superblock
    });
    with_roots.collect()
}
