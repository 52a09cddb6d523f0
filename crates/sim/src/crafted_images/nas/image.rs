//! An image file whose trees are edited in place: one device, no parity, few items in each tree.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{BlockGroupItem, Chunk, ExtentFlags, ExtentHead, RootItem, Stripe};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{HEADER_SIZE, Header, Node};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use zerocopy::{FromBytes, IntoBytes};

use crate::craft::Items;
use crate::crafted_images::craft::pack;

/// A chunk: start, length, and the offsets of its copies.
type Copies = (u64, u64, Vec<u64>);

#[derive(Debug)]
pub(super) struct Image {
    file: File,
    len_bytes: u64,
    pub(super) superblock: Superblock,
    chunks: Vec<Copies>,
}

impl Image {
    /// Opens an image for edits.
    ///
    /// # Panics
    /// If the file does not contain a volume on one device.
    pub(super) fn open(path: &Path) -> Image {
        let file = File::options().read(true).write(true).open(path);
        let file = file.expect("the image can be written");
        let mut block = vec![0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut block, SUPERBLOCK_OFFSETS[0])
            .expect("a superblock");
        let superblock = Superblock::from_block(&block)
            .expect("as long as a superblock")
            .clone();
        let mut image = Image {
            len_bytes: file.metadata().expect("a file").len(),
            chunks: superblock
                .system_chunks()
                .map(|chunk| chunk.expect("valid system chunks"))
                .map(|system| copies(system.logical.0, system.chunk, system.stripes))
                .collect(),
            file,
            superblock,
        };
        let mut chunks = Vec::new();
        for (key, bytes) in image.items_of(image.superblock.chunk_root.get()) {
            if let Some((chunk, stripes, _)) =
                Chunk::split(&bytes).filter(|_| key.item_type == KeyType::CHUNK_ITEM)
            {
                chunks.push(copies(key.offset, chunk, stripes));
            }
        }
        image.chunks = chunks;
        image
    }

    fn places(&self, logical: u64) -> Vec<u64> {
        let holds = |(start, len, _): &&Copies| (*start..start + len).contains(&logical);
        let chunk = self.chunks.iter().find(holds);
        let (start, _, offsets) = chunk.expect("a chunk has the address");
        let within = logical - start;
        offsets.iter().map(|offset| offset + within).collect()
    }

    fn nodesize(&self) -> usize {
        self.superblock.nodesize.get() as usize
    }

    fn block(&self, logical: u64) -> Vec<u8> {
        let mut block = vec![0; self.nodesize()];
        self.file
            .read_exact_at(&mut block, self.places(logical)[0])
            .expect("within the image");
        block
    }

    fn put_block(&self, logical: u64, block: &mut [u8]) {
        self.superblock.csum_type().seal_block(block);
        for place in self.places(logical) {
            self.file
                .write_all_at(block, place)
                .expect("within the image");
        }
    }

    /// Writes all copies of the superblock.
    pub(super) fn put_superblock(&mut self) {
        for offset in SUPERBLOCK_OFFSETS {
            if offset + SUPERBLOCK_SIZE as u64 > self.len_bytes {
                break;
            }
            self.superblock.bytenr = offset.into();
            self.superblock.seal();
            self.file
                .write_all_at(self.superblock.as_bytes(), offset)
                .expect("within the image");
        }
    }

    /// Returns the addresses of the leaves below a block, in the order of keys.
    fn leaves(&self, logical: u64) -> Vec<u64> {
        let block = self.block(logical);
        let node = Node::new(&block).expect("a whole block");
        if node.is_leaf() {
            return vec![logical];
        }
        let children = node.ptrs().iter().map(|ptr| ptr.blockptr.get());
        children.flat_map(|child| self.leaves(child)).collect()
    }

    fn leaf_items(&self, leaf: u64) -> Items {
        let block = self.block(leaf);
        let items = Node::new(&block).expect("a whole block").items();
        items.map(|(key, bytes)| (key, bytes.to_vec())).collect()
    }

    fn put_leaf_items(&self, leaf: u64, mut items: Items) {
        let mut block = self.block(leaf);
        items.sort_by_key(|(key, _)| *key);
        pack(&mut block, &items);
        self.put_block(leaf, &mut block);
    }

    /// Returns all items of the tree with this root block.
    pub(super) fn items_of(&self, root: u64) -> Items {
        let leaves = self.leaves(root);
        leaves
            .into_iter()
            .flat_map(|leaf| self.leaf_items(leaf))
            .collect()
    }

    /// Returns the root block of the root tree.
    pub(super) fn root_tree(&self) -> u64 {
        self.superblock.root.get()
    }

    fn roots(&self) -> Vec<(RootId, u64)> {
        let items = self.items_of(self.root_tree()).into_iter();
        let roots = items.filter(|(key, _)| key.item_type == KeyType::ROOT_ITEM);
        roots
            .filter_map(|(key, bytes)| {
                let item = RootItem::decode(&bytes)?;
                Some((RootId(key.objectid), item.bytenr.get()))
            })
            .collect()
    }

    /// Returns the root block of a tree.
    pub(super) fn tree(&self, id: RootId) -> u64 {
        let roots = self.roots();
        let found = roots.iter().find(|(tree, _)| *tree == id);
        found.expect("the tree exists").1
    }

