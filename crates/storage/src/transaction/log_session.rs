//! Writing the logs of the running transaction: trees of items that were fsynced since the last commit.
//!
//! Each fsynced subvolume has a log tree. The log root tree points to them, and the superblock to the log root tree.
//!
//! Invariants
//! - LOG-1: a log extends the last durable superblock. It is written while no commit is in progress, and ends with the
//!   next commit.
//! - LOG-2: a block that the log on the devices needs is not changed. Its place can be reused for other log blocks
//!   after a log without it is durable. All other allocations get it only after the next commit is durable.
//! - LOG-3: the superblock that names a log is written after the flush of its blocks and of all data written before.
//! - LOG-4: blocks of a log are allocated in chunks that the last commit has recorded.
//! - LOG-6: every present device must accept its copy of a block, and the superblock. Otherwise a mirror might keep the
//!   block of an earlier log. It cannot be distinguished from the new one, because both have the same transid. The same
//!   is true of the superblocks. If a device fails, a commit replaces the log.
//! - LOG-7: if a place is reused, only the parts of the block that differ from the old contents are written (`log_places`).
//!
//! Locks: `committing`, then the state.
//! Not here: the items in memory, and LOG-5 (`log_trees`); the choice of items (`log` of the file system), replay.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use ubtrfs_device::Reached;
use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{
    ApplyIo, Block, BlockFormat, BlockSink, BulkTree, Change, CommittedRoot, TreeBlock, apply,
};
use zerocopy::IntoBytes;

use super::commit::write_blocks;
use super::failpoint::{Failpoint, reach};
use super::full_commit_reason::FullCommitReason;
use super::log_places::Places;
use super::log_trees::{LogState, LogTree, item_bytes};
use super::manager::TransactionManager;
use crate::error::{Error, Result};
use crate::roots::{Roots, Tree};

/// Spare places are allocated only if this number of blocks stays available.
const PLACES_LEFT: u64 = 1024;

/// Permission to write a log. It prevents commits.
#[derive(Debug)]
pub struct LogSession<'m> {
    manager: &'m TransactionManager,
    transid: Transid,
    state: MutexGuard<'m, LogState>,
    alone: MutexGuard<'m, ()>,
}

/// The outcome of a log write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOutcome {
    Written,
    /// The chunks recorded by the last commit have no room for it.
    NoRoom,
    /// A device may lack a part of it. A commit, which that device need not accept, must make it void.
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
    /// Returns the transaction of the log.
    pub fn transid(&self) -> Transid {
        self.transid
    }

    /// Calls `work` while no operation edits any tree.
    ///
    /// `work` must not join the transaction, and should not wait, because it blocks all operations.
    pub fn without_edits<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let manager = self.manager;
        let _closed = manager.running.write();
        work(self)
    }

    /// Returns an item in the log of a subvolume.
    pub fn get(&self, subvolume: RootId, key: &Key) -> Option<&Arc<[u8]>> {
        self.state.subvolumes.get(&subvolume)?.items.get(key)
    }

    /// Returns the items in a range of keys from the log of a subvolume, ascending.
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

    /// Commits instead of writing the log.
    pub fn commit_instead(self, reason: FullCommitReason) -> Result<()> {
        let count = &self.manager.counters.full_commits[reason as usize];
        count.fetch_add(1, Ordering::Relaxed);
        // The commit locks the state itself. `committing` stays locked.
        drop(self.state);
        self.manager.commit_alone(self.alone)
    }

    /// Makes the contents of the log durable, and the data written before.
    ///
    /// Errors: IO. The log on the devices is then either the old or the new one; a commit makes both void. If a flush
    /// or a superblock write fails that a commit would also need, the transaction is aborted, because earlier writes
    /// may be lost.
    pub fn write(&mut self) -> Result<LogOutcome> {
        let outcome = self.write_changes();
        if !matches!(outcome, Ok(LogOutcome::Written)) {
            // Otherwise the commit that replaces this log would write them.
            let store = self.manager.roots.node_store();
            for place in self.state.places.taken() {
                store.unstage(place);
            }
        }
        outcome
    }

    fn write_changes(&mut self) -> Result<LogOutcome> {
        // Until the superblock is written at the end, a failure leaves the old log in effect.
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
            // Last, because it contains the roots of all other log trees.
            state.roots.build(&format, &mut io)?;
            Ok(())
        };
        match built() {
            Err(Error::NoSpace) if io.is_full => return Ok(LogOutcome::NoRoom),
            outcome => outcome?,
        }
        // No item has changed, so the log on the devices is complete. Only data needs a flush.
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
        // Read before the writes, so that no failed flush that may cover them is missed.
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
        // From here on, the devices have this log. A failure that hides it from this state would break LOG-2.
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
    /// Builds the blocks that have changed since the last write. Returns None without such a block.
    fn build(&mut self, format: &BlockFormat, io: &mut LogIo<'_>) -> Result<Option<CommittedRoot>> {
        if self.changed.is_empty() {
            return Ok(None);
        }
        let root = match &self.root {
            Some(root) => {
                // A stable sort: the last change of a key stays the last.
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

/// Creates the root item of a log tree.
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

    /// Allocates places for future blocks of a growing log. In a hole of an image file, every write to a new place
    /// would make the host file system allocate blocks and update its metadata.
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
