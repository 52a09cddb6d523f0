//! A leaf: checked as after a read from a device, and searched.

use std::hint::black_box;

use ubtrfs::Volume;
use ubtrfs_format::check::{BlockContext, Expect, check_block};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;
use ubtrfs_format::node::Node;
use ubtrfs_format::superblock::Superblock;
use ubtrfs_fs::NewInode;
use ubtrfs_tree::Block;

use super::Work;

const SEARCHES: u64 = 100;
const FILES: u64 = 2000;
pub(crate) const VOLUME_BYTES: u64 = 1 << 30;

/// Creates a volume in memory with a directory of files, committed.
pub(crate) fn volume() -> Volume {
    let made = Volume::builder()
        .commit_interval(None)
        .in_memory(VOLUME_BYTES);
    let volume = made.expect("memory is enough");
    let engine = volume.engine();
    let top = engine.root_dir(RootId::FS_TREE).expect("there is a top");
    for number in 0..FILES {
        let name = format!("file-{number:06}");
        let new = NewInode::file(0o644);
        let made = engine.create(top, name.as_bytes(), &new);
        made.expect("there is room");
    }
    engine.sync().expect("memory does not fail");
    volume
}

/// Reads a leaf from the middle of the tree.
fn leaf(volume: &ubtrfs_fs::Volume) -> (Superblock, Block) {
    let tree = volume.tree(RootId::FS_TREE).expect("it is there");
    let root = tree.view.committed();
    let mut expect = Expect::at(root.bytenr);
    loop {
        let block = volume.node_store().read(root.tree, &expect);
        let block = block.expect("it was written");
        let node = block.node();
        if node.is_leaf() {
            return (Superblock::clone(&volume.superblock()), block);
        }
        let ptr = node.ptrs()[node.len() / 2];
        expect = Expect::at(ubtrfs_format::ids::Logical(ptr.blockptr.get()));
    }
}

pub(crate) fn check_leaf() -> Work {
    let (superblock, block) = leaf(volume().engine());
    let expect = Expect::at(block.node().bytenr());
    Work::new("check-leaf", 1, move || {
        let context = BlockContext::new(&superblock);
        let checked = check_block(black_box(block.bytes()), &context, &expect);
        checked.expect("it was checked before");
    })
}

pub(crate) fn search_leaf() -> Work {
    let (_, block) = leaf(volume().engine());
    let keys: Vec<Key> = block.node().items().map(|(key, _)| key).collect();
    Work::new("search-leaf", SEARCHES, move || {
        let node = Node::new(black_box(block.bytes())).expect("it is a block");
        for at in super::scattered(SEARCHES) {
            let key = &keys[at as usize % keys.len()];
            black_box(node.search(black_box(key)).is_ok());
        }
    })
}
