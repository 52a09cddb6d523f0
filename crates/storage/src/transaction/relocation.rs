//! Relocation of a block group: batches of extents, each moved by one commit.
//!
//! Data is copied before the commit, while operations continue. The group is closed, so its data does not change. The
//! commit only exchanges addresses. Then the copies are durable before the superblock that names them.
//!
//! Invariants
//! - RELOCATION-1: a copy of data is released unless a commit has moved its extent.
//! - RELOCATION-2: the extent barrier is closed from before the freeze until the new addresses are published.
//!
//! Locks: the gate, the extent barrier, then `committing`.
//! Not here: the phase of the commit (`commit::relocate`).

mod batch;
mod copy_data;

use std::collections::VecDeque;

use ubtrfs_device::progress::{Progress, Watch};
use ubtrfs_device::{clock, nonblocking};
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::{ExtentFlags, decode_extent};
use ubtrfs_format::key::{Key, KeyType};

use super::manager::TransactionManager;
use super::published::READERS_TAKE;
use crate::error::{Error, Result};
use crate::roots::TreeSource;
use crate::space::EmptyingGroup;
pub(super) use batch::{BatchOutcome, CopiedExtent, CopyState, RelocationBatch};

/// Commits without progress after which a relocation gives up. They wait for readers, or for allocated data whose items
/// are not entered yet.
const IDLE_COMMITS: u32 = 64;

/// Limits of the batches of a relocation.
#[derive(Clone, Copy, Debug)]
pub struct RelocationOptions {
    /// Data that is copied before a commit. A larger extent is a batch of its own.
    pub batch_bytes: u64,
    pub batch_extents: usize,
    /// Tree blocks of the group that one commit moves.
    pub batch_blocks: usize,
    /// Tree blocks that one commit copies: leaves that refer to moved extents, and all blocks above. The last extent of a
    /// batch may exceed it.
    pub batch_copies: usize,
    /// Whether the last group of a kind is removed as well, after a new one was created in its place.
    pub replaces_last: bool,
}

impl Default for RelocationOptions {
    fn default() -> Self {
        RelocationOptions {
            batch_bytes: 64 << 20,
            batch_extents: 1024,
            batch_blocks: 512,
            batch_copies: 8192,
            replaces_last: false,
        }
    }
}

/// The most damaged sectors that a report lists.
const LISTED_SECTORS: usize = 1024;

/// The results of a relocation.
#[derive(Clone, Debug, Default)]
pub struct RelocationReport {
    pub moved_extents: u64,
    pub moved_bytes: u64,
    /// Tree blocks that were in the group.
    pub moved_blocks: u64,
    /// Tree blocks that were copied, with those above moved extents and blocks.
    pub copied_blocks: u64,
    pub commits: u64,
    /// Sectors of data without a sound copy. They were moved with their old checksums, so they still cannot be read.
    pub damaged_sectors: u64,
    /// The old addresses of the first damaged sectors.
    pub damaged: Vec<Logical>,
    /// Whether the block group and its chunk were removed from the volume.
    pub is_removed: bool,
}

impl RelocationReport {
    fn note_damaged(&mut self, sector: Logical) {
        self.damaged_sectors += 1;
        if self.damaged.len() < LISTED_SECTORS {
            self.damaged.push(sector);
        }
    }
}

impl TransactionManager {
    /// Moves all extents out of the block group at `start`, and removes the group. Operations continue.
    ///
    /// The last group of a kind stays, empty, unless the options replace it. So does a group with space that slow readers
    /// use.
    ///
    /// Errors: no such group, or another thread empties it; no space for its extents; damaged trees. Data without
    /// checksum that no device returns. A subvolume that is held as a snapshot. Cancelled by `progress`. All batches so
    /// far are kept, and the volume is usable.
    pub fn relocate_group(
        &self,
        start: Logical,
        options: &RelocationOptions,
        progress: &mut dyn Progress,
    ) -> Result<RelocationReport> {
        nonblocking::check()?;
        self.check_may_commit()?;
        self.check_alive()?;
        let emptying = self.space.begin_emptying(start)?;
        let mut run = GroupRun {
            manager: self,
            options,
            emptying: &emptying,
            copies: VecDeque::new(),
            report: RelocationReport::default(),
            extents_per_batch: options.batch_extents.max(1),
            blocks_per_batch: options.batch_blocks.max(1),
        };
        let outcome = run.run(&mut Watch::new(progress));
        run.release_copies();
        outcome.map(|()| run.report)
    }
}

