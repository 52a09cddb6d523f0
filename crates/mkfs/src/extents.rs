//! The extent tree: all tree blocks and data extents, each with its single reference. Also contains block groups if
//! they have no tree of their own.

use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::{ExtentDataRef, ExtentFlags, ExtentHead, TreeBlockInfo};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{PlacedBlock, Placement};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::error::MkfsError;
use super::features::QuotaMode;
use super::files::Push;
use super::options::Geometry;
use super::trees::{Contents, GENERATION, Item};

impl Contents<'_> {
    /// Pushes all items in key order, for the blocks in `known`.
    pub(super) fn each_extent(
        &self,
        known: &Placement,
        push: &mut Push<'_>,
    ) -> Result<(), MkfsError> {
        let mut groups = if self.geometry.features.has_block_group_tree() {
            Vec::new()
        } else {
            self.block_groups(known)
        }
        .into_iter()
        .peekable();
        let mut blocks = known
            .blocks()
            .iter()
            .map(|block| self.block(block))
            .peekable();
        // Merges the three sorted sequences: block groups, tree blocks, and the extents of files.
        let mut before = |key: Key, push: &mut Push<'_>| {
            loop {
                let group = groups.peek().map(|item| item.key).unwrap_or(Key::MAX);
                let block = blocks.peek().map(|item| item.key).unwrap_or(Key::MAX);
                let next = match group.min(block) {
                    next if next >= key => return Ok(()),
                    next if next == group => groups.next(),
                    _ => blocks.next(),
                };
                if let Some(item) = next {
                    push(item.key, &item.data)?;
                }
            }
        };
        self.files.each_extent(&mut |key, data| {
            before(key, push)?;
            push(key, data)
        })?;
        before(Key::MAX, push)
    }

    fn block(&self, (&logical, block): (&Logical, &PlacedBlock)) -> Item {
        let geometry = self.geometry;
        let incompat = geometry.features.incompat;
        let skinny = incompat.contains(Incompat::SKINNY_METADATA);
        let nodesize = u64::from(geometry.nodesize);
        let key = if skinny {
            Key::new(logical.0, KeyType::METADATA_ITEM, u64::from(block.level))
        } else {
            Key::new(logical.0, KeyType::EXTENT_ITEM, nodesize)
        };
        Item {
            key,
            data: tree_block(block, skinny),
        }
    }
}

fn tree_block(block: &PlacedBlock, skinny: bool) -> Vec<u8> {
    let head = ExtentHead {
        refs: 1.into(),
        generation: GENERATION.into(),
        flags: ExtentFlags::TREE_BLOCK.bits().into(),
    };
    let mut bytes = head.as_bytes().to_vec();
    if !skinny {
        let info = TreeBlockInfo {
            key: block.first_key.into(),
            level: block.level,
        };
        bytes.extend_from_slice(info.as_bytes());
    }
    bytes.push(KeyType::TREE_BLOCK_REF.0);
    bytes.extend_from_slice(U64::new(block.owner.0).as_bytes());
    bytes
}

/// Writes the item of a data extent with a single reference.
pub(super) fn data_extent(
    geometry: &Geometry,
    subvolume: RootId,
    ino: u64,
    file_offset: u64,
    bytes: &mut Vec<u8>,
) {
    let head = ExtentHead {
        refs: 1.into(),
        generation: GENERATION.into(),
        flags: ExtentFlags::DATA.bits().into(),
    };
    bytes.clear();
    bytes.extend_from_slice(head.as_bytes());
    // References are ordered by type, and EXTENT_OWNER_REF has the lowest.
    if geometry.features.quota == Some(QuotaMode::Simple) {
        bytes.push(KeyType::EXTENT_OWNER_REF.0);
        bytes.extend_from_slice(U64::new(subvolume.0).as_bytes());
    }
    let reference = ExtentDataRef {
        root: subvolume.0.into(),
        objectid: ino.into(),
        offset: file_offset.into(),
        count: 1.into(),
    };
    bytes.push(KeyType::EXTENT_DATA_REF.0);
    bytes.extend_from_slice(reference.as_bytes());
}
