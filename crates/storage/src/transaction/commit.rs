//! The commit: from the edits of one transaction to a new superblock.
//!
//! The phases are the lines of [`Commit::finish`]. Operations continue after the freeze; their edits belong to the next
//! transaction.
//!
//! Invariants
//! - COMMIT-1: nothing on disk that the last durable superblock leads to is overwritten.
//! - COMMIT-2: the superblock is written only after everything that it leads to was flushed.
//! - COMMIT-3: the used bytes of block groups and the free-space tree are derived from the extent items of this commit.
//!   They are never derived from the allocator, which already serves the next transaction.
//! - COMMIT-4: every changed block passes the tree checker before it is written.
//! - COMMIT-5: a commit fails before it writes if another program has overwritten the superblock of a device.
//!
//! Locks: `TransactionManager::committing` throughout; the freeze guard alone for the pointer swaps.
//! Not here: when to commit (`background`), the references of blocks shared with a snapshot (`blocks`).

mod blocks;
mod cleaner;
mod converge;
mod device_errors;
mod devices;
mod empty_groups;
mod freeze;
mod output;
mod publish;
mod rebuild;
mod relocate;
mod space_items;
mod subvolumes;

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use ubtrfs_device::{clock, nonblocking};
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::Key;
use ubtrfs_tree::{Change, CommittedRoot, FrozenSet, View, apply};

use super::failpoint::{Failpoint, reach};
use super::manager::TransactionManager;
use super::pending_subvolumes::{PendingSubvolume, Puts};
use super::relocation::RelocationBatch;
use super::reservation::EditCounts;
use super::stats::CommitPhases;
use super::superblock_edits::SuperblockEdits;
use crate::error::{Error, Result};
use crate::roots::{Roots, Tree};
use crate::space::RemovedGroup;
use blocks::{BlockIo, Blocks};
pub(super) use output::write as write_blocks;
pub(crate) use rebuild::free_by_extents;
use space_items::GroupChanges;

/// The state of a tree within the commit.
#[derive(Debug)]
struct CommitTree {
    tree: Arc<Tree>,
    root: CommittedRoot,
    /// The root item as of the freeze.
    item: RootItem,
    frozen: Option<Arc<FrozenSet>>,
    /// Number of blocks allocated minus blocks dropped.
    blocks: i64,
    /// Whether the item in the root tree is outdated.
    item_is_stale: bool,
}

/// A commit in progress.
struct Commit<'v> {
    roots: &'v Roots,
    manager: &'v TransactionManager,
    transid: Transid,
    /// The number and size of the operations' edits.
    counts: EditCounts,
    trees: BTreeMap<RootId, CommitTree>,
    pending_subvolumes: Vec<PendingSubvolume>,
    /// Items for a new UUID tree on a volume without one.
    uuids: Puts,
    blocks: Blocks<'v>,
    /// Changes of block groups and the free-space tree that result from extent items.
    groups: BTreeMap<Logical, GroupChanges>,
    /// Data extents whose checksums must be removed.
    freed_data: Vec<(Logical, u64)>,
    /// Inodes that the commit itself changed: the parent directories of new subvolumes.
    changed_inodes: Vec<(Arc<Tree>, u64)>,
    /// Subvolumes whose last block was freed.
    dropped_roots: Vec<RootId>,
    /// Whether the free-space tree was rebuilt.
    rebuilt: bool,
    /// Whether deleted subvolumes wait to be freed.
    needs_cleaner: bool,
    /// The extents that this commit moves.
    relocation: Option<&'v RelocationBatch>,
    /// The deleted subvolumes that were held at the freeze, and may have been changed since.
    roots_in_use: Vec<RootId>,
    removed_groups: Vec<RemovedGroup>,
    edits: SuperblockEdits,
    /// Entries for the superblock's array of system chunks (key and item).
    new_system_chunks: Vec<Vec<u8>>,
    /// Chunks to remove from this array.
    removed_system_chunks: Vec<Logical>,
}

/// Time since the end of the previous phase.
struct Lap(Instant);

impl Lap {
    fn begin() -> Lap {
        Lap(clock::now())
    }

