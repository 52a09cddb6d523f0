//! Number types that must not be confused, and the well-known object ids.
//!
//! Source of the values: btrfs-dev-docs `trees.txt`, On-disk-format.rst, and kernel-made images.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl From<u64> for $name {
            fn from(raw: u64) -> Self {
                Self(raw)
            }
        }
    };
}

number!(
    /// An address in the volume's logical space, in bytes; the chunk tree maps it to devices.
    Logical
);
number!(
    /// An offset on one device, in bytes.
    Physical
);
number!(
    /// The number of an inode within its subvolume.
    InodeNr
);
number!(
    /// The id of a tree.
    RootId
);
number!(
    /// The number of a transaction, which the kernel also calls generation.
    Transid
);
number!(
    /// The id of a device within its volume, starting at 1.
    DevId
);

impl Logical {
    /// Returns the address `len` bytes further, or None on overflow.
    pub fn checked_add(self, len: u64) -> Option<Logical> {
        self.0.checked_add(len).map(Logical)
    }
}

impl RootId {
    pub const ROOT_TREE: RootId = RootId(1);
    pub const EXTENT_TREE: RootId = RootId(2);
    pub const CHUNK_TREE: RootId = RootId(3);
    pub const DEV_TREE: RootId = RootId(4);
    pub const FS_TREE: RootId = RootId(5);
    pub const CSUM_TREE: RootId = RootId(7);
    pub const QUOTA_TREE: RootId = RootId(8);
    pub const UUID_TREE: RootId = RootId(9);
    pub const FREE_SPACE_TREE: RootId = RootId(10);
    pub const BLOCK_GROUP_TREE: RootId = RootId(11);
    pub const RAID_STRIPE_TREE: RootId = RootId(12);
    pub const REMAP_TREE: RootId = RootId(13);
    pub const TREE_LOG: RootId = RootId(-6i64 as u64);
    pub const TREE_LOG_FIXUP: RootId = RootId(-7i64 as u64);
    pub const TREE_RELOC: RootId = RootId(-8i64 as u64);
    pub const DATA_RELOC_TREE: RootId = RootId(-9i64 as u64);

    /// The lowest id of a subvolume other than the top level.
    pub const FIRST_FREE: u64 = 256;
    /// The highest inode number.
    pub const LAST_FREE: u64 = -256i64 as u64;

    /// Subvolume ids are below this limit; the bits from here up are the levels of quota groups.
    pub const SUBVOLUME_LIMIT: u64 = 1 << 48;

    /// Returns whether this tree is the top level or a subvolume.
    pub fn is_subvolume(self) -> bool {
        self == Self::FS_TREE || (Self::FIRST_FREE..Self::SUBVOLUME_LIMIT).contains(&self.0)
    }

    /// Returns whether this tree contains inodes: a subvolume or the data relocation tree.
    pub fn holds_files(self) -> bool {
        self.is_subvolume() || self == Self::DATA_RELOC_TREE
    }
}

impl InodeNr {
    /// The root directory of a subvolume.
    pub const FIRST_FREE: InodeNr = InodeNr(256);
    /// The displayed inode number of a directory entry whose subvolume was not copied with the snapshot.
    pub const EMPTY_SUBVOL_DIR: InodeNr = InodeNr(2);
}

/// Object ids of items that are not inodes.
pub mod objectid {
    pub const DEV_ITEMS: u64 = 1;
    pub const FIRST_CHUNK_TREE: u64 = 256;
    /// The directory in the root tree with the entry for the default subvolume.
    pub const ROOT_TREE_DIR: u64 = 6;
    pub const DEV_STATS: u64 = 0;
    pub const BALANCE: u64 = -4i64 as u64;
    pub const ORPHAN: u64 = -5i64 as u64;
    pub const TREE_LOG: u64 = -6i64 as u64;
    pub const EXTENT_CSUM: u64 = -10i64 as u64;
    pub const FREE_SPACE: u64 = -11i64 as u64;
    pub const FREE_INO: u64 = -12i64 as u64;
    pub const MULTIPLE: u64 = -255i64 as u64;
}
