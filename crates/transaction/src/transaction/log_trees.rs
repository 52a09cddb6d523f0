//! The logs of the running transaction: trees of items that were synced since the last commit.
//!
//! Each subvolume that was synced has a log tree; the log root tree names them, and the superblock names that. All items of
//! a log are kept in memory as well, where they share bytes with the sets that they were copied from.
//!
//! Invariants
//! - LOG-1: a log goes on from the last durable superblock. It is written while no commit is in progress, and ends with
//!   the next one.
//! - LOG-2: a block that the log on the devices needs is not changed. Its place is used again by blocks of logs alone, and
//!   only after a log without it is durable. All else gets it after the next commit is.
//! - LOG-3: the superblock that names a log is written after its blocks, and all data written before, were flushed.
//! - LOG-4: blocks of a log lie in chunks that the last commit knows.
//! - LOG-5: before the next commit changes the first copy of the superblock, the other copies name the log. So what was
//!   synced is not lost with a copy that a power cut tears.
//! - LOG-6: every device that is there takes its copy of a block, and the superblock. Else a mirror might keep the block
//!   of an earlier log, which cannot be told from the new one: both are of one transaction. So are the superblocks. A
//!   commit takes the place of a log that a device did not take.
//! - LOG-7: of a block in a place again, the parts are written that differ from what lies there (`places`).
//!
//! Locks: `committing`, then the state.
//! Not here: which items are synced (`log` of the engine), replay.

mod places;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use ubtrfs_device::{Pool, Reached};
use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_tree::{
    ApplyIo, Block, BlockFormat, BlockSink, BulkTree, Change, CommittedRoot, TreeBlock, apply,
};
use zerocopy::IntoBytes;

use super::commit::write_blocks;
use super::failpoint::{Failpoint, reach};
use super::manager::TransactionManager;
use super::stats::Unlogged;
use crate::error::{Error, Result};
use crate::roots::{Roots, Tree};
use crate::space::Space;
use places::Places;

/// The logs since the last commit.
#[derive(Debug, Default)]
pub(super) struct LogTrees {
    state: Mutex<State>,
    /// The memory that their items take, about. None from the freeze on, as of the edits that it sets apart.
    bytes: AtomicI64,
    /// The memory of blocks that are kept to know what lies in places to be used again. None from the freeze on.
    idle_bytes: AtomicU64,
}

/// Places are got ahead only while there is room for so many more.
const PLACES_LEFT: u64 = 1024;

/// Estimates the memory of an item in a log: itself, its key and its share of the map.
fn item_bytes(item: &[u8]) -> i64 {
    (item.len() + 3 * size_of::<Key>() + 64) as i64
}

#[derive(Debug, Default)]
struct State {
    subvolumes: BTreeMap<RootId, LogTree>,
    /// The log root tree.
    roots: LogTree,
    places: Places,
    /// The durable superblock that names the log.
    superblock: Option<Superblock>,
}

/// One tree of a log.
#[derive(Debug, Default)]
struct LogTree {
    /// None for the log root tree.
    subvolume: Option<Arc<Tree>>,
    items: BTreeMap<Key, Arc<[u8]>>,
    /// The changes of items since they were written. Of a key the last one counts.
    changed: Vec<(Key, Option<Arc<[u8]>>)>,
    root: Option<CommittedRoot>,
}

impl LogTrees {
    /// Has the other copies of the superblock name the log. They become durable with the next flush.
    pub(super) fn copy_superblock(&self, pool: &Pool) -> Result<()> {
        match &self.state.lock().superblock {
            // LOG-5
            Some(superblock) => Ok(pool.write_other_superblocks(superblock)?),
            None => Ok(()),
        }
    }

    /// Returns the memory of the logs of the running transaction.
    pub(super) fn bytes(&self) -> u64 {
        let items = self.bytes.load(Ordering::Relaxed).max(0) as u64;
        items + self.idle_bytes.load(Ordering::Relaxed)
    }

