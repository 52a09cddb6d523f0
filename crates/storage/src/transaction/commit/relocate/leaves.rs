//! The data extents that a leaf refers to.

use std::collections::BTreeMap;

use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_format::item::{FileExtent, FileExtentHead, FileExtentRegular};
use ubtrfs_format::key::KeyType;
use ubtrfs_format::node::{HEADER_SIZE, Node};
use zerocopy::FromBytes;

use crate::error::RefKey;

/// A reference of a leaf to a data extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafExtent {
    pub(super) disk: Logical,
    pub(super) len: u64,
    ino: InodeNr,
    /// The file offset minus the offset within the extent.
    offset: u64,
}

impl LeafExtent {
    /// Returns the reference that a tree has because of this item.
    pub(super) fn held_by(&self, root: RootId) -> RefKey {
        RefKey::DataRoot {
            root,
            ino: self.ino,
            offset: self.offset,
        }
    }
}

/// Iterates over the references of a leaf to data extents.
pub(super) fn extents_of<'n>(node: &'n Node<'_>) -> impl Iterator<Item = LeafExtent> + 'n {
    node.items().filter_map(|(key, bytes)| {
        if key.item_type != KeyType::EXTENT_DATA {
            return None;
        }
        let FileExtent::Regular { body, .. } = FileExtent::decode(bytes)? else {
            return None;
        };
        Some(LeafExtent {
            disk: body.disk()?,
            len: body.disk_num_bytes.get(),
            ino: InodeNr(key.objectid),
            offset: key.offset.wrapping_sub(body.offset.get()),
        })
    })
}

/// Replaces the addresses of moved extents in a leaf.
pub(super) fn patch_extents(bytes: &mut [u8], moved: &BTreeMap<Logical, Logical>) {
    let mut places = Vec::new();
    if let Some(node) = Node::new(bytes) {
        for head in node.heads() {
            if head.key.get().item_type == KeyType::EXTENT_DATA {
                places.push(HEADER_SIZE + head.offset.get() as usize);
            }
        }
    }
    for place in places {
        let Some(FileExtent::Regular { .. }) = FileExtent::decode(&bytes[place..]) else {
            continue;
        };
        let body = &mut bytes[place + size_of::<FileExtentHead>()..];
        let Ok((body, _)) = FileExtentRegular::mut_from_prefix(body) else {
            continue;
        };
        if let Some(new) = body.disk().and_then(|disk| moved.get(&disk)) {
            body.disk_bytenr = new.0.into();
        }
    }
}
