//! The checks of single items, one file per family, each with its defects.
//!
//! A check sees one item and, where ranges must not overlap, the previous item in the same leaf. It returns the first
//! defect in field order.

mod block_group;
mod chunk;
mod csum;
mod dev;
mod dir;
mod extent;
mod extent_ref;
mod file_extent;
mod free_space;
mod inode;
mod names;
mod root;
mod stripe_tree;

pub use block_group::CorruptBlockGroup;
pub use csum::CorruptCsumItem;
pub use dev::CorruptDev;
pub use dir::CorruptDirItem;
pub use extent::CorruptExtent;
pub use extent_ref::CorruptExtentRef;
pub use file_extent::{CorruptFileExtent, ExtentField};
pub use free_space::CorruptFreeSpace;
pub use inode::CorruptInode;
pub use names::CorruptName;
pub use root::{CorruptRoot, RootGeneration};
pub use stripe_tree::CorruptRaidStripe;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::BlockContext;
use crate::chunk_check::CorruptChunk;
use crate::ids::{RootId, objectid};
use crate::item::{
    BalanceItem, DevReplaceItem, DevStatsItem, DirLogItem, QgroupInfoItem, QgroupLimitItem,
    QgroupStatusItem,
};
use crate::key::{Key, KeyType};
use crate::maker::item_sizes;

