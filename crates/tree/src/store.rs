//! The blocks of a volume in memory: the cache of verified blocks, the blocks staged by a commit, and reading from
//! the device.
//!
//! Invariants
//! - STORE-1: a block passed the checker when it was read or staged. The properties in its parent's pointer are
//!   compared on every use, cached or not.
//! - STORE-2: cached bytes exceed the budget by no more than the blocks that readers hold.
//! - STORE-3: a staged block hides the cached block at its address.
//! - STORE-4: a thread that stages blocks writes and caches them as soon as it is over its budget.
//! - STORE-5: a block that was read is cached only if its address was neither staged nor forgotten since the read
//!   began.
//! - STORE-6: a damaged mirror is repaired only by a reader that keeps the block's space from being reused, and that
//!   expects a generation. Any other reader could overwrite a newer block with an older one.
//! - STORE-7: a block with a mark of a maker is never staged. The watcher of a writable volume is called before a reader
//!   gets such a block.
//!
//! Locks: the cache's own and the staged blocks', never held across IO. Readers of one cold block wait for a single
//! read, or for a part of a batch, unless they must not block. A batch waits for no other reader.
//! Not here: which blocks belong together (`path`), mirrors (`device`), writing blocks (the commit).

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use arc_swap::Guard;
use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult, PlaceholderGuard};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use ubtrfs_device::nonblocking::{self, WouldBlock};
use ubtrfs_device::{CheckedRead, Pool};
use ubtrfs_format::check::{self, BlockContext, CorruptBlock, Expect};
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::maker::Marks;
use ubtrfs_format::node::Node;
use ubtrfs_format::uuid::Uuid;

use crate::block::Block;
use crate::build::TreeBlock;
use crate::epoch::{Epoch, Epochs};
use crate::error::TreeError;
use crate::mark_watch::{MarkWatch, MarkWatcher};
use crate::staged::StagedBlocks;

#[cfg(test)]
mod tests;

#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Budget of the node cache. Staged blocks have a separate budget, which is a fraction of this one.
    pub cache_bytes: u64,
    /// Number of sibling blocks that a sequential cursor reads ahead.
    pub read_ahead_blocks: usize,
    /// Accept blocks with wrong checksums.
    pub ignore_csums: bool,
    /// Accept unknown flags of root items and inodes.
    pub ignore_flags: bool,
    /// Look for marks of makers in the blocks that are read, because the volume is open for writing.
    pub finds_marks: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            cache_bytes: 256 << 20,
            read_ahead_blocks: 32,
            ignore_csums: false,
            ignore_flags: false,
            finds_marks: false,
        }
    }
}

/// Counts since the store was created.
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

/// The cache slot reserved for a block that is being read. A concurrent insertion or removal at the address voids it.
type Place<'s> =
    PlaceholderGuard<'s, u64, Block, BlockWeight, DefaultHashBuilder, DefaultLifecycle<u64, Block>>;

