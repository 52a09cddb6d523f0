//! Names as they are in the back references of a log.

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{InodeExtrefs, InodeRefs};
use ubtrfs_format::key::{Key, KeyType};

/// A name from a back reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoggedName {
    pub(super) dir: InodeNr,
    pub(super) index: u64,
    pub(super) name: Vec<u8>,
}

/// Returns the names in an INODE_REF or INODE_EXTREF.
pub(super) fn names_of(key: Key, item: &[u8]) -> Vec<LoggedName> {
    match key.item_type {
        KeyType::INODE_REF => InodeRefs::new(item)
            .map(|name| LoggedName {
                dir: InodeNr(key.offset),
                index: name.index,
                name: name.name.to_vec(),
            })
            .collect(),
        _ => InodeExtrefs::new(item)
            .map(|name| LoggedName {
                dir: InodeNr(name.parent),
                index: name.index,
                name: name.name.to_vec(),
            })
            .collect(),
    }
}