    /// Resets the memory counts, since the transaction of the logs is frozen: the memory is not the next one's. No log
    /// is written until `end`.
    pub(super) fn freeze(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.idle_bytes.store(0, Ordering::Relaxed);
    }

    /// Ends the logs, since a commit is durable. The logs before it are void, and their places are freed with the
    /// extents that it has freed.
    pub(super) fn end(&self, space: &Space, nodesize: u64) {
        let state = std::mem::take(&mut *self.state.lock());
        let trees = state.subvolumes.values();
        for subvolume in trees.filter_map(|tree| tree.subvolume.as_ref()) {
            subvolume.log_journal.end();
        }
        for place in state.places.into_all() {
            space.pin(place, nodesize);
        }
    }
}

/// The right to write a log: no commit is in progress while this lives.
#[derive(Debug)]
pub struct LogSession<'m> {
    manager: &'m TransactionManager,
    transid: Transid,
    state: MutexGuard<'m, State>,
    alone: MutexGuard<'m, ()>,
}

/// The outcome of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOutcome {
    Written,
    /// There is no room for it in the chunks that the last commit knows.
    NoRoom,
    /// A device may lack a part of it. A commit, which that device need not take, makes it void.
    Incomplete,
}

impl TransactionManager {
    /// Begins to write the log of the running transaction. Waits for a commit in progress (LOG-1).
    pub fn log_session(&self) -> Result<LogSession<'_>> {
        self.check_may_commit()?;
        let alone = self.committing.lock();
        self.check_alive()?;
        Ok(LogSession {
            manager: self,
            transid: self.running_transid(),
            state: self.logs.state.lock(),
            alone,
        })
    }
}

