//! Roots of trees, and the references between subvolumes and their directories.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::inode::{InodeFlags, InodeItem, Timespec};
use crate::ids::{InodeNr, Logical, Transid};
use crate::key::DiskKey;
use crate::uuid::Uuid;

/// The root of a tree; key (tree id, ROOT_ITEM, 0 or the transaction that created a snapshot).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RootItem {
    pub inode: InodeItem,
    pub generation: U64,
    pub root_dirid: U64,
    pub bytenr: U64,
    pub byte_limit: U64,
    pub bytes_used: U64,
    pub last_snapshot: U64,
    pub flags: U64,
    /// 0 once the subvolume's deletion has begun.
    pub refs: U32,
    pub drop_progress: DiskKey,
    pub drop_level: u8,
    pub level: u8,
    /// Equals `generation` if the last writer of the item supports the fields below.
    pub generation_v2: U64,
    pub uuid: Uuid,
    pub parent_uuid: Uuid,
    pub received_uuid: Uuid,
    pub ctransid: U64,
    pub otransid: U64,
    pub stransid: U64,
    pub rtransid: U64,
    pub ctime: Timespec,
    pub otime: Timespec,
    pub stime: Timespec,
    pub rtime: Timespec,
    pub reserved: [U64; 8],
}
const _: () = assert!(size_of::<RootItem>() == 439);

/// The size of items without the fields from `generation_v2` on.
pub const ROOT_ITEM_V0_SIZE: usize = 239;

bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct RootItemFlags: u64 {
        const RDONLY = 1 << 0;
        /// The deletion has begun.
        const DEAD = 1 << 48;
        const _ = !0;
    }
}

impl RootItem {
    /// Creates the item of an internal tree, without its address. Unused fields have the same values as from
    /// mkfs.btrfs and the kernel. `nodesize` is in bytes.
    pub fn new_internal(nodesize: u32) -> RootItem {
        const DIRECTORY: u32 = 0o040_755;
        let mut item = RootItem::new_zeroed();
        item.inode.generation = 1.into();
        item.inode.size = 3.into();
        item.inode.nlink = 1.into();
        item.inode.nbytes = u64::from(nodesize).into();
        item.inode.mode = DIRECTORY.into();
        item.refs = 1.into();
        item
    }

    /// Creates the item of a new subvolume, without its address. `nodesize` is in bytes.
    pub fn new_subvolume(nodesize: u32) -> RootItem {
        let mut item = RootItem::new_internal(nodesize);
        item.root_dirid = InodeNr::FIRST_FREE.0.into();
        // Without this flag the kernel regards the inode's flags and byte_limit as uninitialized.
        item.inode.flags = InodeFlags::ROOT_ITEM_INIT.bits().into();
        item
    }

    /// Decodes an item of either size; the newer fields of an old or stale item read as zero.
    pub fn decode(bytes: &[u8]) -> Option<RootItem> {
        let mut item = RootItem::new_zeroed();
        match bytes.len() {
            len if len >= size_of::<RootItem>() => {
                item.as_mut_bytes()
                    .copy_from_slice(&bytes[..size_of::<RootItem>()]);
            }
            ROOT_ITEM_V0_SIZE => {
                item.as_mut_bytes()[..ROOT_ITEM_V0_SIZE].copy_from_slice(bytes);
            }
            _ => return None,
        }
        if item.generation_v2 != item.generation {
            item.as_mut_bytes()[ROOT_ITEM_V0_SIZE..].fill(0);
        }
        Some(item)
    }

    pub fn flags(&self) -> RootItemFlags {
        RootItemFlags::from_bits_retain(self.flags.get())
    }

    pub fn bytenr(&self) -> Logical {
        Logical(self.bytenr.get())
    }

    pub fn transid(&self) -> Transid {
        Transid(self.generation.get())
    }
}

/// The head of a ROOT_REF (parent to child) or ROOT_BACKREF (child to parent); the name follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RootRefHead {
    pub dirid: U64,
    pub sequence: U64,
    pub name_len: U16,
}
const _: () = assert!(size_of::<RootRefHead>() == 18);

#[derive(Clone, Copy, Debug)]
pub struct RootRef<'a> {
    pub dirid: u64,
    /// The entry's index in the directory.
    pub sequence: u64,
    pub name: &'a [u8],
}

impl<'a> RootRef<'a> {
    /// Decodes an item. Returns None unless the name fills the item exactly.
    pub fn decode(bytes: &'a [u8]) -> Option<RootRef<'a>> {
        let (head, name) = RootRefHead::ref_from_prefix(bytes).ok()?;
        (name.len() == usize::from(head.name_len.get())).then_some(RootRef {
            dirid: head.dirid.get(),
            sequence: head.sequence.get(),
            name,
        })
    }
}