    /// Returns the ids and root blocks of the top level and the subvolumes.
    pub(super) fn subvolumes(&self) -> Vec<(RootId, u64)> {
        let mut roots = self.roots();
        roots.retain(|(id, _)| id.is_subvolume());
        roots
    }

    /// Edits items in place. `edit` returns whether it changed the item. Returns the number of changes.
    pub(super) fn edit(
        &self,
        root: u64,
        mut edit: impl FnMut(&Key, &mut Vec<u8>) -> bool,
    ) -> usize {
        let mut changed = 0;
        for leaf in self.leaves(root) {
            let mut items = self.leaf_items(leaf);
            let before = changed;
            for (key, bytes) in &mut items {
                changed += usize::from(edit(key, bytes));
            }
            if changed > before {
                self.put_leaf_items(leaf, items);
            }
        }
        changed
    }

    /// Inserts an item, unless a tree that shares the leaf has inserted it.
    pub(super) fn insert(&self, root: u64, key: Key, bytes: Vec<u8>) {
        let leaves = self.leaves(root);
        let starts_below = |leaf: &&u64| {
            let items = self.leaf_items(**leaf);
            items.first().is_some_and(|(first, _)| *first <= key)
        };
        let leaf = *leaves.iter().rfind(starts_below).unwrap_or(&leaves[0]);
        let mut items = self.leaf_items(leaf);
        if items.iter().all(|(other, _)| *other != key) {
            items.push((key, bytes));
            self.put_leaf_items(leaf, items);
        }
    }

    /// Adds a tree of one leaf, in the first free space of a metadata block group.
    pub(super) fn add_tree(&mut self, id: RootId, items: Items) {
        let nodesize = self.nodesize() as u64;
        let extent_tree = self.tree(RootId::EXTENT_TREE);
        let at = self.take_free_block(extent_tree);
        let mut block = self.block(self.root_tree());
        let header = Header::mut_from_bytes(&mut block[..HEADER_SIZE]).expect("as long");
        header.bytenr = at.into();
        header.generation = self.superblock.generation;
        header.owner = id.0.into();
        header.level = 0;
        self.put_block(at, &mut block);
        self.put_leaf_items(at, items);

        let head = ExtentHead {
            refs: 1.into(),
            generation: self.superblock.generation,
            flags: ExtentFlags::TREE_BLOCK.bits().into(),
        };
        let mut extent = head.as_bytes().to_vec();
        extent.push(KeyType::TREE_BLOCK_REF.0);
        extent.extend(id.0.to_le_bytes());
        self.insert(extent_tree, Key::new(at, KeyType::METADATA_ITEM, 0), extent);
        let grown = self.edit(extent_tree, |key, bytes| {
            let is_it = key.item_type == KeyType::BLOCK_GROUP_ITEM
                && (key.objectid..key.objectid + key.offset).contains(&at);
            if is_it {
                let item = BlockGroupItem::mut_from_bytes(bytes).expect("as long");
                item.used = (item.used.get() + nodesize).into();
            }
            is_it
        });
        assert_eq!(grown, 1, "one block group has the block");

        let mut item = RootItem::new_internal(nodesize as u32);
        item.generation = self.superblock.generation;
        item.generation_v2 = self.superblock.generation;
        item.bytenr = at.into();
        item.bytes_used = nodesize.into();
        let key = Key::new(id.0, KeyType::ROOT_ITEM, 0);
        self.insert(self.root_tree(), key, item.as_bytes().to_vec());
        let used = self.superblock.bytes_used.get() + nodesize;
        self.superblock.bytes_used = used.into();
        self.put_superblock();
    }

    /// Removes one block from the free-space tree.
    fn take_free_block(&self, extent_tree: u64) -> u64 {
        let nodesize = self.nodesize() as u64;
        let is_metadata = |(key, bytes): &(Key, Vec<u8>)| {
            let item = BlockGroupItem::ref_from_bytes(bytes).ok();
            let item = item.filter(|_| key.item_type == KeyType::BLOCK_GROUP_ITEM);
            let flags = item.map(|item| BlockGroupFlags::from_bits_retain(item.flags.get()));
            let metadata = flags.is_some_and(|flags| flags.contains(BlockGroupFlags::METADATA));
            metadata.then(|| key.objectid..key.objectid + key.offset)
        };
        let items = self.items_of(extent_tree);
        let groups: Vec<_> = items.iter().filter_map(is_metadata).collect();
        let free_space = self.tree(RootId::FREE_SPACE_TREE);
        let is_roomy = |key: &Key| {
            key.item_type == KeyType::FREE_SPACE_EXTENT
                && key.offset > 2 * nodesize
                && groups.iter().any(|group| group.contains(&key.objectid))
        };
        for leaf in self.leaves(free_space) {
            let mut items = self.leaf_items(leaf);
            if let Some((key, _)) = items.iter_mut().find(|(key, _)| is_roomy(key)) {
                let at = key.objectid;
                *key = Key::new(at + nodesize, key.item_type, key.offset - nodesize);
                self.put_leaf_items(leaf, items);
                return at;
            }
        }
        panic!("no free space for a tree block");
    }
}

fn copies(logical: u64, chunk: &Chunk, stripes: &[Stripe]) -> Copies {
    let offsets = stripes.iter().map(|stripe| stripe.offset.get()).collect();
    (logical, chunk.length.get(), offsets)
}
