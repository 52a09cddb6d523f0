//! The worst-case bytes of new blocks that a commit may need, computed from the counts of its edits.
//!
//! The result is the lower of two bounds: the blocks that the edits may touch, and the existing blocks. Edits are
//! expensive after a snapshot. The first edit of a shared leaf adds one reference for each extent in the leaf. The
//! items of these extents can be anywhere in the extent tree.
//!
//! Not here: the reservations (`reservation`), which blocks are shared (`commit::blocks`).

use ubtrfs_format::item::{FileExtentHead, FileExtentRegular};
use ubtrfs_format::node::{ITEM_HEAD_SIZE, KeyPtr, leaf_data_size};

use super::estimate::EditCounts;

/// An edit touches a leaf, which may split. This changes a leaf of the extent tree and one of the free-space tree.
const BLOCKS_PER_EDIT: u64 = 4;
/// Blocks on the paths from the roots of all trees.
const PATHS: u64 = 48;
/// Minimum number of tree blocks described by a full extent tree leaf.
const BLOCKS_PER_LEAF: u64 = 64;

/// The sizes of the trees, in bytes of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeSizes {
    pub(in crate::transaction) nodesize: u64,
    pub(in crate::transaction) all: u64,
    pub(in crate::transaction) extent_tree: u64,
}

impl TreeSizes {
    pub(in crate::transaction) fn worst_case_bytes(&self, counts: EditCounts) -> u64 {
        let edited = counts.items.saturating_mul(BLOCKS_PER_EDIT * self.nodesize);
        let touched = edited.saturating_add(self.unsharing(counts));
        // No commit needs more than new copies of all blocks, with the new references.
        let everything = with_splits(self.all).saturating_add(self.added_refs(counts));
        touched
            .saturating_add(touched.min(self.describing_blocks()))
            .min(everything)
            .saturating_add(counts.bytes.saturating_mul(2))
            .saturating_add(PATHS * self.nodesize)
    }

    /// Returns the maximum growth of the trees in bytes.
    pub(in crate::transaction) fn growth_bytes(&self, counts: EditCounts) -> u64 {
        counts
            .bytes
            .saturating_mul(2)
            .saturating_add(self.added_refs(counts))
    }

    /// Returns the bytes of the references to extents in shared leaves. For each leaf, they need at most as much space
    /// as the leaf.
    fn added_refs(&self, counts: EditCounts) -> u64 {
        counts
            .leaves
            .saturating_mul(self.nodesize)
            .min(self.all / 2)
    }

    /// Returns the bytes of extent tree leaves that get references to the children of shared blocks. These leaves may
    /// split.
    fn unsharing(&self, counts: EditCounts) -> u64 {
        let by = |refs: u64| {
            let leaves = counts.leaves.saturating_mul(refs);
            leaves.saturating_mul(self.nodesize)
        };
        // Nodes refer to tree blocks.
        let by_nodes = by(self.children_of_node()).min(self.describing_blocks());
        by(self.extents_of_leaf())
            .saturating_add(by_nodes)
            .saturating_mul(2)
            .min(with_splits(self.extent_tree).saturating_add(self.added_refs(counts)))
    }

    /// Returns the number of extent tree leaves that describe tree blocks. A change of one of them moves it, so the
    /// leaf that describes it changes as well, and so on.
    fn describing_blocks(&self) -> u64 {
        self.all / BLOCKS_PER_LEAF
    }

    /// Returns the maximum number of extents that a leaf can reference.
    pub(in crate::transaction) fn extents_of_leaf(&self) -> u64 {
        let item = size_of::<FileExtentHead>() + size_of::<FileExtentRegular>();
        self.room_of_leaf() / (ITEM_HEAD_SIZE + item) as u64
    }

    fn children_of_node(&self) -> u64 {
        self.room_of_leaf() / size_of::<KeyPtr>() as u64
    }

    fn room_of_leaf(&self) -> u64 {
        leaf_data_size(self.nodesize as usize) as u64
    }
}

/// Returns the bytes for new copies of all blocks of trees with `bytes` bytes. Of two neighbouring leaves, only one
/// splits.
fn with_splits(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8)
}
