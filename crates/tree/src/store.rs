//! The cache of verified nodes, and how a node gets into it.
//!
//! Invariants
//! - STORE-1: a cached block passed the checker when it was read; what its parent says of it is
//!   compared on every use, cached or not.
//! - STORE-2: cached bytes never exceed the budget by more than what readers hold.
//!
//! Locks: the cache's own, never held across IO. Readers of one cold block wait for one read.
//! Not here: which blocks belong together (`cursor`), mirrors (`device`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use ubtrfs_device::{CheckedRead, Pool};
use ubtrfs_format::check::{self, BlockContext, Expect};
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::uuid::Uuid;

use crate::block::Block;
use crate::error::TreeError;

#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Budget of the node cache.
    pub cache_bytes: u64,
    /// How many sibling blocks a sequential cursor reads ahead.
    pub read_ahead_blocks: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            cache_bytes: 256 << 20,
            read_ahead_blocks: 32,
        }
    }
}

/// Counts since the store was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStats {
    pub hits: u64,
    pub misses: u64,
    pub read_ahead: u64,
}

#[derive(Clone, Debug)]
struct BlockWeight;

impl Weighter<u64, Block> for BlockWeight {
    fn weight(&self, _: &u64, block: &Block) -> u64 {
        block.bytes().len() as u64
    }
}

/// Reads tree blocks of one volume. Shared by all its trees.
pub struct NodeStore {
    pool: Arc<Pool>,
    cache: Cache<u64, Block, BlockWeight>,
    /// Set once the chunk tree has told them; before, those of the seeds that were given.
    seed_fsids: OnceLock<Vec<Uuid>>,
    given_seed_fsids: Vec<Uuid>,
    read_ahead_blocks: usize,
    hits: AtomicU64,
    misses: AtomicU64,
    read_ahead: AtomicU64,
}

impl std::fmt::Debug for NodeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeStore")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl NodeStore {
    pub fn new(pool: Arc<Pool>, options: &StoreOptions) -> NodeStore {
        let nodesize = u64::from(pool.superblock().nodesize.get());
        let blocks = (options.cache_bytes / nodesize).max(16);
        let cache = Cache::with_weighter(blocks as usize, options.cache_bytes, BlockWeight);
        NodeStore {
            given_seed_fsids: pool.seed_fsids(),
            seed_fsids: OnceLock::new(),
            pool,
            cache,
            read_ahead_blocks: options.read_ahead_blocks,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            read_ahead: AtomicU64::new(0),
        }
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub fn nodesize(&self) -> usize {
        self.pool.superblock().nodesize.get() as usize
    }

    pub fn stats(&self) -> StoreStats {
        StoreStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            read_ahead: self.read_ahead.load(Ordering::Relaxed),
        }
    }

    /// Accepts the blocks of the seed volumes that the chunk tree named. The first call counts.
    pub fn adopt_seeds(&self) {
        self.seed_fsids.get_or_init(|| self.pool.seed_fsids());
    }

    /// What all blocks of the volume have in common.
    fn context(&self) -> BlockContext<'_> {
        BlockContext {
            seed_fsids: self.seed_fsids.get().unwrap_or(&self.given_seed_fsids),
            ..BlockContext::new(self.pool.superblock())
        }
    }

    fn is_aligned(&self, bytenr: Logical) -> bool {
        bytenr
            .0
            .is_multiple_of(u64::from(self.pool.superblock().sectorsize.get()))
    }

    /// The block that `expect` describes, from the cache or from the first mirror that has it sound.
    pub fn read(&self, tree: RootId, expect: &Expect) -> Result<Block, TreeError> {
        let bytenr = expect.bytenr;
        if !self.is_aligned(bytenr) {
            return Err(TreeError::Misaligned { tree, bytenr });
        }
        if let Some(block) = self.cache.get(&bytenr.0) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return self.as_expected(tree, block, expect);
        }
        let block = self
            .cache
            .get_or_insert_with(&bytenr.0, || self.read_cold(tree, expect))?;
        self.as_expected(tree, block, expect)
    }

    fn read_cold(&self, tree: RootId, expect: &Expect) -> Result<Block, TreeError> {
        self.misses.fetch_add(1, Ordering::Relaxed);
        let mut bytes = zeroed(self.nodesize());
        let buf = Arc::get_mut(&mut bytes).expect("not shared yet");
        let mut last = None;
        let context = self.context();
        let read = self
            .pool
            .read_checked(expect.bytenr, buf, self.nodesize(), &mut |_, block| {
                match check::check_block(block, &context, expect) {
                    Ok(()) => true,
                    Err(reason) => {
                        last = Some(reason);
                        false
                    }
                }
            });
        match (read, last) {
            (Ok(()), _) => Ok(Block::from_verified(bytes)),
            (Err(_), Some(reason)) => Err(TreeError::Corrupt {
                tree,
                bytenr: expect.bytenr,
                reason,
            }),
            (Err(source), None) => Err(TreeError::Read {
                tree,
                bytenr: expect.bytenr,
                source,
            }),
        }
    }

    /// Reads the blocks that are not cached, at depth. Failures are left to whoever needs the block.
    pub(crate) fn prefetch(&self, expects: &[Expect]) {
        let cold: Vec<&Expect> = expects
            .iter()
            .filter(|e| self.is_aligned(e.bytenr) && self.cache.peek(&e.bytenr.0).is_none())
            .collect();
        if cold.len() < 2 {
            return;
        }
        let nodesize = self.nodesize();
        let context = self.context();
        let mut blocks: Vec<Arc<[u8]>> = cold.iter().map(|_| zeroed(nodesize)).collect();
        let mut checks: Vec<_> = cold
            .iter()
            .map(|expect| {
                let context = &context;
                move |_: usize, block: &[u8]| check::check_block(block, context, expect).is_ok()
            })
            .collect();
        let mut reads: Vec<CheckedRead<'_>> = blocks
            .iter_mut()
            .zip(&mut checks)
            .zip(&cold)
            .map(|((block, good), expect)| {
                let buf = Arc::get_mut(block).expect("not shared yet");
                CheckedRead {
                    logical: expect.bytenr,
                    buf,
                    granule: nodesize,
                    good,
                    result: Ok(()),
                }
            })
            .collect();
        self.pool.read_checked_batch(&mut reads);
        let sound: Vec<bool> = reads.iter().map(|read| read.result.is_ok()).collect();
        drop(reads);
        for ((block, sound), expect) in blocks.into_iter().zip(sound).zip(cold) {
            if sound {
                self.read_ahead.fetch_add(1, Ordering::Relaxed);
                self.cache
                    .insert(expect.bytenr.0, Block::from_verified(block));
            }
        }
    }

    /// STORE-1: a cached block may have been read on behalf of another parent.
    fn as_expected(&self, tree: RootId, block: Block, expect: &Expect) -> Result<Block, TreeError> {
        let bytenr = expect.bytenr;
        match check::check_expected(block.node(), &self.context(), expect) {
            Ok(()) => Ok(block),
            Err(reason) => Err(TreeError::Unexpected {
                tree,
                bytenr,
                reason,
            }),
        }
    }

    pub(crate) fn read_ahead_blocks(&self) -> usize {
        self.read_ahead_blocks
    }

    pub(crate) fn is_cached(&self, bytenr: Logical) -> bool {
        self.cache.peek(&bytenr.0).is_some()
    }
}

fn zeroed(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, len).collect()
}
