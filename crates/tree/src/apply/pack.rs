//! Items that flow by in key order, cut into leaves.
//!
//! The items of up to two leaves are held back. How the last ones are best divided shows only at the end of the
//! run.

use std::collections::VecDeque;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, KeyPtr, leaf_data_size};

use crate::block::Item;
use crate::build::{BlockFormat, BlockSink, OpenLeaf};

/// An item, not copied yet.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    Old(Item),
    New(Key, &'a [u8]),
}

impl Piece<'_> {
    fn key(&self) -> Key {
        match self {
            Piece::Old(item) => item.key(),
            Piece::New(key, _) => *key,
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            Piece::Old(item) => item,
            Piece::New(_, value) => value,
        }
    }

    /// Room that it takes in a leaf.
    fn size_bytes(&self) -> usize {
        self.value().len() + ITEM_HEAD_SIZE
    }
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
        self.new_at_end = match piece {
            Piece::Old(_) => 0,
            Piece::New(..) => self.new_at_end + 1,
        };
        self.held_bytes += piece.size_bytes();
        self.held.push_back(piece);
        // APPLY-4: no more than two leaves and an item are held.
        if self.held_bytes > 2 * self.room() {
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
        while let Some(piece) = self.held.front()
            && used < target
            && piece.size_bytes() <= leaf.free_bytes()
        {
            leaf.append(piece.key(), piece.value());
            used += piece.size_bytes();
            self.held.pop_front();
        }
        self.held_bytes -= used;
        self.done
            .push(self.format.emit_leaf(self.owner, leaf, sink)?);
        Ok(())
    }
}