    /// Adds the duration of the phase that ends now.
    fn end(&mut self, phase: &mut Duration) {
        let now = clock::now();
        *phase += now - self.0;
        self.0 = now;
    }
}

impl TransactionManager {
    /// Commits all edits made so far, without a write-back of buffered data. Data already written becomes durable, even
    /// if no edit refers to it.
    pub fn commit_running(&self) -> Result<()> {
        nonblocking::check()?;
        self.check_may_commit()?;
        let wanted = self.running_transid();
        let alone = self.committing.lock();
        self.check_alive()?;
        // A commit by another thread in the meantime has also flushed the data written before.
        if self.committed() >= wanted {
            Ok(())
        } else {
            self.commit_alone(alone)
        }
    }

    /// Makes all edits up to transaction `wanted` durable, and all data written. If `wanted` is already committed, this
    /// is a flush at most, and does not wait for a commit in progress.
    pub fn commit_through(&self, wanted: Transid) -> Result<()> {
        nonblocking::check()?;
        self.check_may_commit()?;
        if self.committed() >= wanted {
            return self.flush_data();
        }
        let alone = self.committing.lock();
        self.check_alive()?;
        if self.committed() >= wanted {
            self.flush_data()
        } else {
            self.commit_alone(alone)
        }
    }

    /// Commits the running transaction, and moves the extents of a batch with it. Commits even without edits.
    pub(super) fn commit_relocating(&self, batch: &RelocationBatch) -> Result<()> {
        self.check_may_commit()?;
        let alone = self.committing.lock();
        self.check_alive()?;
        self.commit_with(alone, Some(batch))
    }

    pub(super) fn commit_alone(&self, alone: MutexGuard<'_, ()>) -> Result<()> {
        self.commit_with(alone, None)
    }

    fn commit_with(
        &self,
        alone: MutexGuard<'_, ()>,
        batch: Option<&RelocationBatch>,
    ) -> Result<()> {
        // WRITER-1: `alone` is the lock of `committing`.
        let outcome = self.commit_or_panic(batch);
        if let Err(error) = &outcome {
            self.abort(error);
        }
        drop(alone);
        if !self.threads.has_background() {
            self.retired_sets.free();
        }
        outcome
    }

    /// Commits, and converts a panic to an error. Waiting threads then get the error, and no later commit begins with
    /// the half-done changes of this one (WRITER-2).
    fn commit_or_panic(&self, batch: Option<&RelocationBatch>) -> Result<()> {
        panic::catch_unwind(AssertUnwindSafe(|| self.commit(batch))).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            Err(Error::CommitPanicked(text.unwrap_or("").to_owned()))
        })
    }

    /// Commits the running transaction, and makes data durable. The caller holds `committing`.
    fn commit(&self, batch: Option<&RelocationBatch>) -> Result<()> {
        let mut lap = Lap::begin();
        let mut phases = *self.counters.phases.lock();
        let Some(commit) = Commit::freeze(self, batch)? else {
            // There may still be unflushed data that was written in place.
            return self.flush_data();
        };
        lap.end(&mut phases.freeze);
        commit.finish(lap, &mut phases)?;
        *self.counters.phases.lock() = phases;
        Ok(())
    }
}

#[cfg(any(test, feature = "testing"))]
impl TransactionManager {
    /// Commits, and calls `frozen` between the freeze and the other phases. Returns false if there was nothing to
    /// commit.
    pub fn commit_with_pause(&self, frozen: impl FnOnce()) -> Result<bool> {
        let _alone = self.committing.lock();
        let Some(commit) = Commit::freeze(self, None)? else {
            return Ok(false);
        };
        frozen();
        commit.finish(Lap::begin(), &mut CommitPhases::default())?;
        Ok(true)
    }
}

