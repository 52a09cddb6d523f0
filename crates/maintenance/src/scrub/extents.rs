//! Extents and tree blocks in a range, as the extent tree of one committed state names them.

use std::ops::Range;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::{DecodedExtent, ExtentFlags, InlineRef, decode_extent};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::roots::TreeSource;
use ubtrfs_storage::{CorruptItem, Error, Result};
use ubtrfs_tree::Cursor;

/// An allocated range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Data,
    /// A tree block, with everything that the extent tree knows about it.
    Block(Expect),
}

impl Extent {
    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// Lists the extents that overlap `range`, in ascending order.
pub(super) fn extents_in(
    trees: &dyn TreeSource,
    nodesize: u64,
    range: &Range<u64>,
) -> Result<Vec<Extent>> {
    let id = RootId::EXTENT_TREE;
    let view = trees.find_view(id)?.ok_or(Error::NoSuchTree(id))?;
    let mut cursor = view.cursor();
    let mut extents = Vec::new();
    let mut more = seek_before(&mut cursor, range.start)?;
    while more && let Some((key, bytes)) = cursor.current() {
        if key.objectid >= range.end {
            break;
        }
        if matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM) {
            let corrupt = || Error::Corrupt {
                tree: id,
                key,
                what: CorruptItem::Undecodable,
            };
            let decoded = decode_extent(key.item_type, bytes).ok_or_else(corrupt)?;
            let extent = extent_of(key, decoded, nodesize);
            if extent.end() > range.start {
                extents.push(extent);
            }
        }
        more = cursor.advance()?;
    }
    Ok(extents)
}

/// Moves to the extent that may reach into the range from before `start`, or to the first item after that.
fn seek_before(cursor: &mut Cursor<'_>, start: u64) -> Result<bool> {
    let last_before = Key::new(start, KeyType(0), 0);
    if !cursor.seek_floor(&last_before)? {
        return Ok(cursor.seek(&last_before)?);
    }
    // An extent may have many references as items of their own, which are behind it.
    let objectid = cursor.current().map(|(key, _)| key.objectid);
    let first = Key::new(objectid.unwrap_or(start), KeyType::EXTENT_ITEM, 0);
    Ok(cursor.seek(&first)?)
}

fn extent_of(key: Key, extent: DecodedExtent<'_>, nodesize: u64) -> Extent {
    let head = extent.head;
    let is_block =
        key.item_type == KeyType::METADATA_ITEM || head.flags().contains(ExtentFlags::TREE_BLOCK);
    if !is_block {
        return Extent {
            start: key.objectid,
            len: key.offset,
            content: Content::Data,
        };
    }
    let level = match extent.tree_block {
        Some(info) => info.level,
        None => u8::try_from(key.offset).unwrap_or(u8::MAX),
    };
    let generation = Transid(head.generation.get());
    Extent {
        start: key.objectid,
        len: nodesize,
        content: Content::Block(Expect {
            level: Some(level),
            generation: Some(generation),
            owner: owner_of(extent),
            ..Expect::at(Logical(key.objectid))
        }),
    }
}

/// Returns a tree that the block belongs to, or None if its item alone does not decide that.
fn owner_of(extent: DecodedExtent<'_>) -> Option<RootId> {
    let mut refs = extent.refs;
    match refs.next()? {
        InlineRef::TreeBlock { root } if RootId(root) != RootId::TREE_RELOC => Some(RootId(root)),
        // Only blocks of subvolumes have other blocks as their users. Any subvolume matches another one.
        InlineRef::SharedBlock { .. } => Some(RootId::FS_TREE),
        _ => None,
    }
}
