//! The items of the trees: one file per kind, with the kernel's field names.
//!
//! Each type is declared once, with its size asserted. The iterators over packed items stop at the first entry that
//! does not fit; `check` rejects such blocks.

pub mod acl;
mod attributes;
mod chunk;
mod dev;
mod dir;
mod extent;
mod file_extent;
mod file_time;
mod free_space;
mod inode;
mod names;
mod qgroup;
mod root;
mod stripe_tree;
mod verity;

pub use attributes::{DeviceNumber, PreservedAttributes, Times};
pub use chunk::{BlockGroupItem, Chunk, STRIPE_LEN, Stripe};
pub use dev::{DevExtent, DevItem, DevReplaceItem, DevStatsItem};
pub use dir::{DirEntries, DirEntry, DirHead, DirLogItem, FileKind};
pub use extent::{
    DecodedExtent, ExtentDataRef, ExtentFlags, ExtentHead, ExtentOwnerRef, InlineRef, InlineRefs,
    SharedDataRef, TreeBlockInfo, decode_extent,
};
pub use file_extent::{
    FILE_EXTENT_INLINE_START, FileExtent, FileExtentHead, FileExtentKind, FileExtentRegular,
};
pub use file_time::FileTime;
pub use free_space::{
    FREE_SPACE_BITMAP_BYTES, FREE_SPACE_USING_BITMAPS, FreeSpaceHeader, FreeSpaceInfo,
};
pub use inode::{InodeFlags, InodeItem, Timespec};
pub use names::{ExtrefEntry, InodeExtrefHead, InodeExtrefs, InodeRefHead, InodeRefs, RefEntry};
pub use qgroup::{BalanceItem, DiskBalanceArgs, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem};
pub use root::{ROOT_ITEM_V0_SIZE, RootItem, RootItemFlags, RootRef, RootRefHead};
pub use stripe_tree::RaidStride;
pub use verity::VerityDescriptorItem;
