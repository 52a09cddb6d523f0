//! A volume in memory whose leaves are edited item by item.
//!
//! Only reachable blocks are visible. All copies of a block are written, checksums are updated, and keys in parents
//! follow the first keys of their children. The test is responsible for the consistency with other trees.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::node::{HEADER_SIZE, Header, ITEM_HEAD_SIZE, ItemHead, KeyPtr, Node};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use zerocopy::{FromBytes, IntoBytes};

use crate::fault::FaultDevice;
use crate::read_sparse;

/// Device index and offset.
type Place = (usize, u64);

/// The items of a leaf.
pub type Items = Vec<(Key, Vec<u8>)>;

/// A valid volume before any edits. Loaded once, cloned for each test.
#[derive(Clone, Debug)]
pub struct Crafted {
    devices: Vec<MemDevice>,
    csum_type: CsumType,
    nodesize: usize,
    /// The copies of each reachable block.
    blocks: BTreeMap<u64, Vec<Place>>,
}

const STEP: usize = 4096;

impl Crafted {
    /// Reads device files.
    ///
    /// # Panics
    /// If they do not contain a volume.
    pub fn load(devices: &[PathBuf]) -> Crafted {
        let images: Vec<Vec<u8>> = devices
            .iter()
            .map(|path| read_sparse(path).expect("device files can be read"))
            .collect();
        let first = SUPERBLOCK_OFFSETS[0] as usize;
        let superblock = Superblock::from_block(&images[0][first..first + SUPERBLOCK_SIZE])
            .expect("as long as a superblock")
            .clone();
        let mut found: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
        let (csum_type, nodesize) = (superblock.csum_type(), superblock.nodesize.get() as usize);
        for (device, image) in images.iter().enumerate() {
            for offset in (0..image.len() - nodesize).step_by(STEP) {
                let block = &image[offset..offset + nodesize];
                let Some(node) = Node::new(block) else {
                    continue;
                };
                if node.header().fsid == *superblock.metadata_fsid()
                    && !SUPERBLOCK_OFFSETS.contains(&(offset as u64))
                    && csum_type.verify_block(block).is_ok()
                {
                    let places = found.entry(node.bytenr().0).or_default();
                    places.push((device, offset as u64));
                }
            }
        }
        let mut crafted = Crafted {
            devices: images
                .iter()
                .map(|image| MemDevice::from_bytes(image))
                .collect(),
            csum_type,
            nodesize,
            blocks: found,
        };
        let mut live = BTreeSet::new();
        crafted.collect(superblock.chunk_root.get(), &mut live);
        crafted.collect(superblock.root.get(), &mut live);
        crafted.collect(superblock.log_root.get(), &mut live);
        crafted.blocks.retain(|bytenr, _| live.contains(bytenr));
        crafted
    }

    /// Collects the block, the blocks below it, and the trees of its root items.
    fn collect(&self, bytenr: u64, live: &mut BTreeSet<u64>) {
        if !self.blocks.contains_key(&bytenr) || !live.insert(bytenr) {
            return;
        }
        let block = self.block(bytenr);
        let node = Node::new(&block).expect("a whole block");
        for ptr in node.ptrs() {
            self.collect(ptr.blockptr.get(), live);
        }
        for (key, bytes) in node.items() {
            if key.item_type == KeyType::ROOT_ITEM
                && let Some(item) = RootItem::decode(bytes)
            {
                self.collect(item.bytenr.get(), live);
            }
        }
    }

    /// Returns the devices, which support injected faults.
    pub fn devices(&self) -> Vec<(PathBuf, Arc<FaultDevice>)> {
        self.devices
            .iter()
            .enumerate()
            .map(|(index, device)| {
                let device: Arc<dyn BlockDevice> = Arc::new(device.clone());
                let path = PathBuf::from(format!("device {index}"));
                (path, Arc::new(FaultDevice::new(device)))
            })
            .collect()
    }

    pub fn nodesize(&self) -> usize {
        self.nodesize
    }

    pub fn superblock(&self) -> Superblock {
        let mut block = vec![0; SUPERBLOCK_SIZE];
        self.read((0, SUPERBLOCK_OFFSETS[0]), &mut block);
        Superblock::from_block(&block)
            .expect("as long as a superblock")
            .clone()
    }

    /// Edits the superblock copies that are selected by `which`, from device index and copy number.
    pub fn edit_superblocks(
        &mut self,
        which: impl Fn(usize, usize) -> bool,
        edit: impl Fn(&mut Superblock),
    ) {
        for device in 0..self.devices.len() {
            for (copy, &offset) in SUPERBLOCK_OFFSETS.iter().enumerate() {
                let fits = offset + SUPERBLOCK_SIZE as u64 <= self.devices[device].len_bytes();
                if !fits || !which(device, copy) {
                    continue;
                }
                let mut block = vec![0; SUPERBLOCK_SIZE];
                self.read((device, offset), &mut block);
                let superblock =
                    Superblock::mut_from_bytes(&mut block).expect("as long as a superblock");
                edit(superblock);
                superblock.seal();
                self.write((device, offset), &block);
            }
        }
    }