/// Reader and cache of the tree blocks of one volume, shared by all its trees.
pub struct NodeStore {
    pool: Arc<Pool>,
    cache: Cache<u64, Block, BlockWeight>,
    staged: StagedBlocks,
    staged_budget_bytes: u64,
    epochs: Epochs,
    /// The highest generation that was staged; blocks that are read may be as new.
    staged_generation: AtomicU64,
    /// Set once the chunk tree has been read; before that, `given_seed_fsids` is used.
    seed_fsids: OnceLock<Vec<Uuid>>,
    given_seed_fsids: Vec<Uuid>,
    read_ahead_blocks: usize,
    ignore_csums: bool,
    ignore_flags: bool,
    marks: MarkWatch,
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

/// Minimum budget of staged blocks, whatever the cache's budget is: smaller batches are inefficient to write.
const LEAST_STAGED_BLOCKS: u64 = 64;

/// Returns the budget of staged blocks: three eighths of the cache's. With this budget most blocks are written once,
/// and in address order.
fn staged_budget(cache_bytes: u64, nodesize: u64) -> u64 {
    (cache_bytes / 8 * 3).max(LEAST_STAGED_BLOCKS * nodesize)
}

/// Minimum number of blocks per thread: a batch of twice as many is read by two threads.
const LEAST_OF_A_THREAD: usize = 16;

/// Maximum number of cache slots that a batch reserves at a time. It limits how long other readers of these blocks
/// wait.
const MAX_PLACES: usize = 128;

/// The number of locks, provided each covers more than a few blocks. If a commit is preempted while it holds one, all
/// readers of its blocks wait.
const SHARDS: usize = 128;

fn cache(blocks: usize, bytes: u64) -> Cache<u64, Block, BlockWeight> {
    let options = OptionsBuilder::new()
        .shards(SHARDS)
        .estimated_items_capacity(blocks)
        // STORE-2
        .weight_capacity(bytes)
        .build()
        .expect("both capacities are given");
    Cache::with_options(
        options,
        BlockWeight,
        DefaultHashBuilder::default(),
        DefaultLifecycle::default(),
    )
}

impl NodeStore {
    pub fn new(pool: Arc<Pool>, options: &StoreOptions) -> NodeStore {
        let nodesize = u64::from(pool.superblock().nodesize.get());
        let blocks = (options.cache_bytes / nodesize).max(16);
        let cache = cache(blocks as usize, options.cache_bytes);
        NodeStore {
            given_seed_fsids: pool.seed_fsids(),
            seed_fsids: OnceLock::new(),
            pool,
            cache,
            staged: StagedBlocks::default(),
            staged_budget_bytes: staged_budget(options.cache_bytes, nodesize),
            epochs: Epochs::new(),
            staged_generation: AtomicU64::new(0),
            read_ahead_blocks: options.read_ahead_blocks,
            ignore_csums: options.ignore_csums,
            ignore_flags: options.ignore_flags,
            marks: MarkWatch::new(options.finds_marks),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            read_ahead: AtomicU64::new(0),
        }
    }

    /// Returns the marks of makers in the blocks read so far, if they are looked for.
    pub fn marks(&self) -> Marks {
        self.marks.found()
    }

    /// Sets the watcher, which is called for marks. The caller checks [`NodeStore::marks`] afterwards. Only the first call
    /// has an effect.
    pub fn watch_marks(&self, watcher: Weak<dyn MarkWatcher>) {
        self.marks.set_watcher(watcher);
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

    /// Accepts blocks with the fsids of the seed volumes in the chunk tree. Only the first call has an effect.
    pub fn adopt_seeds(&self) {
        self.seed_fsids.get_or_init(|| self.pool.seed_fsids());
    }

    /// Returns the properties that all blocks of the volume share.
    pub fn context(&self) -> BlockContext<'_> {
        let opened = BlockContext::new(self.pool.superblock());
        let staged = Transid(self.staged_generation.load(Ordering::Relaxed));
        BlockContext {
            seed_fsids: self.seed_fsids.get().unwrap_or(&self.given_seed_fsids),
            generation: opened.generation.max(staged),
            ignore_flags: self.ignore_flags,
            ..opened
        }
    }

    fn is_aligned(&self, bytenr: Logical) -> bool {
        bytenr
            .0
            .is_multiple_of(u64::from(self.pool.superblock().sectorsize.get()))
    }

    /// Reads the block described by `expect`, from the cache or from the first mirror with a valid copy.
    pub fn read(&self, tree: RootId, expect: &Expect) -> Result<Block, TreeError> {
        self.read_by(tree, expect, false)
    }

    /// Reads like [`NodeStore::read`], and repairs damaged mirrors of the block.
    ///
    /// The caller keeps the space of the block from being reused until the call returns (STORE-6). It holds an epoch
    /// that precedes the look-up of the address, or the subvolume, or it is the commit that changes the tree.
    pub fn read_held(&self, tree: RootId, expect: &Expect) -> Result<Block, TreeError> {
        self.read_by(tree, expect, true)
    }

    fn read_by(&self, tree: RootId, expect: &Expect, is_held: bool) -> Result<Block, TreeError> {
        let bytenr = expect.bytenr;
        if !self.is_aligned(bytenr) {
            return Err(TreeError::Misaligned { tree, bytenr });
        }
        if let Some(block) = self.resident(bytenr) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return self.as_expected(tree, block, expect);
        }
        // One thread reads a cold block and the others wait at its guard, unless they must not block.
        let patience = nonblocking::is_set().then_some(Duration::ZERO);
        let block = match self.cache.get_value_or_guard(&bytenr.0, patience) {
            GuardResult::Value(block) => block,
            GuardResult::Guard(place) => {
                let block = self.read_cold(tree, expect, is_held)?;
                // STORE-5: fails if the slot was voided concurrently.
                let _ = place.insert(block.clone());
                block
            }
            GuardResult::Timeout => return Err(WouldBlock.into()),
        };
        self.as_expected(tree, block, expect)
    }