impl LogSession<'_> {
    /// Returns the transaction that the log is of.
    pub fn transid(&self) -> Transid {
        self.transid
    }

    /// Does something while no operation edits any tree.
    ///
    /// Nothing in it may join the transaction, and it should not wait: all operations wait for it.
    pub fn without_edits<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let manager = self.manager;
        let _closed = manager.running.write();
        work(self)
    }

    /// Returns the item that the log of a subvolume has.
    pub fn get(&self, subvolume: RootId, key: &Key) -> Option<&Arc<[u8]>> {
        self.state.subvolumes.get(&subvolume)?.items.get(key)
    }

    /// Returns the items of the log of a subvolume in a range of keys, ascending.
    pub fn items_in(
        &self,
        subvolume: RootId,
        range: RangeInclusive<Key>,
    ) -> impl DoubleEndedIterator<Item = (&Key, &Arc<[u8]>)> {
        let tree = self.state.subvolumes.get(&subvolume);
        tree.into_iter()
            .flat_map(move |tree| tree.items.range(range.clone()))
    }

    pub fn put(&mut self, subvolume: &Arc<Tree>, key: Key, item: Arc<[u8]>) {
        let of = |tree| LogTree {
            subvolume: Some(tree),
            ..LogTree::default()
        };
        let trees = &mut self.state.subvolumes;
        let tree = trees
            .entry(subvolume.id())
            .or_insert_with(|| of(Arc::clone(subvolume)));
        let grown = tree.put(key, item);
        self.manager.logs.bytes.fetch_add(grown, Ordering::Relaxed);
    }

    pub fn delete(&mut self, subvolume: RootId, key: Key) {
        if let Some(tree) = self.state.subvolumes.get_mut(&subvolume)
            && let Some(item) = tree.items.remove(&key)
        {
            tree.changed.push((key, None));
            let bytes = &self.manager.logs.bytes;
            bytes.fetch_sub(item_bytes(&item), Ordering::Relaxed);
        }
    }

    /// Commits in place of the log.
    pub fn commit_instead(self, reason: Unlogged) -> Result<()> {
        let count = &self.manager.counters.unlogged[reason as usize];
        count.fetch_add(1, Ordering::Relaxed);
        drop(self.state);
        self.manager.commit_alone(self.alone)
    }

    /// Makes durable what the log has, and the data written before.
    ///
    /// Errors: IO. The log on the devices is then as it was before, or as it is now; a commit makes both void. A flush or a
    /// superblock that fails aborts the transaction where a commit could not do without it: what was written before may be
    /// lost.
    pub fn write(&mut self) -> Result<LogOutcome> {
        let outcome = self.write_changes();
        if !matches!(outcome, Ok(LogOutcome::Written)) {
            // The commit that takes its place would write them.
            let store = self.manager.roots.node_store();
            for place in self.state.places.taken() {
                store.unstage(place);
            }
        }
        outcome
    }

    fn write_changes(&mut self) -> Result<LogOutcome> {
        let manager = self.manager;
        let format = manager.roots.block_format(self.transid);
        let state = &mut *self.state;
        let mut io = LogIo {
            manager,
            committed: manager.committed(),
            places: &mut state.places,
            is_full: false,
        };
        let nodesize = manager.roots.superblock().nodesize.get();
        let mut is_changed = false;
        let mut built = || -> Result<()> {
            for (subvolume, tree) in &mut state.subvolumes {
                if let Some(root) = tree.build(&format, &mut io)? {
                    is_changed = true;
                    let key = Key::new(RootId::TREE_LOG.0, KeyType::ROOT_ITEM, subvolume.0);
                    let item = root_item(&root, nodesize);
                    state.roots.put(key, item.as_bytes().into());
                }
            }
            state.roots.build(&format, &mut io)?;
            Ok(())
        };
        match built() {
            Err(Error::NoSpace) if io.is_full => return Ok(LogOutcome::NoRoom),
            outcome => outcome?,
        }
        let Some(root) = state.roots.root.filter(|_| is_changed) else {
            manager.flush_data()?;
            return Ok(LogOutcome::Written);
        };
        let roots = &*manager.roots;
        let staged = roots.node_store().staged();
        let parts = staged
            .iter()
            .flat_map(|block| state.places.parts_to_write(block));
        reach(Failpoint::LogBuilt)?;
        let failed_flushes = roots.pool().failed_flushes();
        let written = write_blocks(parts, |writes| {
            // LOG-6
            roots.pool().write_all_copies(writes)
        })?;
        roots.node_store().cache_written(&staged);
        manager
            .counters
            .log_bytes
            .fetch_add(written, Ordering::Relaxed);
        reach(Failpoint::LogBlocksWritten)?;
        // LOG-3
        manager.flush()?;
        // LOG-6: a flush of data by another thread may have covered the blocks.
        if roots.pool().failed_flushes() != failed_flushes {
            return Ok(LogOutcome::Incomplete);
        }
        reach(Failpoint::LogBlocksDurable)?;
        let mut superblock = (*roots.superblock()).clone();
        superblock.log_root = root.bytenr.0.into();
        superblock.log_root_level = root.level;
        let reached =
            manager.write_superblock(&superblock, Failpoint::LogSuperblockOnSomeDevices)?;
        // LOG-6
        let Reached::All = reached else {
            return Ok(LogOutcome::Incomplete);
        };
        reach(Failpoint::LogSuperblockDurable).inspect_err(|error| manager.abort(error))?;
        state.places.written();
        let idle_bytes = state.places.idle() as u64 * u64::from(nodesize);
        manager.logs.idle_bytes.store(idle_bytes, Ordering::Relaxed);
        state.superblock = Some(superblock);
        manager.counters.logs.fetch_add(1, Ordering::Relaxed);
        Ok(LogOutcome::Written)
    }
}

impl LogTree {
    /// Returns by how many bytes its items grew.
    fn put(&mut self, key: Key, item: Arc<[u8]>) -> i64 {
        let bytes = item_bytes(&item);
        let grown = match self.items.entry(key) {
            Entry::Occupied(old) if **old.get() == *item => return 0,
            Entry::Occupied(mut old) => bytes - item_bytes(&old.insert(Arc::clone(&item))),
            Entry::Vacant(vacant) => {
                vacant.insert(Arc::clone(&item));
                bytes
            }
        };
        self.changed.push((key, Some(item)));
        grown
    }

