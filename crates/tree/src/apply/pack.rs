//! Packing of a stream of items in key order into leaves.
//!
//! Up to two leaves of items are held back: the best split of the last ones is known only at the end of the run.

use std::collections::VecDeque;
use std::ops::Range;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, KeyPtr, leaf_data_size};

use crate::block::Block;
use crate::build::{BlockFormat, BlockSink, OpenLeaf};

/// Items that are not copied yet.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// Adjacent items of an old leaf.
    Old(Block, Range<usize>),
    New(Key, &'a [u8]),
}

impl Piece<'_> {
    /// Returns the space needed in a leaf, item heads included.
    fn size_bytes(&self) -> usize {
        match self {
            Piece::Old(block, slots) => run_bytes(block, slots.clone()),
            Piece::New(_, value) => value.len() + ITEM_HEAD_SIZE,
        }
    }

    /// Returns how many leading items reach `target` bytes without exceeding `free`, and their size.
    fn items_to_reach(&self, target: usize, free: usize) -> (usize, usize) {
        let all = self.size_bytes();
        match self {
            Piece::Old(_, slots) if all <= target && all <= free => (slots.len(), all),
            Piece::Old(block, slots) => {
                let bytes = |items: usize| run_bytes(block, slots.start..slots.start + items);
                let fitting = last_where(slots.len(), |items| bytes(items) <= free);
                let taken = last_where(fitting, |items| bytes(items - 1) < target);
                (taken, bytes(taken))
            }
            Piece::New(..) if target > 0 && all <= free => (1, all),
            Piece::New(..) => (0, 0),
        }
    }
}

/// Returns the space that adjacent items of a leaf need in another leaf.
fn run_bytes(block: &Block, slots: Range<usize>) -> usize {
    slots.len() * ITEM_HEAD_SIZE + block.node().data_of(slots).len()
}

/// Returns the largest number up to `count` that satisfies `holds`. `holds` must be monotonic, and true for 0.
fn last_where(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[derive(Debug)]
pub(super) struct LeafPacker<'a> {
    format: &'a BlockFormat,
    owner: RootId,
    held: VecDeque<Piece<'a>>,
    held_bytes: usize,
    /// Number of new items since the last old one.
    new_at_end: usize,
    done: Vec<KeyPtr>,
}

/// Minimum number of new items after all old ones for a run to count as appending.
const APPENDING: usize = 4;

impl<'a> LeafPacker<'a> {
    pub(super) fn new(format: &'a BlockFormat, owner: RootId) -> Self {
        LeafPacker {
            format,
            owner,
            held: VecDeque::new(),
            held_bytes: 0,
            new_at_end: 0,
            done: Vec::new(),
        }
    }

    fn room(&self) -> usize {
        leaf_data_size(self.format.nodesize)
    }

    pub(super) fn push<S: BlockSink>(
        &mut self,
        piece: Piece<'a>,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        self.new_at_end = match &piece {
            Piece::Old(..) => 0,
            Piece::New(..) => self.new_at_end + 1,
        };
        self.held_bytes += piece.size_bytes();
        self.held.push_back(piece);
        // APPLY-4: at most two leaves and one piece are held.
        while self.held_bytes > 2 * self.room() {
            self.emit(self.room(), sink)?;
        }
        Ok(())
    }

    /// Emits the held items and returns the pointers to all leaves of the run.
    pub(super) fn finish<S: BlockSink>(mut self, sink: &mut S) -> Result<Vec<KeyPtr>, S::Error> {
        let appends = self.new_at_end >= APPENDING;
        while !self.held.is_empty() {
            let leaves = self.held_bytes.div_ceil(self.room());
            let target = if appends {
                self.room()
            } else {
                self.held_bytes.div_ceil(leaves)
            };
            self.emit(target, sink)?;
        }
        Ok(self.done)
    }

    /// Emits one leaf from the front of the held items, up to `target` bytes or until the leaf is full.
    fn emit<S: BlockSink>(&mut self, target: usize, sink: &mut S) -> Result<(), S::Error> {
        let mut leaf = OpenLeaf::new(self.format.nodesize);
        let mut used = 0;
        while let Some(piece) = self.held.front_mut() {
            let rest = target.saturating_sub(used);
            let (taken, bytes) = piece.items_to_reach(rest, leaf.free_bytes());
            if taken == 0 {
                break;
            }
            used += bytes;
            match piece {
                Piece::Old(block, slots) => {
                    let run = slots.start..slots.start + taken;
                    slots.start = run.end;
                    leaf.append_run(block.node(), run);
                    if slots.start < slots.end {
                        break;
                    }
                }
                Piece::New(key, value) => leaf.append(*key, value),
            }
            self.held.pop_front();
        }
        self.held_bytes -= used;
        self.done
            .push(self.format.emit_leaf(self.owner, leaf, sink)?);
        Ok(())
    }
}
