//! The items of a damaged leaf: the readable part of each, and its defects.
//!
//! The strict check ends with the first defect, and the block is unusable as a whole. Here a defect belongs to one
//! item. Where two items contradict each other, the smaller number of items is defective.
//!
//! Invariants
//! - LENIENT-1: a leaf that passes `check_leaf` has the same items here, without defects.
//! - LENIENT-2: any bytes give an item for each slot that has room in the block.
//!
//! Not here: checksum and header, which the caller checks or ignores.

use super::item::Slot;
use super::leaf::check_one;
use super::{BlockContext, CorruptBlock};
use crate::key::Key;
use crate::node::{HEADER_SIZE, ITEM_HEAD_SIZE, ItemHead, Node};

/// One slot of a leaf that may be damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LenientItem<'a> {
    pub slot: u32,
    pub key: Key,
    /// The bytes that the slot names. None if they are not in the block.
    pub bytes: Option<&'a [u8]>,
    /// The reasons why the leaf is invalid because of this item. Empty for a sound item.
    pub defects: Vec<CorruptBlock>,
}

impl LenientItem<'_> {
    pub fn is_sound(&self) -> bool {
        self.defects.is_empty()
    }
}

/// Returns all items of a leaf, sound or not, and nothing for an interior node.
pub fn lenient_items<'a>(node: Node<'a>, context: &BlockContext<'_>) -> Vec<LenientItem<'a>> {
    let heads = node.heads();
    let ascends = ascending(heads);
    let data = &node.block()[HEADER_SIZE..];
    let mut places = Places::new(heads, data.len());
    let mut items: Vec<LenientItem<'a>> = Vec::with_capacity(heads.len());
    // LENIENT-2: one item for each head.
    for (slot, (head, ascends)) in (0u32..).zip(heads.iter().zip(ascends)) {
        let key = head.key.get();
        let mut defects = Vec::new();
        if !ascends {
            let before = items.last().map_or(Key::MIN, |item| item.key);
            defects.push(CorruptBlock::KeyOrder { slot, before, key });
        }
        defects.extend(places.check(slot, head));
        let start = head.offset.get() as usize;
        let bytes = data
            .get(start..)
            .and_then(|rest| rest.get(..head.size.get() as usize));
        if let Some(bytes) = bytes {
            // LENIENT-1: the strict check passes the previous item, too. A defective one proves nothing about this item.
            let neighbour = items.last().filter(|item| item.is_sound());
            let item = Slot {
                key,
                bytes,
                before: neighbour.and_then(|item| Some((item.key, item.bytes?))),
                owner: node.owner(),
            };
            let checked = check_one(&item, context);
            defects.extend(
                checked
                    .err()
                    .map(|defect| CorruptBlock::Item { slot, key, defect }),
            );
        }
        items.push(LenientItem {
            slot,
            key,
            bytes,
            defects,
        });
    }
    items
}

/// The places of items, which are packed from the end of the block.
struct Places {
    heads_end: u32,
    /// The lowest offset of the items placed so far.
    lowest: u32,
    /// Whether the last item was out of place, so that the next one may leave a gap.
    is_after_gap: bool,
}

impl Places {
    fn new(heads: &[ItemHead], data_bytes: usize) -> Places {
        Places {
            heads_end: (heads.len() * ITEM_HEAD_SIZE) as u32,
            lowest: data_bytes as u32,
            is_after_gap: false,
        }
    }

    /// Returns the defect of an item's place. Accepts a place without a defect.
    fn check(&mut self, slot: u32, head: &ItemHead) -> Option<CorruptBlock> {
        let offset = head.offset.get();
        let end = u64::from(offset) + u64::from(head.size.get());
        let lowest = u64::from(self.lowest);
        let fits = if self.is_after_gap {
            end <= lowest
        } else {
            end == lowest
        };
        let defect = if !fits {
            Some(CorruptBlock::ItemEnd {
                slot,
                wanted: self.lowest,
                found: end,
            })
        } else if offset < self.heads_end {
            Some(CorruptBlock::ItemOverHeads {
                slot,
                offset,
                heads_end: self.heads_end,
            })
        } else {
            None
        };
        self.is_after_gap = defect.is_some();
        if defect.is_none() {
            self.lowest = offset;
        }
        defect
    }
}

/// Returns for each slot whether its key belongs to the longest ascending sequence of keys. So one key that is too high
/// does not put all keys after it out of order.
fn ascending(heads: &[ItemHead]) -> Vec<bool> {
    // For each length, the slot that ends a sequence of this length with the lowest key.
    let mut ends: Vec<usize> = Vec::new();
    let mut previous: Vec<Option<usize>> = Vec::with_capacity(heads.len());
    let key = |slot: usize| heads[slot].key.get();
    for slot in 0..heads.len() {
        let shorter = ends.partition_point(|&end| key(end) < key(slot));
        previous.push(shorter.checked_sub(1).map(|length| ends[length]));
        match ends.get_mut(shorter) {
            Some(end) => *end = slot,
            None => ends.push(slot),
        }
    }
    let mut ascends = vec![false; heads.len()];
    let mut at = ends.last().copied();
    while let Some(slot) = at {
        ascends[slot] = true;
        at = previous[slot];
    }
    ascends
}