    fn read(&self, (device, offset): Place, buf: &mut [u8]) {
        self.devices[device]
            .read_at(buf, offset)
            .expect("within the device");
    }

    /// Writes raw bytes to any location.
    pub fn write(&mut self, (device, offset): (usize, u64), bytes: &[u8]) {
        self.devices[device]
            .write_at(bytes, offset)
            .expect("within the device");
    }

    /// Returns the bytes of a block.
    pub fn block(&self, bytenr: u64) -> Vec<u8> {
        let mut block = vec![0; self.nodesize];
        self.read(self.blocks[&bytenr][0], &mut block);
        block
    }

    /// Returns the locations of a block's copies: device index and offset.
    pub fn places(&self, bytenr: u64) -> &[(usize, u64)] {
        &self.blocks[&bytenr]
    }

    /// Lists the addresses of a tree's blocks on one level.
    pub fn blocks_of(&self, owner: RootId, level: u8) -> Vec<u64> {
        let is_wanted = |bytenr: &&u64| {
            let block = self.block(**bytenr);
            let node = Node::new(&block).expect("a whole block");
            (node.owner(), node.level()) == (owner, level)
        };
        self.blocks.keys().filter(is_wanted).copied().collect()
    }

    /// Writes all copies of a block, with a correct checksum.
    pub fn put_block(&mut self, bytenr: u64, block: &mut [u8]) {
        self.csum_type.seal_block(block);
        for place in self.blocks[&bytenr].clone() {
            self.write(place, block);
        }
    }

    /// Edits the header of a block.
    pub fn edit_header(&mut self, bytenr: u64, edit: impl FnOnce(&mut Header)) {
        let mut block = self.block(bytenr);
        let header = Header::mut_from_bytes(&mut block[..HEADER_SIZE]).expect("as long");
        edit(header);
        self.put_block(bytenr, &mut block);
    }

    /// Edits the pointers to a block.
    pub fn edit_pointers_to(&mut self, bytenr: u64, edit: &dyn Fn(&mut KeyPtr)) {
        for parent in self.blocks.keys().copied().collect::<Vec<_>>() {
            let mut block = self.block(parent);
            let ptrs_bytes = size_of_val(Node::new(&block).expect("a whole block").ptrs());
            let bytes = &mut block[HEADER_SIZE..][..ptrs_bytes];
            let ptrs = <[KeyPtr]>::mut_from_bytes(bytes).expect("whole pointers");
            let mut slots = ptrs.iter().map(|ptr| ptr.blockptr.get());
            if let Some(slot) = slots.position(|ptr| ptr == bytenr) {
                edit(&mut ptrs[slot]);
                let first = (slot == 0).then(|| ptrs[0].key);
                self.put_block(parent, &mut block);
                if let Some(key) = first {
                    self.edit_pointers_to(parent, &|ptr| ptr.key = key);
                }
            }
        }
    }

    /// Passes the items of each leaf owned by `owner` to `edit`, in address order, and writes the leaves for which it
    /// returns true. Returns their number.
    ///
    /// # Panics
    /// If the edited items do not fit.
    pub fn edit_leaves(
        &mut self,
        owner: RootId,
        mut edit: impl FnMut(&mut Items) -> bool,
    ) -> usize {
        let mut changed = 0;
        for bytenr in self.blocks_of(owner, 0) {
            let mut block = self.block(bytenr);
            let node = Node::new(&block).expect("a whole block");
            let mut items: Items = node
                .items()
                .map(|(key, bytes)| (key, bytes.to_vec()))
                .collect();
            let first = items.first().map(|(key, _)| *key);
            if !edit(&mut items) {
                continue;
            }
            changed += 1;
            items.sort_by_key(|(key, _)| *key);
            pack(&mut block, &items);
            self.put_block(bytenr, &mut block);
            let new_first = items.first().map(|(key, _)| *key);
            if let Some(key) = new_first.filter(|_| new_first != first) {
                self.edit_pointers_to(bytenr, &|ptr| ptr.key = DiskKey::from(key));
            }
        }
        changed
    }
}

/// Fills a leaf with these items, packed from its end.
pub(in crate::crafted_images) fn pack(block: &mut [u8], items: &Items) {
    let len = block.len();
    block[HEADER_SIZE..].fill(0);
    let mut end = len;
    for (slot, (key, bytes)) in items.iter().enumerate() {
        end = end.checked_sub(bytes.len()).expect("the items fit");
        block[end..end + bytes.len()].copy_from_slice(bytes);
        let head = ItemHead {
            key: DiskKey::from(*key),
            offset: ((end - HEADER_SIZE) as u32).into(),
            size: (bytes.len() as u32).into(),
        };
        let at = HEADER_SIZE + slot * ITEM_HEAD_SIZE;
        assert!(at + ITEM_HEAD_SIZE <= end, "the items fit");
        block[at..at + ITEM_HEAD_SIZE].copy_from_slice(head.as_bytes());
    }
    let header = Header::mut_from_bytes(&mut block[..HEADER_SIZE]).expect("as long");
    header.nritems = (items.len() as u32).into();
}
