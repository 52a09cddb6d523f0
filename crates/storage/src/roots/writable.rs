//! Conditions for write access to a volume, and the reads to check them.

use ubtrfs_device::MappedChunk;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::maker::Marks;
use ubtrfs_format::node::ITEM_HEAD_SIZE;
use ubtrfs_format::superblock::{Superblock, flags};

use super::Roots;
use crate::error::{Error, Result};

/// Trees whose root items must have key offset 0.
const FOUND_AT_0: [RootId; 7] = [
    RootId::EXTENT_TREE,
    RootId::DEV_TREE,
    RootId::CSUM_TREE,
    RootId::FREE_SPACE_TREE,
    RootId::BLOCK_GROUP_TREE,
    RootId::UUID_TREE,
    RootId::QUOTA_TREE,
];

/// Fails if the volume uses features that this code can read but not maintain, or has marks of a maker.
pub fn check_writable(sb: &Superblock) -> Result<()> {
    let refuse = |why: String| Err(Error::Unwritable(why));
    let marks = Marks::of_superblock(sb);
    if !marks.is_empty() {
        return Err(Error::Marked(marks));
    }
    let unknown = sb.read_only_features();
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        return refuse(format!("it uses {}", names.join(", ")));
    }
    if sb.incompat().contains(Incompat::SIMPLE_QUOTA) {
        return refuse("it uses squota".to_owned());
    }
    let changing = flags::CHANGING_FSID
        | flags::CHANGING_FSID_V2
        | flags::CHANGING_BG_TREE
        | flags::CHANGING_DATA_CSUM
        | flags::CHANGING_META_CSUM;
    if sb.flags.get() & changing != 0 {
        return refuse("a conversion of it was broken off".to_owned());
    }
    if sb.flags.get() & flags::SEEDING != 0 {
        return Err(Error::Seed);
    }
    if sb.flags.get() & (flags::METADUMP | flags::METADUMP_V2) != 0 {
        return refuse("it is a dump of metadata".to_owned());
    }
    Ok(())
}

impl Roots {
    /// Returns an upper bound for the bytes of all trees. Blocks shared by snapshots count once per snapshot. Mixed
    /// block groups do not record this size.
    pub(crate) fn most_tree_bytes(&self) -> Result<u64> {
        const ROOT_TREE_BLOCKS: u64 = 16;
        let nodesize = u64::from(self.superblock().nodesize.get());
        // The root tree has no root item. Its blocks are at least half full.
        let mut bytes = ROOT_TREE_BLOCKS * nodesize;
        let mut cursor = self.root_tree.view.cursor().sequential();
        let mut more = cursor.seek(&Key::new(0, KeyType(0), 0))?;
        while more && let Some((key, value)) = cursor.current() {
            bytes = bytes.saturating_add(2 * (ITEM_HEAD_SIZE + value.len()) as u64);
            if key.item_type == KeyType::ROOT_ITEM
                && let Some(item) = RootItem::decode(value)
            {
                bytes = bytes.saturating_add(item.bytes_used.get());
            }
            more = cursor.advance()?;
        }
        Ok(bytes)
    }

    /// Reads all root items, because their flags can be marks of a maker. Marks are noted where blocks are read.
    ///
    /// Errors: the blocks read so far have marks.
    pub fn refuse_marked_roots(&self) -> Result<()> {
        // An unreadable leaf does not prevent write access to the rest. Nothing reads marks in it.
        self.root_tree.view.read_all_blocks(&mut |error| {
            tracing::warn!(%error, "a block of the root tree is not searched for marks of NAS makers");
        });
        self.refuse_marks()
    }

    /// Fails if the blocks read so far have marks of a maker.
    pub fn refuse_marks(&self) -> Result<()> {
        match self.store.marks() {
            Marks::NONE => Ok(()),
            marks => Err(Error::Marked(marks)),
        }
    }

    pub(crate) fn refuse_parity(&self) -> Result<()> {
        let chunks = self.pool.chunk_map().all();
        match chunks.iter().find(|chunk| MappedChunk::has_parity(chunk)) {
            None => Ok(()),
            Some(chunk) => Err(Error::Unwritable(format!(
                "chunk {} is {}, which is only read",
                chunk.logical(),
                chunk.profile().name()
            ))),
        }
    }

    /// Fails if a root item has a key offset other than 0, where the kernel does not find it. Kernels crash on a
    /// checksum tree at such an offset.
    pub(crate) fn refuse_moved_roots(&self) -> Result<()> {
        for id in FOUND_AT_0 {
            if let Some(tree) = self.find_tree(id)?
                && tree.key_offset != 0
            {
                let offset = tree.key_offset;
                return Err(Error::Unwritable(format!(
                    "the root item of tree {id} is at offset {offset}, not at 0"
                )));
            }
        }
        Ok(())
    }

    /// Returns whether deleted subvolumes wait to be freed. Orphan items in the root tree name them.
    pub(crate) fn has_deleted_subvolumes(&self) -> Result<bool> {
        let view = self.root_tree();
        let mut cursor = view.cursor();
        let first = Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, 0);
        if !cursor.seek(&first)? {
            return Ok(false);
        }
        let key = cursor
            .current()
            .map(|(key, _)| (key.objectid, key.item_type));
        Ok(key == Some((first.objectid, first.item_type)))
    }
}
