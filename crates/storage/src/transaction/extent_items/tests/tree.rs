//! An extent tree in memory, rebuilt after each run and read through the tree checker.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubtrfs_device::{Access, BlockDevice, MappedChunk, MemDevice};
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{InodeNr, Logical, RootId, Transid, objectid};
use ubtrfs_format::item::{
    BlockGroupItem, ExtentFlags, ExtentHead, InlineRef, Timespec, TreeBlockInfo, decode_extent,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::crc32c;
use ubtrfs_mkfs::{Identity, MkfsOptions, Plan};
use ubtrfs_tree::{
    BlockFormat, BlockSink, BuildError, BulkTree, CommittedRoot, NodeStore, StoreOptions,
    TreeBlock, View,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::Error;
use crate::error::RefKey;
use crate::roots::{Roots, test_roots};
use crate::transaction::delayed_refs::DelayedRefs;
use crate::transaction::extent_items::item::ref_key;
use crate::transaction::extent_items::keyed::{decode, is_keyed_ref};
use crate::transaction::extent_items::{ExtentBatch, ExtentContext, run};

pub(super) type Items = BTreeMap<Key, Vec<u8>>;

/// The transaction of the runs.
pub(super) const NOW: Transid = Transid(2);

/// An item that is not a reference. Its block group begins with the first extent.
pub(super) const BLOCK_GROUP: Key = Key::new(1 << 20, KeyType::BLOCK_GROUP_ITEM, 1 << 30);

/// An extent, decoded from its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) key: Key,
    pub(super) refs: u64,
    pub(super) generation: Transid,
    pub(super) flags: ExtentFlags,
    pub(super) info: Option<TreeBlockInfo>,
    pub(super) inline: Vec<InlineRef>,
    pub(super) keyed: Vec<(Key, RefKey, u64)>,
}

impl Decoded {
    /// Returns the counts of all references, inline or not.
    pub(super) fn counts(&self) -> BTreeMap<RefKey, u64> {
        let mut counts = BTreeMap::new();
        let inline = self.inline.iter();
        let inline = inline.filter_map(|found| Some((ref_key(found)?, found.count())));
        let keyed = self.keyed.iter().map(|(_, found, count)| (*found, *count));
        for (found, count) in inline.chain(keyed) {
            *counts.entry(found).or_default() += count;
        }
        counts
    }
}

pub(super) struct TestTree {
    /// Holds the pool.
    roots: Arc<Roots>,
    device: Arc<MemDevice>,
    chunk: Arc<MappedChunk>,
    format: BlockFormat,
    view: View,
    pub(super) items: Items,
    pub(super) context: ExtentContext,
}

impl TestTree {
    pub(super) fn new(nodesize: usize, skinny_metadata: bool) -> TestTree {
        let mut options = MkfsOptions {
            metadata: Some(Profile::Single),
            nodesize: Some(nodesize as u32),
            ..MkfsOptions::default()
        };
        let skinny = Incompat::SKINNY_METADATA;
        options.features.incompat.set(skinny, skinny_metadata);
        let identity = Identity::random(1, Timespec::new_zeroed());
        let bytes = 1 << 30;
        let plan = Plan::new(&options, &identity, &[bytes]).unwrap();
        let device = Arc::new(MemDevice::new(bytes));
        plan.write(&[device.as_ref()], false).unwrap();
        let roots = test_roots::open(test_roots::pool_of(device.clone(), Access::Read));
        let chunks = roots.pool().chunk_map().all();
        let metadata =
            |chunk: &&Arc<MappedChunk>| chunk.flags().contains(BlockGroupFlags::METADATA);
        let chunk = Arc::clone(chunks.iter().find(metadata).unwrap());
        let format = BlockFormat {
            nodesize,
            fsid: identity.fsid,
            chunk_tree_uuid: identity.chunk_tree_uuid,
            generation: NOW,
        };
        let view = roots.tree(RootId::EXTENT_TREE).unwrap().view.clone();
        let group = BlockGroupItem {
            used: 0.into(),
            chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
            flags: BlockGroupFlags::DATA.bits().into(),
        };
        let mut tree = TestTree {
            roots,
            device,
            chunk,
            format,
            view,
            items: Items::from([(BLOCK_GROUP, group.as_bytes().to_vec())]),
            context: ExtentContext {
                transid: NOW,
                skinny_metadata,
                nodesize,
            },
        };
        tree.rebuild();
        tree
    }

    /// Runs the changes and applies them to the tree.
    pub(super) fn run(&mut self, mut refs: DelayedRefs) -> Result<ExtentBatch, Error> {
        let batch = run(refs.take(), &self.view, &self.context)?;
        assert!(
            batch.changes.is_sorted_by(|one, next| one.0 < next.0),
            "EXTENT-3"
        );
        for (key, value) in &batch.changes {
            match value {
                Some(value) => self.items.insert(*key, value.clone()),
                None => self.items.remove(key),
            };
        }
        self.rebuild();
        Ok(batch)
    }

    /// Builds the tree from `items` and reads all of it, through the tree checker.
    pub(super) fn rebuild(&mut self) {
        let mut blocks = Blocks {
            next: self.chunk.logical(),
            tree: self,
        };
        let format = blocks.tree.format.clone();
        let items = &blocks.tree.items;
        let mut bulk = BulkTree::new(&format, RootId::EXTENT_TREE, &mut blocks);
        for (key, value) in items {
            bulk.push(*key, value).unwrap();
        }
        let root = bulk.finish().unwrap();
        let pool = Arc::clone(self.roots.node_store().pool());
        let store = Arc::new(NodeStore::new(pool, &StoreOptions::default()));
        let committed = CommittedRoot {
            tree: RootId::EXTENT_TREE,
            bytenr: root.logical,
            level: root.level,
            generation: Some(NOW),
        };
        self.view = View::new(store, committed);
        let mut cursor = self.view.cursor();
        let mut more = cursor.seek(&Key::MIN).unwrap();
        let mut read = 0;
        while more {
            read += 1;
            more = cursor.advance().unwrap();
        }
        assert_eq!(read, self.items.len());
    }

    /// Returns the extent at `bytenr`.
    pub(super) fn extent(&self, bytenr: Logical) -> Option<Decoded> {
        extents(&self.items).remove(&bytenr)
    }
}

struct Blocks<'a> {
    tree: &'a TestTree,
    next: Logical,
}

