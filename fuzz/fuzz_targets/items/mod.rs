//! Every decoder of items over every item of a block, sound or not.

use std::hint::black_box;

use ubtrfs_format::item::{
    Chunk, DirEntries, FileExtent, InodeExtrefs, InodeItem, InodeRefs, RootItem, RootRef,
    decode_extent,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::Node;
use zerocopy::FromBytes;

pub(crate) fn decode_all(node: Node<'_>) {
    for (key, item) in node.items() {
        decode(key, item);
        let _ = black_box(key.to_string());
    }
    for ptr in node.ptrs() {
        black_box(ptr.key.get());
    }
}

/// Passes the item to all decoders. They ignore the key's type, except for extents.
fn decode(key: Key, item: &[u8]) {
    let mut refs = InodeRefs::new(item);
    refs.by_ref().for_each(|entry| {
        black_box(entry);
    });
    assert!(refs.rest().len() <= item.len());
    InodeExtrefs::new(item).for_each(|entry| {
        black_box(entry);
    });
    DirEntries::new(item).for_each(|entry| {
        black_box((entry.location(), entry.kind()));
    });
    if let Ok((inode, _)) = InodeItem::ref_from_prefix(item) {
        black_box(inode.flags());
    }
    if let Some(extent) = FileExtent::decode(item) {
        black_box((extent.num_bytes(), extent.transid()));
    }
    if let Some(root) = RootItem::decode(item) {
        black_box((root.flags(), root.bytenr(), root.transid()));
    }
    black_box(RootRef::decode(item));
    if let Some((chunk, stripes, rest)) = Chunk::split(item) {
        assert_eq!(stripes.len(), usize::from(chunk.num_stripes.get()));
        black_box((chunk.flags().profile(), chunk.flags().type_name(), rest));
    }
    for item_type in [key.item_type, KeyType::EXTENT_ITEM, KeyType::METADATA_ITEM] {
        if let Some(extent) = decode_extent(item_type, item) {
            extent.refs.for_each(|reference| {
                black_box((
                    reference.key_type(),
                    reference.sequence(),
                    reference.count(),
                ));
            });
        }
    }
}