    /// STORE-3: a staged block takes precedence over a cached one.
    fn resident(&self, bytenr: Logical) -> Option<Block> {
        // STAGED-1
        let staged = self.staged.get(bytenr);
        staged.or_else(|| self.cache.get(&bytenr.0))
    }

    /// Checks that the bytes are the block described by `expect`.
    fn check(
        &self,
        block: &[u8],
        context: &BlockContext<'_>,
        expect: &Expect,
    ) -> Result<(), CorruptBlock> {
        match Node::new(block) {
            Some(node) if self.ignore_csums && block.len() == self.nodesize() => {
                check::check_expected(node, context, expect)?;
                check::check_content(node, context)
            }
            _ => check::check_block(block, context, expect),
        }
    }

    fn read_cold(&self, tree: RootId, expect: &Expect, is_held: bool) -> Result<Block, TreeError> {
        self.misses.fetch_add(1, Ordering::Relaxed);
        let nodesize = self.nodesize();
        let mut bytes = zeroed(nodesize);
        let mut last = None;
        let context = self.context();
        let mut good = |_: usize, block: &[u8]| match self.check(block, &context, expect) {
            Ok(()) => true,
            Err(reason) => {
                last = Some(reason);
                false
            }
        };
        let (pool, bytenr) = (&self.pool, expect.bytenr);
        let read = if is_held && self.may_repair(expect) {
            pool.read_repairing(bytenr, &mut bytes, nodesize, &mut good)
        } else {
            pool.read_checked(bytenr, &mut bytes, nodesize, &mut good)
        };
        match (read, last) {
            (Ok(()), _) => {
                let block = Block::from_verified(bytes);
                self.marks.note(block.node());
                Ok(block)
            }
            (Err(source), _) if source.is_would_block() => Err(WouldBlock.into()),
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

    /// Returns whether a read may write the block to its damaged mirrors (STORE-6). Without its generation, an older
    /// block at the address would be accepted, and it is not verified at all without checksums.
    fn may_repair(&self, expect: &Expect) -> bool {
        expect.generation.is_some() && !self.ignore_csums
    }

    /// Reads the blocks that are not cached, at queue depth. Errors are ignored: the search that needs the block
    /// reports them. The caller keeps their space from being reused (STORE-6).
    pub(crate) fn prefetch(&self, expects: &[Expect]) {
        self.read_cold_batch(&self.cold(expects));
    }

    /// Reads blocks ahead like [`NodeStore::prefetch`], for large batches: one thread verifies its blocks while
    /// another waits for IO. Returns all blocks that were read or already cached, because a full cache may drop many
    /// of them before use.
    pub(crate) fn read_batch(&self, expects: &[Expect]) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut cold = Vec::new();
        for expect in expects {
            match self.cache.peek(&expect.bytenr.0) {
                Some(block) => blocks.push(block),
                None if self.may_be_read_ahead(expect) => cold.push(expect),
                None => {}
            }
        }
        let cold = worth_a_batch(cold);
        if cold.len() < 2 * LEAST_OF_A_THREAD || nonblocking::is_set() {
            blocks.extend(self.read_cold_batch(&cold));
            return blocks;
        }
        let (here, beside) = cold.split_at(cold.len() / 2);
        let both = thread::scope(|scope| {
            let reader = thread::Builder::new().name("ubtrfs-read".to_owned());
            let reader = reader.spawn_scoped(scope, || self.read_cold_batch(beside));
            let here = self.read_cold_batch(here);
            let beside = match reader {
                Ok(reader) => reader.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // The system could not start a thread.
                Err(_) => self.read_cold_batch(beside),
            };
            [here, beside]
        });
        blocks.extend(both.into_iter().flatten());
        blocks
    }

    /// Returns a block that a reader has kept since it was read, if it matches `expect`.
    pub(crate) fn kept(
        &self,
        tree: RootId,
        block: Block,
        expect: &Expect,
    ) -> Result<Block, TreeError> {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.as_expected(tree, block, expect)
    }

    fn cold<'e>(&self, expects: &'e [Expect]) -> Vec<&'e Expect> {
        let cold = expects
            .iter()
            .filter(|e| self.is_aligned(e.bytenr) && !self.is_cached(e.bytenr));
        worth_a_batch(cold.collect())
    }

    fn may_be_read_ahead(&self, expect: &Expect) -> bool {
        self.is_aligned(expect.bytenr) && self.staged.get(expect.bytenr).is_none()
    }

    /// Reads the blocks and returns the valid ones.
    fn read_cold_batch(&self, cold: &[&Expect]) -> Vec<Block> {
        let parts = cold.chunks(MAX_PLACES);
        parts.flat_map(|part| self.read_cold_part(part)).collect()
    }

    fn read_cold_part(&self, cold: &[&Expect]) -> Vec<Block> {
        let nodesize = self.nodesize();
        let context = self.context();
        // Another reader may have cached one of them by now, or be reading it.
        let cold: Vec<(&Expect, Place<'_>)> = cold
            .iter()
            .filter_map(|expect| Some((*expect, self.place(expect.bytenr)?)))
            .collect();
        let mut blocks: Vec<Box<[u8]>> = cold.iter().map(|_| zeroed(nodesize)).collect();
        let mut checks: Vec<_> = cold
            .iter()
            .map(|(expect, _)| {
                let context = &context;
                move |_: usize, block: &[u8]| self.check(block, context, expect).is_ok()
            })
            .collect();
        let mut reads: Vec<CheckedRead<'_>> = blocks
            .iter_mut()
            .zip(&mut checks)
            .zip(&cold)
            .map(|((buf, good), (expect, _))| CheckedRead {
                logical: expect.bytenr,
                buf,
                block_bytes: nodesize,
                good,
                repairs: self.may_repair(expect),
                result: Ok(()),
            })
            .collect();
        self.pool.read_checked_batch(&mut reads);
        let sound: Vec<bool> = reads.iter().map(|read| read.result.is_ok()).collect();
        drop(reads);
        let mut read = Vec::new();
        for ((block, sound), (_, place)) in blocks.into_iter().zip(sound).zip(cold) {
            if sound {
                self.read_ahead.fetch_add(1, Ordering::Relaxed);
                let block = Block::from_verified(block);
                self.marks.note(block.node());
                read.push(block.clone());
                // STORE-5
                let _ = place.insert(block);
            }
        }
        read
    }

    /// Returns a reserved cache slot for a block, or None if the block is cached or being read by another thread.
    fn place(&self, bytenr: Logical) -> Option<Place<'_>> {
        match self
            .cache
            .get_value_or_guard(&bytenr.0, Some(Duration::ZERO))
        {
            GuardResult::Guard(place) => Some(place),
            GuardResult::Value(_) | GuardResult::Timeout => None,
        }
    }

    /// STORE-1: a cached block may have been read through another parent.
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

    /// Returns the capacity of the cache in blocks.
    pub(crate) fn cache_blocks(&self) -> usize {
        (self.cache.capacity() / self.nodesize() as u64) as usize
    }

    /// Empties the cache.
    #[cfg(test)]
    pub(crate) fn forget_blocks(&self) {
        self.cache.clear();
    }

    pub(crate) fn is_cached(&self, bytenr: Logical) -> bool {
        self.staged.get(bytenr).is_some() || self.cache.peek(&bytenr.0).is_some()
    }
}

