//! Blocks built by the running commit that are not on disk yet.
//!
//! Invariants
//! - STAGED-1: a reader of an address looks here before the cache. So it never sees an older block that the cache
//!   holds for a staged address.
//! - STAGED-2: a block is inserted into the cache before it is removed here; in between it is in both.
//!
//! Locks: its own, a leaf, held for one look-up or one change. While nothing is staged, a reader only does one atomic
//! load.
//! Not here: the addresses of blocks and the time of their writing (the commit).

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
    /// The highest value of `count` so far.
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

    /// Stages a block, replacing any other at its address.
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

    /// Removes the block, unless another one has replaced it.
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
