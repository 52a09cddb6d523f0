//! The places of a log's blocks, and their contents on the devices.
//!
//! Most of a changed block stays the same. If a block reuses a place, only the parts that differ from the old contents
//! are written.
//!
//! The old contents must therefore be known: an earlier log of the same transaction has written them to all devices
//! (LOG-6).
//!
//! Not here: when a place may be reused (LOG-2).

use std::collections::BTreeMap;

use ubtrfs_format::ids::Logical;
use ubtrfs_format::key::Key;
use ubtrfs_tree::Block;

/// The unit of comparison. Page caches write no less.
const PART_BYTES: usize = 4096;

/// The fraction of the existing places that is allocated in advance, because logs tend to grow further.
const AHEAD_PART: usize = 4;
const MOST_AHEAD: usize = 32;

/// The places of blocks (LOG-2).
#[derive(Debug, Default)]
pub(super) struct Places {
    /// All places allocated since the last commit.
    all: Vec<Logical>,
    /// Blocks that the log on the devices does not need. With their reuse, repeated fsyncs of a file write to the same
    /// places, which is cheaper for the storage below an image.
    idle: BTreeMap<Likeness, Block>,
    /// Allocated places that were never used.
    spare: Vec<Logical>,
    /// The places of the log that is being written, with their old blocks if known.
    taken: BTreeMap<Logical, Option<Block>>,
    /// The blocks replaced by the log that is being written.
    retired: Vec<Block>,
}

/// A sort order. Neighbouring blocks are likely to have similar contents.
type Likeness = (u8, Key, Logical);

impl Places {
    /// Takes an idle place whose block is likely to be similar to one of this level and first key.
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

    /// Returns the number of places to allocate in advance, with a new one.
    pub(super) fn wanted_ahead(&self) -> usize {
        (self.all.len() / AHEAD_PART).min(MOST_AHEAD)
    }

    /// Adds unused places, ascending.
    pub(super) fn add_spare(&mut self, places: Vec<Logical>) {
        self.all.extend(&places);
        self.spare = places;
        // They are popped from the end, so the lowest is used first.
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

    /// Returns the parts of a block that differ from the old contents of its place (LOG-7).
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

    /// Notes that the log is durable.
    pub(super) fn written(&mut self) {
        self.taken.clear();
        for block in self.retired.drain(..) {
            let node = block.node();
            let first_key = node.key(0).unwrap_or(Key::MIN);
            let likeness = (node.level(), first_key, node.bytenr());
            self.idle.insert(likeness, block);
        }
    }

    /// Returns the number of idle blocks kept for comparison.
    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Returns all places allocated since the last commit.
    pub(super) fn into_all(self) -> Vec<Logical> {
        self.all
    }
}