/// Calls of a commit, in this order: stage blocks as they are built, write them, and cache them.
impl NodeStore {
    /// Seals a new block and makes it readable at its address. Returns an error for a block that the kernel would
    /// reject, so that it never reaches a device.
    pub fn stage(&self, block: TreeBlock) -> Result<Block, TreeError> {
        let TreeBlock {
            logical: bytenr,
            owner: tree,
            mut bytes,
            ..
        } = block;
        if !self.is_aligned(bytenr) {
            return Err(TreeError::Misaligned { tree, bytenr });
        }
        self.check_writable(tree, bytenr, &bytes)
            .map_err(|reason| TreeError::Unwritable {
                tree,
                bytenr,
                reason,
            })?;
        self.pool.superblock().csum_type().seal_block(&mut bytes);
        let block = Block::from_verified(bytes.into());
        self.staged_generation
            .fetch_max(block.node().generation().0, Ordering::Relaxed);
        // STORE-3: staged before the cached block is removed, so that no reader goes to the device in between. The
        // removal also voids concurrent reads (STORE-5).
        self.staged.insert(bytenr, block.clone());
        self.cache.remove(&bytenr.0);
        Ok(block)
    }

    fn check_writable(
        &self,
        tree: RootId,
        bytenr: Logical,
        block: &[u8],
    ) -> Result<(), CorruptBlock> {
        let node = match Node::new(block) {
            Some(node) if block.len() == self.nodesize() => node,
            _ => {
                return Err(CorruptBlock::Size {
                    wanted: self.pool.superblock().nodesize.get(),
                    found: block.len(),
                });
            }
        };
        // Pointers and items in a block may not be newer than the transaction that writes it.
        let context = BlockContext {
            generation: Transid(node.generation().0.saturating_sub(1)),
            ..self.context()
        };
        let expect = Expect {
            owner: Some(tree),
            ..Expect::at(bytenr)
        };
        check::check_expected(node, &context, &expect)?;
        check::check_content(node, &context)?;
        // STORE-7
        match Marks::of_block(node) {
            Marks::NONE => Ok(()),
            marks => Err(CorruptBlock::Marked(marks)),
        }
    }

