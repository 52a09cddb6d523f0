//! Block groups as the trees record them, and what `statfs` says.

use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::BlockGroupItem;
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::FromBytes;

use super::Volume;
use crate::error::{CorruptItem, Error, Result};

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

    /// What `statfs` shows: raw size of the devices, what no extent uses, and how much data would
    /// still fit in the profile that data has.
    pub fn statfs(&self) -> Result<StatFs> {
        let (mut used_raw, mut allocated_raw, mut free_data) = (0u64, 0u64, 0u64);
        let mut data_ratio = 1.0;
        let devices = self.superblock().num_devices.get();
        self.for_each_block_group(&mut |group| {
            let ratio = raw_ratio(group.flags, devices);
            used_raw = used_raw.saturating_add((group.used as f64 * ratio) as u64);
            allocated_raw = allocated_raw.saturating_add((group.length as f64 * ratio) as u64);
            if group.flags.contains(BlockGroupFlags::DATA) {
                free_data = free_data.saturating_add(group.length.saturating_sub(group.used));
                data_ratio = ratio;
            }
        })?;
        let total = self.superblock().total_bytes.get();
        let unallocated = total.saturating_sub(allocated_raw);
        Ok(StatFs {
            block_size: self.superblock().sectorsize.get(),
            total_bytes: total,
            free_bytes: total.saturating_sub(used_raw),
            available_bytes: free_data.saturating_add((unallocated as f64 / data_ratio) as u64),
        })
    }
}

/// Raw bytes on devices per byte of a block group.
fn raw_ratio(flags: BlockGroupFlags, devices: u64) -> f64 {
    let Some(profile) = flags.profile() else {
        return 1.0;
    };
    let parities = profile.parities() as u64;
    match profile {
        Profile::Raid5 | Profile::Raid6 if devices > parities => {
            devices as f64 / (devices - parities) as f64
        }
        _ => profile.copies() as f64,
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
