//! Items by their type, one file per family. An item too short for its type shows only its head.

mod device;
mod extent;
mod fields;
mod file;
mod quota;
mod root;
mod space;

use std::io::{self, Write};

use ubtrfs_format::key::{Key, KeyType};

use super::PrintOptions;
use super::bytes::write_raw;
use fields::whole;

pub(super) use device::print_chunk;

/// Prints the lines below the head of an item.
pub(crate) fn print_item(
    out: &mut dyn Write,
    key: Key,
    item: &[u8],
    options: &PrintOptions,
) -> io::Result<()> {
    match key.item_type {
        KeyType::INODE_ITEM => whole(item, |inode| file::inode(out, inode, options)),
        KeyType::INODE_REF => file::inode_refs(out, item, options),
        KeyType::INODE_EXTREF => file::inode_extrefs(out, item, options),
        KeyType::DIR_ITEM | KeyType::DIR_INDEX | KeyType::XATTR_ITEM => {
            file::dir_entries(out, item, options)
        }
        KeyType::DIR_LOG_ITEM | KeyType::DIR_LOG_INDEX => {
            whole(item, |range| file::dir_log(out, range))
        }
        KeyType::EXTENT_DATA => file::extent_data(out, item),
        KeyType::ORPHAN_ITEM => writeln!(out, "\t\torphan item"),
        KeyType::ROOT_ITEM => root::root_item(out, item, options),
        KeyType::ROOT_REF => root::root_ref(out, "ref", item, options),
        KeyType::ROOT_BACKREF => root::root_ref(out, "backref", item, options),
        KeyType::UUID_KEY_SUBVOL | KeyType::UUID_KEY_RECEIVED_SUBVOL => root::uuid(out, item),
        KeyType::EXTENT_CSUM => extent::csums(out, key, item, options),
        KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => extent::extent(out, key, item),
        KeyType::TREE_BLOCK_REF
        | KeyType::SHARED_BLOCK_REF
        | KeyType::EXTENT_DATA_REF
        | KeyType::SHARED_DATA_REF
        | KeyType::EXTENT_OWNER_REF => extent::keyed_ref(out, key, item),
        KeyType::BLOCK_GROUP_ITEM => whole(item, |group| space::block_group(out, group)),
        KeyType::FREE_SPACE_INFO => whole(item, |info| space::free_space_info(out, info)),
        KeyType::FREE_SPACE_EXTENT => writeln!(out, "\t\tfree space extent"),
        KeyType::FREE_SPACE_BITMAP => writeln!(out, "\t\tfree space bitmap"),
        KeyType::UNTYPED => whole(item, |header| space::cache_header(out, key, header)),
        KeyType::CHUNK_ITEM => device::chunk_item(out, item),
        KeyType::DEV_ITEM => whole(item, |dev| device::dev_item(out, dev)),
        KeyType::DEV_EXTENT => whole(item, |extent| device::dev_extent(out, extent)),
        KeyType::DEV_REPLACE => whole(item, |replace| device::dev_replace(out, replace, options)),
        KeyType::RAID_STRIPE => device::raid_stripe(out, item),
        KeyType::PERSISTENT_ITEM => device::persistent(out, key, item),
        KeyType::TEMPORARY_ITEM => quota::temporary(out, key, item),
        KeyType::QGROUP_STATUS => quota::status(out, item, options),
        KeyType::QGROUP_INFO => whole(item, |info| quota::info(out, info)),
        KeyType::QGROUP_LIMIT => whole(item, |limit| quota::limit(out, limit)),
        KeyType::STRING_ITEM => {
            out.write_all(b"\t\titem data ")?;
            write_raw(out, item, options.for_terminal)?;
            writeln!(out)
        }
        _ => Ok(()),
    }
}