    /// Builds the blocks that differ from what was written. None if none does.
    fn build(&mut self, format: &BlockFormat, io: &mut LogIo<'_>) -> Result<Option<CommittedRoot>> {
        if self.changed.is_empty() {
            return Ok(None);
        }
        let root = match &self.root {
            Some(root) => {
                // A stable sort: the last of a key stays the last.
                self.changed.sort_by_key(|(key, _)| *key);
                let by_key = self.changed.chunk_by(|(key, _), (next, _)| key == next);
                let changes: Vec<Change<'_>> = by_key
                    .filter_map(|of_key| of_key.last())
                    .map(|(key, item)| Change::from((*key, item.as_deref())))
                    .collect();
                apply(format, root, &changes, io)?
            }
            None => {
                let mut tree = BulkTree::new(format, RootId::TREE_LOG, io);
                for (key, item) in &self.items {
                    tree.push(*key, item)?;
                }
                let root = tree.finish()?;
                CommittedRoot {
                    tree: RootId::TREE_LOG,
                    bytenr: root.logical,
                    level: root.level,
                    generation: Some(format.generation),
                }
            }
        };
        self.changed.clear();
        self.root = Some(root);
        Ok(Some(root))
    }
}

/// Creates the item of a log tree in the log root tree.
fn root_item(root: &CommittedRoot, nodesize: u32) -> RootItem {
    let mut item = RootItem::new_internal(nodesize);
    let transid = root.generation.unwrap_or_default().0;
    item.bytenr = root.bytenr.0.into();
    item.level = root.level;
    item.generation = transid.into();
    item.generation_v2 = transid.into();
    item.refs = 0.into();
    item
}

/// The blocks of a log.
struct LogIo<'m> {
    manager: &'m TransactionManager,
    committed: Transid,
    places: &'m mut Places,
    is_full: bool,
}

impl LogIo<'_> {
    fn roots(&self) -> &Roots {
        &self.manager.roots
    }

    fn allocate(&self) -> Option<Logical> {
        #[cfg(any(test, feature = "testing"))]
        if super::testing::is_refused() {
            return None;
        }
        self.manager.space.allocate_log_block(self.committed, 0)
    }

    /// Gets places for the blocks by which a log that grows will have grown soon. In the hole of an image each write
    /// would have the file system below allocate blocks and write down where they are, again and again.
    fn allocate_ahead(&mut self) {
        let nodesize = u64::from(self.roots().superblock().nodesize.get());
        let mut spare = Vec::new();
        for _ in 0..self.places.wanted_ahead() {
            let left_bytes = PLACES_LEFT * nodesize;
            let Some(place) = self
                .manager
                .space
                .allocate_log_block(self.committed, left_bytes)
            else {
                break;
            };
            spare.push(place);
        }
        spare.sort_unstable();
        for run in spare.chunk_by(|place, next| place.0 + nodesize == next.0) {
            let len = run.len() as u64 * nodesize;
            self.roots().pool().fill_holes(run[0], len);
        }
        self.places.add_spare(spare);
    }
}

impl BlockSink for LogIo<'_> {
    type Error = Error;

    fn place(&mut self, level: u8, first_key: &Key) -> Result<Logical> {
        // LOG-2
        if let Some(place) = self.places.take_idle(level, first_key) {
            return Ok(place);
        }
        if let Some(place) = self.places.take_spare() {
            return Ok(place);
        }
        let place = self.allocate();
        self.is_full |= place.is_none();
        let place = place.ok_or(Error::NoSpace)?;
        self.places.take_new(place);
        self.allocate_ahead();
        Ok(place)
    }

    fn emit(&mut self, block: TreeBlock) -> Result<()> {
        self.roots().node_store().stage(block)?;
        Ok(())
    }
}

impl ApplyIo for LogIo<'_> {
    fn read(&mut self, expect: &Expect) -> Result<Block> {
        Ok(self.roots().node_store().read(RootId::TREE_LOG, expect)?)
    }

    fn retire(&mut self, old: &Block) -> Result<()> {
        self.places.retire(old.clone());
        Ok(())
    }
}
