//! Keys, which order every tree.

use std::cmp::Ordering;
use std::fmt;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A key with native numbers. The field order is the sort order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Key {
    pub objectid: u64,
    pub item_type: KeyType,
    pub offset: u64,
}

impl Ord for Key {
    /// Compares the object ids, then type and offset as one number. For the items of one inode, separate comparisons
    /// would mispredict every other branch.
    fn cmp(&self, other: &Key) -> Ordering {
        let low = |key: &Key| u128::from(key.item_type.0) << 64 | u128::from(key.offset);
        match self.objectid.cmp(&other.objectid) {
            Ordering::Equal => low(self).cmp(&low(other)),
            unequal => unequal,
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Key {
    pub const MIN: Key = Key::new(0, KeyType(0), 0);
    pub const MAX: Key = Key::new(u64::MAX, KeyType(u8::MAX), u64::MAX);

    pub const fn new(objectid: u64, item_type: KeyType, offset: u64) -> Key {
        Key {
            objectid,
            item_type,
            offset,
        }
    }

    /// Returns the first key above this one, or None above [`Key::MAX`].
    pub fn next(self) -> Option<Key> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Key { offset, ..self });
        }
        if let Some(t) = self.item_type.0.checked_add(1) {
            return Some(Key::new(self.objectid, KeyType(t), 0));
        }
        self.objectid
            .checked_add(1)
            .map(|o| Key::new(o, KeyType(0), 0))
    }

    /// Returns the last key below this one, or None below [`Key::MIN`].
    pub fn prev(self) -> Option<Key> {
        if let Some(offset) = self.offset.checked_sub(1) {
            return Some(Key { offset, ..self });
        }
        if let Some(t) = self.item_type.0.checked_sub(1) {
            return Some(Key::new(self.objectid, KeyType(t), u64::MAX));
        }
        self.objectid
            .checked_sub(1)
            .map(|o| Key::new(o, KeyType(u8::MAX), u64::MAX))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {})", self.objectid, self.item_type, self.offset)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key in its on-disk form.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Debug,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct DiskKey {
    pub objectid: U64,
    pub item_type: u8,
    pub offset: U64,
}
const _: () = assert!(size_of::<DiskKey>() == 17);

impl DiskKey {
    pub fn get(&self) -> Key {
        Key::new(
            self.objectid.get(),
            KeyType(self.item_type),
            self.offset.get(),
        )
    }
}

impl From<Key> for DiskKey {
    fn from(key: Key) -> Self {
        DiskKey {
            objectid: key.objectid.into(),
            item_type: key.item_type.0,
            offset: key.offset.into(),
        }
    }
}

/// The type of an item. Any byte may occur on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyType(pub u8);

macro_rules! key_types {
    ($($name:ident = $value:literal),* $(,)?) => {
        impl KeyType {
            $(pub const $name: KeyType = KeyType($value);)*

            /// Returns the kernel's name of the type, if it has one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

key_types! {
    INODE_ITEM = 1,
    INODE_REF = 12,
    INODE_EXTREF = 13,
    XATTR_ITEM = 24,
    VERITY_DESC_ITEM = 36,
    VERITY_MERKLE_ITEM = 37,
    ORPHAN_ITEM = 48,
    DIR_LOG_ITEM = 60,
    DIR_LOG_INDEX = 72,
    DIR_ITEM = 84,
    DIR_INDEX = 96,
    EXTENT_DATA = 108,
    EXTENT_CSUM = 128,
    ROOT_ITEM = 132,
    ROOT_BACKREF = 144,
    ROOT_REF = 156,
    EXTENT_ITEM = 168,
    METADATA_ITEM = 169,
    EXTENT_OWNER_REF = 172,
    TREE_BLOCK_REF = 176,
    EXTENT_DATA_REF = 178,
    SHARED_BLOCK_REF = 182,
    SHARED_DATA_REF = 184,
    BLOCK_GROUP_ITEM = 192,
    FREE_SPACE_INFO = 198,
    FREE_SPACE_EXTENT = 199,
    FREE_SPACE_BITMAP = 200,
    DEV_EXTENT = 204,
    DEV_ITEM = 216,
    CHUNK_ITEM = 228,
    RAID_STRIPE = 230,
    IDENTITY_REMAP = 234,
    REMAP = 235,
    REMAP_BACKREF = 236,
    QGROUP_STATUS = 240,
    QGROUP_INFO = 242,
    QGROUP_LIMIT = 244,
    QGROUP_RELATION = 246,
    TEMPORARY_ITEM = 248,
    PERSISTENT_ITEM = 249,
    DEV_REPLACE = 250,
    UUID_KEY_SUBVOL = 251,
    UUID_KEY_RECEIVED_SUBVOL = 252,
    STRING_ITEM = 253,
}

impl KeyType {
    /// The objectid of a balance's saved state is [`crate::ids::objectid::BALANCE`].
    pub const BALANCE_ITEM: KeyType = KeyType::TEMPORARY_ITEM;
    pub const DEV_STATS: KeyType = KeyType::PERSISTENT_ITEM;
    /// Type 0 is only used for headers of version 1 free-space caches.
    pub const UNTYPED: KeyType = KeyType(0);
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "UNKNOWN.{}", self.0),
        }
    }
}

impl fmt::Debug for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
