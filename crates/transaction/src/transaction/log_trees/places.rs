//! The places of a log's blocks, and what lies there.
//!
//! Most of a block that changes stays as it was. Of one that gets a place again, only the parts are written that differ
//! from what lies there.
//!
//! So it must be known what lies there: what an earlier log of the same transaction has put on all devices (LOG-6).
//!
//! Not here: when a place may be used again (LOG-2).

use std::collections::BTreeMap;

use ubtrfs_format::ids::Logical;
use ubtrfs_format::key::Key;
use ubtrfs_tree::Block;

/// Parts of a block are compared in this size. Page caches write no less.
const PART_BYTES: usize = 4096;

/// Places are got ahead by this part of those that there are, since a log that has grown goes on to grow.
const AHEAD_PART: usize = 4;
const MOST_AHEAD: usize = 32;

/// The places of blocks (LOG-2).
#[derive(Debug, Default)]
pub(super) struct Places {
    /// All that were given out since the last commit.
    all: Vec<Logical>,
    /// Blocks that the log on the devices does not need. So a file that syncs again and again writes to the same places,
    /// which costs the storage below an image less than new ones.
    idle: BTreeMap<Likeness, Block>,
    /// Places that were given out and never taken.
    spare: Vec<Logical>,
    /// The places of the log that is being written, with the block that lies there if it is known.
    taken: BTreeMap<Logical, Option<Block>>,
    /// The blocks that the log in progress needs no more.
    retired: Vec<Block>,
}

/// Blocks that are near each other in this order are likely to have much in common.
type Likeness = (u8, Key, Logical);

impl Places {
    /// Takes an idle place. Its block is as similar as possible to one of this level and first key.
    pub(super) fn take_idle(&mut self, level: u8, first_key: &Key) -> Option<Logical> {
        let like = (level, *first_key, Logical(u64::MAX));
        let below = self.idle.range(..=like).next_back();
        let (&found, _) = below.or_else(|| self.idle.range(like..).next())?;
        let block = self.idle.remove(&found)?;
        let place = block.node().bytenr();
        self.taken.insert(place, Some(block));
        Some(place)
    }

    pub(super) fn take_spare(&mut self) -> Option<Logical> {
        let place = self.spare.pop()?;
        self.taken.insert(place, None);
        Some(place)
    }

    /// Returns how many places are to be got beside one that is new.
    pub(super) fn wanted_ahead(&self) -> usize {
        (self.all.len() / AHEAD_PART).min(MOST_AHEAD)
    }

    /// Adds places that no log has taken yet, ascending.
    pub(super) fn add_spare(&mut self, places: Vec<Logical>) {
        self.all.extend(&places);
        self.spare = places;
        // Taken from the end, lowest first.
        self.spare.reverse();
    }

    pub(super) fn take_new(&mut self, place: Logical) {
        self.all.push(place);
        self.taken.insert(place, None);
    }

    pub(super) fn retire(&mut self, block: Block) {
        self.retired.push(block);
    }

    /// Returns the places of the log that is being written.
    pub(super) fn taken(&self) -> impl Iterator<Item = Logical> {
        self.taken.keys().copied()
    }

    /// Returns the parts of a block in a taken place that differ from what lies there (LOG-7).
    pub(super) fn parts_to_write<'b>(
        &'b self,
        block: &'b Block,
    ) -> impl Iterator<Item = (Logical, &'b [u8])> {
        let start = block.node().bytenr();
        let there = self.taken.get(&start).and_then(Option::as_ref);
        let offsets = (0_u64..).step_by(PART_BYTES);
        let parts = offsets.zip(block.bytes().chunks(PART_BYTES));
        parts.filter_map(move |(offset, part)| {
            let old = there.and_then(|there| there.bytes().get(offset as usize..));
            let is_there = old.is_some_and(|old| old.starts_with(part));
            (!is_there).then_some((Logical(start.0 + offset), part))
        })
    }

    /// Notes that the log that was being written is durable.
    pub(super) fn written(&mut self) {
        self.taken.clear();
        for block in self.retired.drain(..) {
            let node = block.node();
            let first_key = node.key(0).unwrap_or(Key::MIN);
            let likeness = (node.level(), first_key, node.bytenr());
            self.idle.insert(likeness, block);
        }
    }

    /// Returns how many blocks are kept for the places that a log may take again.
    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Returns all places that were taken since the last commit.
    pub(super) fn into_all(self) -> Vec<Logical> {
        self.all
    }
}