/// The reason why an item is invalid, by family.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptItem {
    #[error("item of {found} bytes, not {wanted}")]
    Size { wanted: u32, found: u32 },
    /// An inode's items follow its INODE_ITEM or each other.
    #[error("item before it is {before}, of another inode")]
    NoInode { before: Key },
    #[error(transparent)]
    Inode(#[from] CorruptInode),
    #[error(transparent)]
    Name(#[from] CorruptName),
    #[error(transparent)]
    DirItem(#[from] CorruptDirItem),
    #[error(transparent)]
    FileExtent(#[from] CorruptFileExtent),
    #[error(transparent)]
    Csum(#[from] CorruptCsumItem),
    #[error(transparent)]
    Root(#[from] CorruptRoot),
    #[error(transparent)]
    Extent(#[from] CorruptExtent),
    #[error(transparent)]
    ExtentRef(#[from] CorruptExtentRef),
    #[error(transparent)]
    BlockGroup(#[from] CorruptBlockGroup),
    #[error(transparent)]
    Chunk(#[from] CorruptChunk),
    #[error(transparent)]
    Dev(#[from] CorruptDev),
    #[error(transparent)]
    FreeSpace(#[from] CorruptFreeSpace),
    #[error(transparent)]
    RaidStripe(#[from] CorruptRaidStripe),
}

/// An item under check, and the previous one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub key: Key,
    pub bytes: &'a [u8],
    /// The previous item in the leaf.
    pub before: Option<(Key, &'a [u8])>,
    /// The owner of the leaf.
    pub owner: RootId,
}

impl<'a> Slot<'a> {
    /// Views the whole item as a `T`.
    fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
    ) -> Result<&'a T, CorruptItem> {
        T::ref_from_bytes(self.bytes).map_err(|_| self.wrong_size(size_of::<T>()))
    }

    /// Views the start of the item as a `T`, and returns the rest as well.
    fn view_prefix<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
    ) -> Result<(&'a T, &'a [u8]), CorruptItem> {
        T::ref_from_prefix(self.bytes).map_err(|_| self.wrong_size(size_of::<T>()))
    }

    fn sized(&self, wanted: usize) -> Result<(), CorruptItem> {
        if self.bytes.len() == wanted {
            Ok(())
        } else {
            Err(self.wrong_size(wanted))
        }
    }

    fn sized_as_one_of(&self, sizes: &[u32]) -> Result<(), CorruptItem> {
        let found = self.bytes.len() as u32;
        match sizes.first() {
            Some(&wanted) if !sizes.contains(&found) => Err(CorruptItem::Size { wanted, found }),
            _ => Ok(()),
        }
    }

    fn wrong_size(&self, wanted: usize) -> CorruptItem {
        CorruptItem::Size {
            wanted: wanted as u32,
            found: self.bytes.len() as u32,
        }
    }

    /// Returns the previous item if it has the same type.
    fn before_alike(&self) -> Option<(Key, &'a [u8])> {
        self.before
            .filter(|(key, _)| key.item_type == self.key.item_type)
    }
}

/// Checks one item by its type. Types that the kernel does not check, and unknown types, are accepted.
pub(super) fn check_item(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    match slot.key.item_type {
        KeyType::INODE_ITEM => inode::check(slot, context),
        KeyType::INODE_REF => names::check_inode_ref(slot),
        KeyType::INODE_EXTREF => names::check_inode_extref(slot, context),
        KeyType::ROOT_REF | KeyType::ROOT_BACKREF => names::check_root_ref(slot),
        KeyType::DIR_ITEM | KeyType::DIR_INDEX | KeyType::XATTR_ITEM => dir::check(slot, context),
        KeyType::DIR_LOG_ITEM | KeyType::DIR_LOG_INDEX => slot.view::<DirLogItem>().map(drop),
        KeyType::ORPHAN_ITEM => slot.sized(0),
        KeyType::EXTENT_DATA => file_extent::check(slot, context),
        KeyType::EXTENT_CSUM => csum::check(slot, context),
        KeyType::ROOT_ITEM => root::check(slot, context),
        KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => extent::check(slot, context),
        KeyType::TREE_BLOCK_REF
        | KeyType::SHARED_BLOCK_REF
        | KeyType::SHARED_DATA_REF
        | KeyType::EXTENT_DATA_REF => extent_ref::check(slot, context),
        KeyType::BLOCK_GROUP_ITEM => block_group::check(slot, context),
        KeyType::CHUNK_ITEM => chunk::check(slot, context),
        KeyType::DEV_ITEM => dev::check_item(slot),
        KeyType::DEV_EXTENT => dev::check_extent(slot, context),
        KeyType::FREE_SPACE_INFO => free_space::check_info(slot, context),
        KeyType::FREE_SPACE_EXTENT => free_space::check_extent(slot, context),
        KeyType::FREE_SPACE_BITMAP => free_space::check_bitmap(slot, context),
        KeyType::RAID_STRIPE => stripe_tree::check(slot, context),
        _ => check_size(slot),
    }
}

/// Checks items that only have to be of the right size.
fn check_size(slot: &Slot<'_>) -> Result<(), CorruptItem> {
    if let Some(sizes) = item_sizes(slot.owner, slot.key) {
        return slot.sized_as_one_of(sizes);
    }
    match slot.key.item_type {
        // Ends before `enable_gen` unless simple quotas are on.
        KeyType::QGROUP_STATUS if slot.bytes.len() == size_of::<QgroupStatusItem>() - 8 => Ok(()),
        KeyType::QGROUP_STATUS => slot.sized(size_of::<QgroupStatusItem>()),
        KeyType::QGROUP_INFO => slot.sized(size_of::<QgroupInfoItem>()),
        KeyType::QGROUP_LIMIT => slot.sized(size_of::<QgroupLimitItem>()),
        KeyType::QGROUP_RELATION => slot.sized(0),
        KeyType::TEMPORARY_ITEM if slot.key.objectid == objectid::BALANCE => {
            slot.sized(size_of::<BalanceItem>())
        }
        // Kernels with fewer error counters wrote fewer numbers.
        KeyType::PERSISTENT_ITEM
            if slot.key.objectid == objectid::DEV_STATS
                && (slot.bytes.is_empty()
                    || !slot.bytes.len().is_multiple_of(size_of::<u64>())) =>
        {
            Err(slot.wrong_size(size_of::<DevStatsItem>()))
        }
        KeyType::DEV_REPLACE => slot.view_prefix::<DevReplaceItem>().map(drop),
        // A packed array of subvolume ids.
        KeyType::UUID_KEY_SUBVOL | KeyType::UUID_KEY_RECEIVED_SUBVOL
            if slot.bytes.is_empty() || !slot.bytes.len().is_multiple_of(size_of::<u64>()) =>
        {
            Err(slot.wrong_size(size_of::<u64>()))
        }
        _ => Ok(()),
    }
}
