//! DIR_ITEM, DIR_INDEX and XATTR_ITEM: packed records of a location, a name and data.

use super::{Slot, inode};
use crate::check::{BlockContext, CorruptItem};
use crate::ids::RootId;
use crate::item::{DirEntries, DirEntry, DirHead, FileKind};
use crate::key::{Key, KeyType};
use crate::limits::MAX_NAME_BYTES;
use crate::name_hash::name_hash;
use crate::node::{ITEM_HEAD_SIZE, leaf_data_size};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptDirItem {
    #[error("{rest} bytes at the end hold no whole record")]
    CrossesEnd { rest: u32 },
    /// Neither an inode nor a subvolume.
    #[error("entry points to {0}, which is neither an inode nor a subvolume")]
    Location(Key),
    /// An attribute has no location.
    #[error("attribute points to {0}")]
    XattrLocation(Key),
    #[error("kind {0} is unknown")]
    Kind(u8),
    #[error("attribute has the kind {0}")]
    XattrKind(u8),
    #[error("entry has the kind of an attribute")]
    EntryIsXattr,
    #[error("no name")]
    NoName,
    #[error("name of {len} bytes, at most {max}")]
    NameTooLong { len: u32, max: u32 },
    #[error("name and data of {len} bytes, at most {max}")]
    DataTooLong { len: u32, max: u32 },
    #[error("entry with {0} bytes of data")]
    EntryData(u16),
    /// The key's offset must be the hash of the name.
    #[error("name hashes to {found:#x}, key has {wanted:#x}")]
    Hash { wanted: u64, found: u64 },
}

pub(super) fn check(slot: &Slot<'_>, context: &BlockContext<'_>) -> Result<(), CorruptItem> {
    let mut entries = DirEntries::new(slot.bytes);
    for entry in entries.by_ref() {
        check_entry(slot.key, &entry, context)?;
    }
    let rest = entries.rest();
    if !rest.is_empty() || slot.bytes.is_empty() {
        let rest = rest.len() as u32;
        return Err(CorruptDirItem::CrossesEnd { rest }.into());
    }
    Ok(())
}

fn check_entry(
    key: Key,
    entry: &DirEntry<'_>,
    context: &BlockContext<'_>,
) -> Result<(), CorruptDirItem> {
    let is_xattr = key.item_type == KeyType::XATTR_ITEM;
    check_location(entry.location(), is_xattr)?;
    check_kind(entry.head.type_, is_xattr)?;
    check_lengths(entry, is_xattr, context)?;
    if key.item_type != KeyType::DIR_INDEX && !context.scrambled_names {
        let found = u64::from(name_hash(entry.name));
        if found != key.offset {
            return Err(CorruptDirItem::Hash {
                wanted: key.offset,
                found,
            });
        }
    }
    Ok(())
}

fn check_location(location: Key, is_xattr: bool) -> Result<(), CorruptDirItem> {
    if is_xattr {
        return if location == Key::MIN {
            Ok(())
        } else {
            Err(CorruptDirItem::XattrLocation(location))
        };
    }
    let sound = match location.item_type {
        KeyType::ROOT_ITEM => RootId(location.objectid).is_subvolume(),
        // Type 0 is not an inode, but the kernel accepts it.
        KeyType::INODE_ITEM | KeyType::UNTYPED => inode::check_key(location).is_ok(),
        _ => false,
    };
    if sound {
        Ok(())
    } else {
        Err(CorruptDirItem::Location(location))
    }
}

fn check_kind(kind: u8, is_xattr: bool) -> Result<(), CorruptDirItem> {
    match kind {
        FileKind::RAW_XATTR if is_xattr => Ok(()),
        FileKind::RAW_XATTR => Err(CorruptDirItem::EntryIsXattr),
        _ if FileKind::from_raw(kind).is_none() => Err(CorruptDirItem::Kind(kind)),
        _ if is_xattr => Err(CorruptDirItem::XattrKind(kind)),
        _ => Ok(()),
    }
}

fn check_lengths(
    entry: &DirEntry<'_>,
    is_xattr: bool,
    context: &BlockContext<'_>,
) -> Result<(), CorruptDirItem> {
    if entry.name.is_empty() {
        return Err(CorruptDirItem::NoName);
    }
    if entry.name.len() > MAX_NAME_BYTES {
        return Err(CorruptDirItem::NameTooLong {
            len: entry.name.len() as u32,
            max: MAX_NAME_BYTES as u32,
        });
    }
    let len = entry.name.len() + entry.data.len();
    let max = leaf_data_size(context.nodesize as usize) - ITEM_HEAD_SIZE - size_of::<DirHead>();
    if len > max {
        return Err(CorruptDirItem::DataTooLong {
            len: len as u32,
            max: max as u32,
        });
    }
    if !is_xattr && !entry.data.is_empty() {
        return Err(CorruptDirItem::EntryData(entry.head.data_len.get()));
    }
    Ok(())
}
