//! Blocks made by the kernel, and leaves that can be decoded, edited and sealed again.

use std::path::PathBuf;

use ubtrfs_format::check::{BlockContext, CorruptBlock, Expect, check_block};
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::ids::{Logical, Transid};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::node::{HEADER_SIZE, ITEM_HEAD_SIZE, ItemHead, Node};
use ubtrfs_format::uuid::Uuid;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) const NODESIZE: usize = 4096;
/// Above the generation of every golden block.
pub(crate) const GENERATION: u64 = 1000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/blocks")
}

/// Returns the names of all golden blocks.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("tests/data/blocks")
        .map(|entry| entry.expect("entry").path())
        .map(|path| path.file_stem().expect("name").to_string_lossy().into())
        .collect();
    names.sort();
    names
}

pub(crate) fn block(name: &str) -> Vec<u8> {
    let path = folder().join(name).with_extension("bin");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Creates a context in which a golden block is valid. `fsid` is the one in its header.
pub(crate) fn context(fsid: &Uuid) -> BlockContext<'_> {
    BlockContext {
        sectorsize: 4096,
        nodesize: NODESIZE as u32,
        csum_type: CsumType::Crc32c,
        fsid,
        seed_fsids: &[],
        chunk_tree_uuid: None,
        incompat: Incompat::SUPPORTED,
        compat_ro: CompatRo::SUPPORTED,
        generation: Transid(GENERATION),
        ignore_flags: false,
        scrambled_names: false,
    }
}

/// Checks a block with its own address and volume.
pub(crate) fn check(block: &[u8]) -> Result<(), CorruptBlock> {
    check_with(block, |_| {})
}

pub(crate) fn check_with(
    block: &[u8],
    edit: impl FnOnce(&mut BlockContext<'_>),
) -> Result<(), CorruptBlock> {
    let node = Node::new(block).expect("4 KiB");
    let mut context = context(&node.header().fsid);
    edit(&mut context);
    check_block(block, &context, &Expect::at(Logical(node.bytenr().0)))
}

pub(crate) fn seal(block: &mut [u8]) {
    CsumType::Crc32c.seal_block(block);
}

/// A decoded leaf.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    header: Vec<u8>,
    pub(crate) items: Vec<(Key, Vec<u8>)>,
}

impl Leaf {
    pub(crate) fn golden(name: &str) -> Leaf {
        let block = block(name);
        check(&block).unwrap_or_else(|error| panic!("{name}: {error}"));
        let node = Node::new(&block).expect("4 KiB");
        assert!(node.is_leaf());
        Leaf {
            header: block[..HEADER_SIZE].to_vec(),
            items: node
                .items()
                .map(|(key, item)| (key, item.to_vec()))
                .collect(),
        }
    }

    /// Returns the index of the `nth` item of a type.
    pub(crate) fn slot(&self, item_type: KeyType, nth: usize) -> usize {
        let mut slots = (0..self.items.len()).filter(|&i| self.items[i].0.item_type == item_type);
        slots.nth(nth).unwrap_or_else(|| panic!("no {item_type}"))
    }

    pub(crate) fn key(&mut self, item_type: KeyType, nth: usize) -> &mut Key {
        let slot = self.slot(item_type, nth);
        &mut self.items[slot].0
    }

    pub(crate) fn bytes(&mut self, item_type: KeyType, nth: usize) -> &mut Vec<u8> {
        let slot = self.slot(item_type, nth);
        &mut self.items[slot].1
    }

    /// Views the first bytes of the `nth` item of a type as a `T`.
    pub(crate) fn view<T>(&mut self, item_type: KeyType, nth: usize) -> &mut T
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        let bytes = self.bytes(item_type, nth);
        match T::mut_from_prefix(bytes) {
            Ok((view, _)) => view,
            Err(_) => panic!("{item_type} is too short"),
        }
    }

    /// Drops all items after the `nth` item of a type, to make space.
    pub(crate) fn end_at(&mut self, item_type: KeyType, nth: usize) {
        let slot = self.slot(item_type, nth);
        self.items.truncate(slot + 1);
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let mut block = vec![0; NODESIZE];
        block[..HEADER_SIZE].copy_from_slice(&self.header);
        block[HEADER_SIZE - 5..HEADER_SIZE - 1]
            .copy_from_slice(&(self.items.len() as u32).to_le_bytes());
        let mut end = NODESIZE - HEADER_SIZE;
        for (slot, (key, item)) in self.items.iter().enumerate() {
            end -= item.len();
            let head = ItemHead {
                key: DiskKey::from(*key),
                offset: (end as u32).into(),
                size: (item.len() as u32).into(),
            };
            let at = HEADER_SIZE + slot * ITEM_HEAD_SIZE;
            block[at..at + ITEM_HEAD_SIZE].copy_from_slice(head.as_bytes());
            block[HEADER_SIZE + end..][..item.len()].copy_from_slice(item);
        }
        seal(&mut block);
        block
    }

    pub(crate) fn check(&self) -> Result<(), CorruptBlock> {
        check(&self.build())
    }
}

/// Asserts that an edit of a golden leaf is rejected with one defect of an item.
#[macro_export]
macro_rules! refuses {
    ($name:literal, $edit:expr, $defect:pat) => {
        let mut leaf = $crate::golden::Leaf::golden($name);
        let edit: fn(&mut $crate::golden::Leaf) = $edit;
        edit(&mut leaf);
        match leaf.check() {
            Err(ubtrfs_format::check::CorruptBlock::Item {
                defect: $defect, ..
            }) => {}
            other => panic!("{}: wanted {}, got {other:?}", $name, stringify!($defect)),
        }
    };
}
