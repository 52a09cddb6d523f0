//! Blocks that a running commit has built and that are not on disk yet.
//!
//! Invariants
//! - STAGED-1: a reader of an address asks here before the cache. So what the cache holds of an older block at a
//!   staged address is never seen.
//! - STAGED-2: a block leaves for the cache by being there first and going from here after; in between it
//!   is in both.
//!
//! Locks: its own, a leaf, held for one look-up or one change. While nothing is staged, a reader pays one
//! atomic load.
//! Not here: where blocks lie and when they are written (the commit).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use ubtrfs_format::ids::Logical;

use crate::block::Block;

#[derive(Debug, Default)]
pub(crate) struct StagedBlocks {
    /// The number of `blocks`, so that readers need no lock while it is 0.
    count: AtomicUsize,
    blocks: RwLock<BTreeMap<Logical, Block>>,
    /// The highest that `count` ever was.
    most: AtomicUsize,
}

impl StagedBlocks {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the highest count of staged blocks so far.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, bytenr: Logical) -> Option<Block> {
        if self.count() == 0 {
            return None;
        }
        self.blocks.read().get(&bytenr).cloned()
    }

    /// Takes the place of what is staged there.
    pub(crate) fn insert(&self, bytenr: Logical, block: Block) {
        let mut blocks = self.blocks.write();
        blocks.insert(bytenr, block);
        self.count.store(blocks.len(), Ordering::Release);
        self.most.fetch_max(blocks.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, bytenr: Logical) -> Option<Block> {
        let mut blocks = self.blocks.write();
        let block = blocks.remove(&bytenr);
        self.count.store(blocks.len(), Ordering::Release);
        block
    }

    /// Removes the block, unless another has taken its place.
    pub(crate) fn remove_same(&self, block: &Block) {
        let mut blocks = self.blocks.write();
        let bytenr = block.node().bytenr();
        if blocks.get(&bytenr).is_some_and(|b| b.is_same(block)) {
            blocks.remove(&bytenr);
        }
        self.count.store(blocks.len(), Ordering::Release);
    }

    /// Returns all staged blocks in address order.
    pub(crate) fn all(&self) -> Vec<Block> {
        self.blocks.read().values().cloned().collect()
    }
}
