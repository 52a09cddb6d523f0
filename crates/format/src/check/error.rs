//! The defects of a tree block, one variant each.

use super::item::CorruptItem;
use crate::csum::CsumMismatch;
use crate::ids::{Logical, RootId, Transid};
use crate::key::Key;
use crate::maker::Marks;
use crate::uuid::Uuid;

/// The reason why a tree block is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptBlock {
    /// The block does not have this volume's nodesize; a caller's mistake rather than a device's.
    #[error("block of {found} bytes, nodesize is {wanted}")]
    Size { wanted: u32, found: usize },
    /// The contents were changed after the checksum was computed, or never written.
    #[error(transparent)]
    Csum(#[from] CsumMismatch),
    /// The block belongs to another address: a misdirected write or a wrong chunk map.
    #[error("header has address {found}, read from {wanted}")]
    Bytenr { wanted: Logical, found: Logical },
    /// The block belongs to another volume.
    #[error("header has fsid {found}, volume has {wanted}")]
    Fsid { wanted: Uuid, found: Uuid },
    #[error("header names chunk tree {found}, volume has {wanted}")]
    ChunkTreeUuid { wanted: Uuid, found: Uuid },
    /// A lost write left an older block in place.
    #[error("generation {found}, parent expects {wanted}")]
    Generation { wanted: Transid, found: Transid },
    /// Newer than the superblock allows.
    #[error("generation {found} is above the volume's {limit}")]
    FutureGeneration { limit: u64, found: Transid },
    #[error("level {found}, parent expects {wanted}")]
    Level { wanted: u8, found: u8 },
    #[error("level {0} is out of range")]
    LevelRange(u8),
    /// The block belongs to another tree.
    #[error("owner {found}, walking tree {wanted}")]
    Owner { wanted: RootId, found: RootId },
    /// Every written block has the flag.
    #[error("header flags {flags:#x} lack WRITTEN")]
    NotWritten { flags: u64 },
    /// No tree has id 0.
    #[error("owner is 0")]
    NoOwner,
    #[error("tree {owner} has an empty leaf")]
    EmptyLeaf { owner: RootId },
    #[error("interior node without children")]
    EmptyNode,
    #[error("{nritems} slots, room for {max}")]
    Slots { nritems: u32, max: u32 },
    #[error("first key {found:?}, parent expects {wanted}")]
    FirstKey { wanted: Key, found: Option<Key> },
    #[error("key {key} in slot {slot} is not above {before} before it")]
    KeyOrder { slot: u32, before: Key, key: Key },
    /// Items are packed from the end of the block without gaps.
    #[error("item in slot {slot} ends at {found}, the item before it begins at {wanted}")]
    ItemEnd { slot: u32, wanted: u32, found: u64 },
    #[error("item in slot {slot} at {offset} overlaps the item heads, which end at {heads_end}")]
    ItemOverHeads {
        slot: u32,
        offset: u32,
        heads_end: u32,
    },
    #[error("child in slot {slot} is at 0")]
    ChildNull { slot: u32 },
    #[error("child in slot {slot} at {bytenr} is not aligned to the sector")]
    ChildAlignment { slot: u32, bytenr: u64 },
    /// A block to be written has a mark of a maker.
    #[error("mark of {0}")]
    Marked(Marks),
    #[error("item {key} in slot {slot}: {defect}")]
    Item {
        slot: u32,
        key: Key,
        #[source]
        defect: CorruptItem,
    },
}