impl Commit<'_> {
    /// Runs all phases of the commit after the freeze.
    fn finish(mut self, mut lap: Lap, phases: &mut CommitPhases) -> Result<()> {
        let pool = self.roots.pool();
        reach(Failpoint::Frozen)?;
        // COMMIT-5
        pool.check_unchanged()?;
        // Must precede all changes of device items, because each superblock copy contains one.
        self.manager.logs.copy_superblock(pool)?;
        reach(Failpoint::LogSuperblockCopied)?;
        // The rebuild reads the extent tree of the last commit, so it must precede all other changes.
        self.rebuild_free_space_tree()?;
        self.apply_subvolumes()?;
        // A snapshot needs the applied changes of its source.
        self.create_pending_subvolumes()?;
        self.clean_deleted_subvolumes()?;
        self.join_csums()?;
        self.relocate()?;
        self.remove_empty_groups()?;
        self.change_devices()?;
        self.save_device_errors()?;
        lap.end(&mut phases.apply);
        // From here on, only the trees that describe each other still change.
        self.converge()?;
        lap.end(&mut phases.converge);
        reach(Failpoint::Converged)?;
        self.write_blocks()?;
        reach(Failpoint::BlocksWritten)?;
        // COMMIT-2
        self.manager.flush()?;
        reach(Failpoint::BlocksDurable)?;
        lap.end(&mut phases.write);
        let superblock = self.superblock()?;
        self.manager
            .write_superblock(&superblock, Failpoint::SuperblockOnSomeDevices)?;
        reach(Failpoint::SuperblockDurable)?;
        // Failed copies are only logged, because the commit is already durable.
        pool.write_other_superblocks(&superblock)?;
        reach(Failpoint::SuperblockCopied)?;
        lap.end(&mut phases.superblock);
        self.publish(superblock);
        lap.end(&mut phases.publish);
        reach(Failpoint::Published)
    }
}

impl<'v> Commit<'v> {
    /// Returns the state of a tree within the commit. Adds the tree if it has not taken part so far.
    fn tree(&mut self, id: RootId) -> Result<&mut CommitTree> {
        if !self.trees.contains_key(&id) {
            let tree = self.roots.tree_for_commit(id)?;
            self.trees.insert(id, CommitTree::unchanged(tree));
        }
        Ok(self.trees.get_mut(&id).expect("inserted above"))
    }

    /// Returns a view of a tree as changed by this commit so far.
    fn view(&mut self, id: RootId) -> Result<View> {
        let root = self.tree(id)?.root;
        Ok(View::new(Arc::clone(self.roots.node_store()), root))
    }

    /// Applies `changes`, in ascending order, to a tree.
    fn apply(&mut self, id: RootId, changes: &[Change<'_>]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        // `drop_block` looks up shared blocks in the extent tree, as changed so far.
        if id != RootId::EXTENT_TREE {
            self.blocks.extent_root = self.tree(RootId::EXTENT_TREE)?.root;
        }
        let tree = self.tree(id)?;
        let last_snapshot = Transid(tree.item.last_snapshot.get());
        let root = tree.root;
        let mut io = BlockIo::new(&mut self.blocks, root, last_snapshot);
        let format = io.format();
        let new = apply(&format, &root, changes, &mut io)?;
        let blocks = io.net_blocks();
        let tree = self.tree(id)?;
        tree.blocks += blocks;
        tree.item_is_stale |= tree.root != new || blocks != 0;
        tree.root = new;
        if id == RootId::EXTENT_TREE {
            self.blocks.extent_root = new;
        }
        Ok(())
    }

    fn apply_owned(&mut self, id: RootId, changes: &[(Key, Option<Vec<u8>>)]) -> Result<()> {
        let changes: Vec<Change<'_>> = changes
            .iter()
            .map(|(key, value)| Change {
                key: *key,
                value: value.as_deref(),
            })
            .collect();
        self.apply(id, &changes)
    }
}

impl CommitTree {
    /// Returns the size of the tree's blocks in bytes, for its root item.
    fn bytes_used(&self, nodesize: u64) -> u64 {
        let change = self.blocks.saturating_mul(nodesize as i64);
        let used = self.item.bytes_used.get().saturating_add_signed(change);
        used.max(nodesize)
    }

    fn unchanged(tree: Arc<Tree>) -> CommitTree {
        CommitTree {
            root: tree.view.committed(),
            item: tree.item(),
            tree,
            frozen: None,
            blocks: 0,
            item_is_stale: false,
        }
    }
}
