//! Block groups, as recorded in the trees.

use std::collections::BTreeMap;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::BlockGroupItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::flags;
use zerocopy::FromBytes;

use super::Roots;
use crate::error::{CorruptItem, Error, Result};

/// A block group item with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGroupRecord {
    pub start: Logical,
    pub length: u64,
    pub used: u64,
    pub flags: BlockGroupFlags,
}

impl Roots {
    /// Calls `each` with every block group in address order.
    pub fn for_each_block_group(&self, each: &mut dyn FnMut(BlockGroupRecord)) -> Result<()> {
        if self
            .superblock()
            .compat_ro()
            .contains(CompatRo::BLOCK_GROUP_TREE)
        {
            return self.block_groups_of_their_tree(each);
        }
        if self.superblock().flags.get() & flags::CHANGING_BG_TREE != 0 {
            return self.block_groups_of_both_trees(each);
        }
        self.block_groups_of_extent_tree(each)
    }

    /// Lists the block groups of a volume whose conversion to a block group tree was interrupted. Each is in one of the
    /// two trees.
    fn block_groups_of_both_trees(&self, each: &mut dyn FnMut(BlockGroupRecord)) -> Result<()> {
        let mut groups: BTreeMap<Logical, BlockGroupRecord> = BTreeMap::new();
        let mut take = |group: BlockGroupRecord| {
            groups.insert(group.start, group);
        };
        self.block_groups_of_extent_tree(&mut take)?;
        if self.find_tree(RootId::BLOCK_GROUP_TREE)?.is_some() {
            self.block_groups_of_their_tree(&mut take)?;
        }
        groups.into_values().for_each(each);
        Ok(())
    }

    fn block_groups_of_extent_tree(&self, each: &mut dyn FnMut(BlockGroupRecord)) -> Result<()> {
        // The items are scattered between the extents. One search per chunk finds them all without a scan of the
        // extents.
        let tree = self.tree(RootId::EXTENT_TREE)?;
        let mut cursor = tree.view.cursor();
        let mut next = Some(Key::MIN);
        for start in self.chunk_starts()? {
            let from = Key::new(start, KeyType::BLOCK_GROUP_ITEM, 0);
            if next.is_some_and(|next| from < next) || !cursor.seek(&from)? {
                continue;
            }
            if let Some((key, bytes)) = cursor.current()
                && (key.objectid, key.item_type) == (start, KeyType::BLOCK_GROUP_ITEM)
            {
                each(decode(RootId::EXTENT_TREE, key, bytes)?);
                next = key.next();
            }
        }
        Ok(())
    }

    fn block_groups_of_their_tree(&self, each: &mut dyn FnMut(BlockGroupRecord)) -> Result<()> {
        let tree = self.tree(RootId::BLOCK_GROUP_TREE)?;
        let mut cursor = tree.view.cursor().sequential();
        let mut more = cursor.seek(&Key::MIN)?;
        while more {
            if let Some((key, bytes)) = cursor.current()
                && key.item_type == KeyType::BLOCK_GROUP_ITEM
            {
                each(decode(RootId::BLOCK_GROUP_TREE, key, bytes)?);
            }
            more = cursor.advance()?;
        }
        Ok(())
    }

    /// Returns the logical start addresses of all chunks, ascending.
    fn chunk_starts(&self) -> Result<Vec<u64>> {
        let view = self.chunk_tree();
        let mut cursor = view.cursor().sequential();
        let mut starts = Vec::new();
        let mut more = cursor.seek(&Key::MIN)?;
        while more {
            if let Some((key, _)) = cursor.current()
                && key.item_type == KeyType::CHUNK_ITEM
            {
                starts.push(key.offset);
            }
            more = cursor.advance()?;
        }
        Ok(starts)
    }
}

fn decode(tree: RootId, key: Key, bytes: &[u8]) -> Result<BlockGroupRecord> {
    let (item, _) = BlockGroupItem::ref_from_prefix(bytes).map_err(|_| Error::Corrupt {
        tree,
        key,
        what: CorruptItem::Undecodable,
    })?;
    Ok(BlockGroupRecord {
        start: Logical(key.objectid),
        length: key.offset,
        used: item.used.get(),
        flags: item.flags(),
    })
}