impl BlockSink for Blocks<'_> {
    type Error = BuildError;

    fn place(&mut self, _: u8, _: &Key) -> Result<Logical, BuildError> {
        let place = self.next;
        self.next.0 += self.tree.format.nodesize as u64;
        assert!(
            self.next <= self.tree.chunk.end(),
            "the tree fits the chunk"
        );
        Ok(place)
    }

    fn emit(&mut self, mut block: TreeBlock) -> Result<(), BuildError> {
        let csum_type = self.tree.roots.superblock().csum_type();
        csum_type.seal_block(&mut block.bytes);
        let chunk = &self.tree.chunk;
        let physical = chunk.stripes()[0].physical.0 + (block.logical.0 - chunk.logical().0);
        self.tree.device.write_at(&block.bytes, physical).unwrap();
        Ok(())
    }
}

/// Decodes all extents. Panics on references to extents without an item.
pub(super) fn extents(items: &Items) -> BTreeMap<Logical, Decoded> {
    let mut extents = BTreeMap::new();
    for (key, bytes) in items {
        let bytenr = Logical(key.objectid);
        match key.item_type {
            KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => {
                let mut extent = decode_extent(key.item_type, bytes).unwrap();
                let inline = extent.refs.by_ref().collect();
                assert!(extent.refs.rest().is_empty());
                let ExtentHead {
                    refs, generation, ..
                } = extent.head;
                let decoded = Decoded {
                    key: *key,
                    refs: refs.get(),
                    generation: Transid(generation.get()),
                    flags: extent.head.flags(),
                    info: extent.tree_block.copied(),
                    inline,
                    keyed: Vec::new(),
                };
                assert!(extents.insert(bytenr, decoded).is_none(), "{key}");
            }
            item_type if is_keyed_ref(item_type) => {
                let (found, count) = decode(*key, bytes).unwrap();
                let extent: &mut Decoded = extents.get_mut(&bytenr).expect("EXTENT-2");
                extent.keyed.push((*key, found, count));
            }
            _ => {}
        }
    }
    extents
}

/// Returns up to 4096 offsets at which an inode's references have the same hash.
///
/// CRC is linear: two numbers whose difference is in the kernel of the map have the same hash. These are found by
/// elimination.
pub(super) fn colliding_offsets(count: usize) -> Vec<u64> {
    let mut basis: Vec<(u32, u64)> = Vec::new();
    let mut kernel: Vec<u64> = Vec::new();
    for mut offset in (12..56).map(|bit| 1u64 << bit) {
        let mut crc = crc32c(0, &offset.to_le_bytes());
        for (pivot, other) in &basis {
            if crc ^ pivot < crc {
                (crc, offset) = (crc ^ pivot, offset ^ other);
            }
        }
        match crc {
            0 => kernel.push(offset),
            _ => {
                basis.push((crc, offset));
                basis.sort_unstable_by(|one, other| other.cmp(one));
            }
        }
    }
    let member = |number: usize| {
        let chosen = (0..kernel.len()).filter(|bit| number >> bit & 1 == 1);
        chosen.fold(0, |offset, bit| offset ^ kernel[bit])
    };
    (0..count).map(member).collect()
}

/// Returns the reference of an inode of the top-level subvolume.
pub(super) fn file(ino: u64, offset: u64) -> RefKey {
    RefKey::DataRoot {
        root: RootId::FS_TREE,
        ino: InodeNr(ino),
        offset,
    }
}
