//! Keys and the names of trees and other object ids.

use std::fmt;

use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::key::{Key, KeyType};

const QGROUP_LEVEL_SHIFT: u32 = 48;
const NO_NUMBER: u64 = u64::MAX;
/// A conversion of data checksums in progress.
const CSUM_CHANGE: u64 = -13i64 as u64;

/// "(256 INODE_ITEM 0)"
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyText(pub(crate) Key);

impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.0;
        write!(
            f,
            "({} {} ",
            Objectid(key.objectid, key.item_type),
            TypeName(key)
        )?;
        match key.item_type {
            KeyType::QGROUP_RELATION | KeyType::QGROUP_INFO | KeyType::QGROUP_LIMIT => {
                write!(f, "{}", Qgroup(key.offset))?;
            }
            KeyType::UUID_KEY_SUBVOL | KeyType::UUID_KEY_RECEIVED_SUBVOL => {
                write!(f, "{:#018x}", key.offset)?;
            }
            // The tree being relocated.
            KeyType::ROOT_ITEM if RootId(key.objectid) == RootId::TREE_RELOC => {
                write!(f, "{}", Objectid(key.offset, KeyType::UNTYPED))?;
            }
            KeyType::ROOT_ITEM => write!(f, "{}", key.offset)?,
            _ if key.offset == NO_NUMBER => f.write_str("-1")?,
            _ => write!(f, "{}", key.offset)?,
        }
        f.write_str(")")
    }
}

struct TypeName(Key);

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.item_type {
            KeyType::UNTYPED if self.0.objectid == objectid::FREE_SPACE => f.write_str("UNTYPED"),
            // Newer than the layout.
            item @ (KeyType::IDENTITY_REMAP | KeyType::REMAP | KeyType::REMAP_BACKREF) => {
                write!(f, "UNKNOWN.{}", item.0)
            }
            item => write!(f, "{item}"),
        }
    }
}

struct Qgroup(u64);

impl fmt::Display for Qgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.0 >> QGROUP_LEVEL_SHIFT;
        let id = self.0 & ((1 << QGROUP_LEVEL_SHIFT) - 1);
        write!(f, "{level}/{id}")
    }
}

/// An object id, displayed by the name that it has for items of this type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objectid(pub(super) u64, pub(super) KeyType);

impl fmt::Display for Objectid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Objectid(id, item_type) = *self;
        match item_type {
            KeyType::PERSISTENT_ITEM if id == objectid::DEV_STATS => {
                return f.write_str("DEV_STATS");
            }
            // Device ids.
            KeyType::PERSISTENT_ITEM | KeyType::DEV_EXTENT => return write!(f, "{id}"),
            KeyType::QGROUP_RELATION => return write!(f, "{}", Qgroup(id)),
            KeyType::UUID_KEY_SUBVOL | KeyType::UUID_KEY_RECEIVED_SUBVOL => {
                return write!(f, "{id:#018x}");
            }
            KeyType::DEV_ITEM if id == objectid::DEV_ITEMS => return f.write_str("DEV_ITEMS"),
            KeyType::CHUNK_ITEM if id == objectid::FIRST_CHUNK_TREE => {
                return f.write_str("FIRST_CHUNK_TREE");
            }
            _ => {}
        }
        match name(id) {
            Some(name) => f.write_str(name),
            None => write!(f, "{id}"),
        }
    }
}

fn name(id: u64) -> Option<&'static str> {
    Some(match RootId(id) {
        RootId::ROOT_TREE => "ROOT_TREE",
        RootId::EXTENT_TREE => "EXTENT_TREE",
        RootId::CHUNK_TREE => "CHUNK_TREE",
        RootId::DEV_TREE => "DEV_TREE",
        RootId::FS_TREE => "FS_TREE",
        RootId(objectid::ROOT_TREE_DIR) => "ROOT_TREE_DIR",
        RootId::CSUM_TREE => "CSUM_TREE",
        RootId::QUOTA_TREE => "QUOTA_TREE",
        RootId::UUID_TREE => "UUID_TREE",
        RootId::FREE_SPACE_TREE => "FREE_SPACE_TREE",
        RootId::BLOCK_GROUP_TREE => "BLOCK_GROUP_TREE",
        RootId::RAID_STRIPE_TREE => "RAID_STRIPE_TREE",
        RootId(objectid::BALANCE) => "BALANCE",
        RootId(objectid::ORPHAN) => "ORPHAN",
        RootId::TREE_LOG => "TREE_LOG",
        RootId::TREE_LOG_FIXUP => "LOG_FIXUP",
        RootId::TREE_RELOC => "TREE_RELOC",
        RootId::DATA_RELOC_TREE => "DATA_RELOC_TREE",
        RootId(objectid::EXTENT_CSUM) => "EXTENT_CSUM",
        RootId(objectid::FREE_SPACE) => "FREE_SPACE",
        RootId(objectid::FREE_INO) => "FREE_INO",
        RootId(CSUM_CHANGE) => "CSUM_CHANGE",
        RootId(objectid::MULTIPLE) => "MULTIPLE",
        RootId(NO_NUMBER) => "-1",
        _ => return None,
    })
}

/// Returns the name of a tree for the heading of its dump.
pub(crate) fn tree_name(id: RootId) -> &'static str {
    match id {
        RootId::ROOT_TREE => "root",
        RootId::EXTENT_TREE => "extent",
        RootId::CHUNK_TREE => "chunk",
        RootId::DEV_TREE => "device",
        RootId::FS_TREE => "fs",
        RootId(objectid::ROOT_TREE_DIR) => "directory",
        RootId::CSUM_TREE => "checksum",
        RootId::QUOTA_TREE => "quota",
        RootId::UUID_TREE => "uuid",
        RootId::FREE_SPACE_TREE => "free space",
        RootId::BLOCK_GROUP_TREE => "block group",
        RootId::RAID_STRIPE_TREE => "raid stripe",
        RootId(objectid::ORPHAN) => "orphan",
        RootId::TREE_LOG => "log",
        RootId::TREE_LOG_FIXUP => "log fixup",
        RootId::TREE_RELOC => "reloc",
        RootId::DATA_RELOC_TREE => "data reloc",
        RootId(objectid::EXTENT_CSUM) => "extent checksum",
        RootId(objectid::MULTIPLE) => "multiple",
        _ => "file",
    }
}
