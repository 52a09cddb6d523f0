//! Items that flow by in key order, cut into leaves.
//!
//! The items of up to two leaves are held back. How the last ones are best divided shows only at the end of the
//! run.

use std::collections::VecDeque;
use std::ops::Range;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, KeyPtr, leaf_data_size};

use crate::block::Block;
use crate::build::{BlockFormat, BlockSink, OpenLeaf};

/// Items, not copied yet.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// Items of an old leaf that stand side by side.
    Old(Block, Range<usize>),
    New(Key, &'a [u8]),
}

impl Piece<'_> {
    /// Returns the bytes that it takes in a leaf.
    fn size_bytes(&self) -> usize {
        match self {
            Piece::Old(block, slots) => run_bytes(block, slots.clone()),
            Piece::New(_, value) => value.len() + ITEM_HEAD_SIZE,
        }
    }

    /// Returns how many of its first items it takes to reach `target`, but no more than fit in `free` bytes; and their
    /// room.
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

/// Returns the bytes that items of a leaf which stand side by side take in another.
fn run_bytes(block: &Block, slots: Range<usize>) -> usize {
    slots.len() * ITEM_HEAD_SIZE + block.node().data_of(slots).len()
}

/// Returns the last of the numbers up to `count` for which a condition holds. It holds for all below that, 0 among
/// them.
fn last_where(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high).div_ceil(2);
        match holds(middle) {
            true => low = middle,
            false => high = middle - 1,
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
    /// New items since the last old one.
    new_at_end: usize,
    done: Vec<KeyPtr>,
}

/// So many new items behind all old ones count as appending.
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
        // APPLY-4: no more than two leaves and a piece are held.
        while self.held_bytes > 2 * self.room() {
            self.emit(self.room(), sink)?;
        }
        Ok(())
    }

    /// Emits what is held and returns the pointers to all leaves of the run.
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

    /// Emits one leaf of the first held items: until `target` is reached, and no more than fit.
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
