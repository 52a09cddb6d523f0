//! Block groups as the trees record them, and what `statfs` says.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::BlockGroupItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::flags;
use zerocopy::FromBytes;

use super::Volume;
use crate::error::{CorruptItem, Error, Result};
use crate::inspect::data_copies;
use crate::space::SpaceTotals;

/// A block group item with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGroup {
    pub start: Logical,
    pub length: u64,
    pub used: u64,
    pub flags: BlockGroupFlags,
}

/// Sizes in bytes, as `statfs` reports them for btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    pub block_size: u32,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub available_bytes: u64,
}

/// What `statfs` follows from on a volume that is open for writing.
#[derive(Clone, Debug)]
struct AsOf {
    committed: Transid,
    totals: Vec<SpaceTotals>,
}

impl PartialEq for AsOf {
    fn eq(&self, other: &AsOf) -> bool {
        // Not what is reserved, which changes with each operation.
        let shown = |sums: &SpaceTotals| (sums.kind, sums.total, sums.used, sums.pinned, sums.room);
        let same = |(a, b): (&SpaceTotals, &SpaceTotals)| shown(a) == shown(b);
        self.committed == other.committed
            && self.totals.len() == other.totals.len()
            && self.totals.iter().zip(&other.totals).all(same)
    }
}

/// What `statfs` said last: programs ask again and again, and there may be thousands of block groups.
#[derive(Debug, Default)]
pub(super) struct KnownStatFs(Mutex<Option<(Option<AsOf>, StatFs)>>);

impl Volume {
    /// Calls `each` with every block group in address order.
    pub fn for_each_block_group(&self, each: &mut dyn FnMut(BlockGroup)) -> Result<()> {
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

    /// Those of a volume whose conversion to a block group tree was broken off: each is in one of the trees.
    fn block_groups_of_both_trees(&self, each: &mut dyn FnMut(BlockGroup)) -> Result<()> {
        let mut groups: BTreeMap<Logical, BlockGroup> = BTreeMap::new();
        let mut take = |group: BlockGroup| {
            groups.insert(group.start, group);
        };
        self.block_groups_of_extent_tree(&mut take)?;
        if self.find_tree(RootId::BLOCK_GROUP_TREE)?.is_some() {
            self.block_groups_of_their_tree(&mut take)?;
        }
        groups.into_values().for_each(each);
        Ok(())
    }

    fn block_groups_of_extent_tree(&self, each: &mut dyn FnMut(BlockGroup)) -> Result<()> {
        // In the extent tree they lie between the extents: one search per chunk finds them all
        // without reading the extents.
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

    fn block_groups_of_their_tree(&self, each: &mut dyn FnMut(BlockGroup)) -> Result<()> {
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

    /// The logical starts of all chunks, ascending.
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

    /// What `statfs` shows on a mount by the kernel: sizes divided by the copies that data has, the reserve
    /// for deletions counted as used.
    pub fn statfs(&self) -> Result<StatFs> {
        let as_of = self.writer().ok().map(|writer| AsOf {
            committed: writer.committed(),
            totals: writer.space.totals(),
        });
        if let Some((known, statfs)) = &*self.known_statfs.0.lock()
            && *known == as_of
        {
            return Ok(*statfs);
        }
        let statfs = self.statfs_anew()?;
        *self.known_statfs.0.lock() = Some((as_of, statfs));
        Ok(statfs)
    }

    fn statfs_anew(&self) -> Result<StatFs> {
        match self.statfs_by_groups() {
            // The trees that tell are not needed to read files.
            Err(error) if self.data.rescue.goes_on_without(&error) => {
                let superblock = self.superblock();
                let (total, used) = (superblock.total_bytes.get(), superblock.bytes_used.get());
                Ok(StatFs {
                    block_size: superblock.sectorsize.get(),
                    total_bytes: total,
                    free_bytes: total.saturating_sub(used),
                    available_bytes: 0,
                })
            }
            outcome => outcome,
        }
    }

    fn statfs_by_groups(&self) -> Result<StatFs> {
        let infos = self.space_infos()?;
        let copies = data_copies(&infos);
        let used = infos.iter().fold(0u64, |sum, info| {
            sum.saturating_add(info.used.saturating_mul(info.copies()))
        });
        let block_size = self.superblock().sectorsize.get();
        let whole = |bytes: u64| bytes - bytes % u64::from(block_size);
        let total = whole(self.superblock().total_bytes.get() / copies);
        let free = total.saturating_sub(whole(used / copies));
        Ok(StatFs {
            block_size,
            total_bytes: total,
            free_bytes: free.saturating_sub(whole(self.global_reserve_bytes()?)),
            available_bytes: whole(self.available_bytes(&infos)),
        })
    }
}

fn decode(tree: RootId, key: Key, bytes: &[u8]) -> Result<BlockGroup> {
    let (item, _) = BlockGroupItem::ref_from_prefix(bytes).map_err(|_| Error::Corrupt {
        tree,
        key,
        what: CorruptItem::Undecodable,
    })?;
    Ok(BlockGroup {
        start: Logical(key.objectid),
        length: key.offset,
        used: item.used.get(),
        flags: item.flags(),
    })
}
