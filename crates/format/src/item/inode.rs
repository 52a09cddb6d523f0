//! Inodes.

use bitflags::bitflags;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Seconds since 1970 (negative before) and nanoseconds within the second.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Timespec {
    pub sec: I64,
    pub nsec: U32,
}
const _: () = assert!(size_of::<Timespec>() == 12);

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InodeItem {
    pub generation: U64,
    pub transid: U64,
    pub size: U64,
    /// Allocated bytes, without holes.
    pub nbytes: U64,
    /// Only used by the inode of a version 1 free-space cache.
    pub block_group: U64,
    pub nlink: U32,
    pub uid: U32,
    pub gid: U32,
    pub mode: U32,
    pub rdev: U64,
    pub flags: U64,
    pub sequence: U64,
    pub reserved: [U64; 4],
    pub atime: Timespec,
    pub ctime: Timespec,
    pub mtime: Timespec,
    pub otime: Timespec,
}
const _: () = assert!(size_of::<InodeItem>() == 160);

bitflags! {
    /// Flags of an inode; users know most of the lower half.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct InodeFlags: u64 {
        const NODATASUM = 1 << 0;
        const NODATACOW = 1 << 1;
        const READONLY = 1 << 2;
        const NOCOMPRESS = 1 << 3;
        const PREALLOC = 1 << 4;
        const SYNC = 1 << 5;
        const IMMUTABLE = 1 << 6;
        const APPEND = 1 << 7;
        const NODUMP = 1 << 8;
        const NOATIME = 1 << 9;
        const DIRSYNC = 1 << 10;
        const COMPRESS = 1 << 11;
        const ROOT_ITEM_INIT = 1 << 31;
        /// The kernel calls the upper half ro_flags.
        const RO_VERITY = 1 << 32;
        const _ = !0;
    }
}

impl InodeItem {
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.get())
    }
}