/// The relocation of one group.
struct GroupRun<'m> {
    manager: &'m TransactionManager,
    options: &'m RelocationOptions,
    emptying: &'m EmptyingGroup,
    /// Copies whose extents have not been moved yet.
    copies: VecDeque<CopiedExtent>,
    report: RelocationReport,
    extents_per_batch: usize,
    blocks_per_batch: usize,
}

impl GroupRun<'_> {
    fn run(&mut self, watch: &mut Watch<'_>) -> Result<()> {
        // Extents of the running transaction are copied too.
        self.commit_and_release()?;
        let mut idle = 0;
        while idle < IDLE_COMMITS {
            let is_empty = self.copy_next_data(watch)? && !self.has_blocks()?;
            let before = (self.report.moved_extents, self.report.moved_blocks);
            let group = self.emptying.group().start();
            let is_postponed = self.commit_batch(is_empty.then_some(group))?;
            if self.manager.space.find(group).is_none() {
                self.report.is_removed = true;
                return Ok(());
            }
            let nodesize = u64::from(self.manager.roots.superblock().nodesize.get());
            watch.advance((self.report.moved_blocks - before.1) * nodesize)?;
            // A postponed batch waits for the cleaner, which makes progress in each commit.
            if is_postponed || (self.report.moved_extents, self.report.moved_blocks) != before {
                idle = 0;
                continue;
            }
            if is_empty && self.emptying.group().used() == 0 && idle > 2 {
                // The last group of its kind, or one whose space is still being read.
                return Ok(());
            }
            idle += 1;
            self.manager.wait_for_readers();
            if idle > 2 {
                clock::sleep(READERS_TAKE);
            }
        }
        let start = self.emptying.group().start();
        Err(crate::space::SpaceError::InUse { start }.into())
    }

    /// Copies data of the group until there is enough for a batch. Returns whether the group has no data.
    fn copy_next_data(&mut self, watch: &mut Watch<'_>) -> Result<bool> {
        let mut bytes: u64 = self.copies.iter().map(|copy| copy.len).sum();
        let from = self.copies.back().map(|copy| copy.old);
        let found = self.data_extents(from)?;
        let has_data = !self.copies.is_empty() || !found.is_empty();
        for (start, len) in found {
            let is_enough = self.copies.len() >= self.extents_per_batch
                || bytes > 0 && bytes.saturating_add(len) > self.options.batch_bytes;
            if is_enough {
                break;
            }
            let copied = match self.manager.copy_extent(start, len) {
                // Freed space of other groups may be available after a commit.
                Err(error) if error.is_no_space() && self.copies.is_empty() => {
                    self.commit_and_release()?;
                    self.manager.copy_extent(start, len)
                }
                copied => copied,
            };
            match copied {
                Ok((copy, damaged)) => {
                    self.copies.push_back(copy);
                    damaged
                        .into_iter()
                        .for_each(|sector| self.report.note_damaged(sector));
                }
                // The copies so far make progress, and perhaps room.
                Err(error) if error.is_no_space() && !self.copies.is_empty() => break,
                Err(error) => return Err(error),
            }
            bytes = bytes.saturating_add(len);
            watch.advance(len)?;
        }
        Ok(!has_data)
    }

    /// Commits, and makes freed space available.
    fn commit_and_release(&self) -> Result<()> {
        {
            let _entered = self.manager.gate.enter();
            self.manager.commit_running()?;
        }
        self.manager.wait_for_readers();
        Ok(())
    }

    /// Returns the first data extents of the group after `after`, as of the last commit.
    fn data_extents(&self, after: Option<Logical>) -> Result<Vec<(Logical, u64)>> {
        let group = self.emptying.group();
        let mut found = Vec::new();
        let first = after.unwrap_or_else(|| group.start());
        self.for_each_extent(first, &mut |key, is_data| {
            if is_data && after.is_none_or(|after| key.objectid > after.0) {
                found.push((Logical(key.objectid), key.offset));
            }
            found.len() < self.extents_per_batch
        })?;
        Ok(found)
    }

    fn has_blocks(&self) -> Result<bool> {
        let mut has_blocks = false;
        self.for_each_extent(self.emptying.group().start(), &mut |_, is_data| {
            has_blocks |= !is_data;
            !has_blocks
        })?;
        Ok(has_blocks)
    }

    /// Calls `each` with the extents of the group from `first` on, as of the last commit, until it returns false. The
    /// arguments are the key of the extent item, and whether it is data.
    fn for_each_extent(
        &self,
        first: Logical,
        each: &mut dyn FnMut(Key, bool) -> bool,
    ) -> Result<()> {
        let state = self.manager.roots.committed_state();
        let tree = RootId::EXTENT_TREE;
        let view = state.find_view(tree)?.ok_or(Error::NoSuchTree(tree))?;
        let end = self.emptying.group().end();
        let mut cursor = view.cursor();
        let mut more = cursor.seek(&Key::new(first.0, KeyType::UNTYPED, 0))?;
        while more
            && let Some((key, bytes)) = cursor.current()
            && key.objectid < end.0
        {
            if matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM) {
                let is_data = decode_extent(key.item_type, bytes)
                    .is_some_and(|extent| extent.head.flags().contains(ExtentFlags::DATA));
                if !each(key, is_data) {
                    return Ok(());
                }
            }
            more = cursor.advance()?;
        }
        Ok(())
    }

    /// Moves the copied data, and tree blocks, with one commit. Removes the group `emptied`. Returns whether the batch
    /// was postponed.
    fn commit_batch(&mut self, emptied: Option<Logical>) -> Result<bool> {
        let group = self.emptying.group();
        let offered = self.copies.len().min(self.extents_per_batch);
        let batch = RelocationBatch {
            group: group.start().0..group.end().0,
            copies: self.copies.iter().take(offered).copied().collect(),
            max_blocks: self.blocks_per_batch,
            max_copied_blocks: self.options.batch_copies.max(1),
            emptied,
            replaces_last: self.options.replaces_last,
            outcome: Default::default(),
        };
        {
            let _entered = self.manager.gate.enter();
            // A relocation ends the suspension of background work, as each change does.
            self.manager.cleaner.set_quiesced(false);
            // RELOCATION-2
            let closed = (!batch.copies.is_empty()).then(|| self.manager.extents.close());
            let committed = self.manager.commit_relocating(&batch);
            drop(closed);
            committed?;
        }
        self.report.commits += 1;
        let outcome = std::mem::take(&mut *batch.outcome.lock());
        let is_postponed = outcome.is_postponed;
        self.take_outcome(&batch, outcome)?;
        Ok(is_postponed)
    }

    fn take_outcome(&mut self, batch: &RelocationBatch, outcome: BatchOutcome) -> Result<()> {
        let mut left = VecDeque::new();
        for (copy, state) in batch.copies.iter().zip(&outcome.copies) {
            match state {
                CopyState::Moved => {
                    self.report.moved_extents += 1;
                    self.report.moved_bytes += copy.len;
                }
                // RELOCATION-1
                CopyState::Gone => self.manager.space.release(copy.new, copy.len),
                CopyState::Waiting => left.push_back(*copy),
            }
        }
        self.copies
            .drain(..outcome.copies.len().min(self.copies.len()));
        left.append(&mut self.copies);
        self.copies = left;
        self.report.moved_blocks += outcome.moved_blocks;
        self.report.copied_blocks += outcome.copied_blocks;
        match outcome.error {
            None => Ok(()),
            // A smaller batch needs less.
            Some(error) if error.is_no_space() && self.halve_batch() => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Halves the batches. Returns false if they are the smallest already.
    fn halve_batch(&mut self) -> bool {
        let (extents, blocks) = (self.extents_per_batch, self.blocks_per_batch);
        self.extents_per_batch = (extents / 2).max(1);
        self.blocks_per_batch = (blocks / 2).max(1);
        extents > 1 || blocks > 1
    }

    /// Releases the copies of extents that stay (RELOCATION-1).
    fn release_copies(&mut self) {
        for copy in self.copies.drain(..) {
            self.manager.space.release(copy.new, copy.len);
        }
    }
}