    /// Drops a staged block that was replaced before it was written. Returns whether there was one.
    pub fn unstage(&self, bytenr: Logical) -> bool {
        self.staged.remove(bytenr).is_some()
    }

    /// Returns the staged blocks, in address order.
    pub fn staged(&self) -> Vec<Block> {
        self.staged.all()
    }

    pub fn staged_bytes(&self) -> u64 {
        (self.staged.count() * self.nodesize()) as u64
    }

    /// Returns the peak of the staged bytes.
    pub fn most_staged_bytes(&self) -> u64 {
        (self.staged.most() * self.nodesize()) as u64
    }

    pub fn staged_budget_bytes(&self) -> u64 {
        self.staged_budget_bytes
    }

    /// STORE-4
    pub fn is_over_staged_budget(&self) -> bool {
        self.staged_bytes() > self.staged_budget_bytes
    }

    /// Moves blocks that are on disk now from staging to the cache.
    pub fn cache_written(&self, blocks: &[Block]) {
        for block in blocks {
            let bytenr = block.node().bytenr();
            // STAGED-2
            self.cache.insert(bytenr.0, block.clone());
            self.staged.remove_same(block);
        }
    }

    /// Caches all staged blocks as written, like [`NodeStore::cache_written`].
    pub fn cache_all_written(&self) {
        self.cache_written(&self.staged());
    }

    /// Removes a freed block from the cache.
    pub fn forget(&self, bytenr: Logical) {
        self.cache.remove(&bytenr.0);
    }
}

/// Epochs: the states of the volume that readers use.
impl NodeStore {
    /// Returns the current token. Take it before the data that it is to protect.
    pub fn epoch(&self) -> Arc<Epoch> {
        self.epochs.hold()
    }

    pub(crate) fn hold_epoch_briefly(&self) -> Guard<Arc<Epoch>> {
        self.epochs.hold_briefly()
    }

    /// Installs a new token after the layers of a commit were published, and returns the old one. No reader uses the
    /// old state once the returned reference is the only one (`Arc::strong_count` is 1), and this also holds for all
    /// older tokens.
    pub fn next_epoch(&self) -> Arc<Epoch> {
        self.epochs.advance()
    }
}

/// Sorts blocks by address, so that the kernel can merge adjacent ones into one request. Returns an empty list if
/// there are too few for a batch.
fn worth_a_batch(mut cold: Vec<&Expect>) -> Vec<&Expect> {
    cold.sort_unstable_by_key(|expect| expect.bytenr);
    if cold.len() < 2 {
        cold.clear();
    }
    cold
}

fn zeroed(len: usize) -> Box<[u8]> {
    vec![0; len].into_boxed_slice()
}
