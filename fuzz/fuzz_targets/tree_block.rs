//! Any bytes as a tree block.
//!
//! The checksum is corrected, and the address is taken from the header, so that slots and items are reached. Every
//! item is decoded, even if the checker rejects the block.

#![no_main]

mod items;

use libfuzzer_sys::fuzz_target;
use ubtrfs_format::check::{BlockContext, CorruptBlock, Expect, check_block, check_content};
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::ids::Transid;
use ubtrfs_format::key::Key;
use ubtrfs_format::node::Node;

const SMALLEST: usize = 4096;
const LARGEST: usize = 65536;

fuzz_target!(|data: &[u8]| {
    let nodesize = data.len().clamp(SMALLEST, LARGEST).next_power_of_two();
    let mut block = vec![0; nodesize];
    let len = data.len().min(nodesize);
    block[..len].copy_from_slice(&data[..len]);
    CsumType::Crc32c.seal_block(&mut block);
    let Some(node) = Node::new(&block) else {
        return;
    };
    let header = node.header();
    let mut context = BlockContext {
        sectorsize: SMALLEST as u32,
        nodesize: nodesize as u32,
        csum_type: CsumType::Crc32c,
        fsid: &header.fsid,
        seed_fsids: &[],
        chunk_tree_uuid: None,
        incompat: Incompat::all(),
        compat_ro: CompatRo::all(),
        generation: Transid(u64::MAX),
        scrambled_names: true,
        ignore_flags: false,
    };
    items::decode_all(node);
    search(node);
    let result = check_block(&block, &context, &Expect::at(node.bytenr()));
    assert!(!matches!(result, Err(CorruptBlock::Csum(_))));
    if result.is_ok() {
        assert_eq!(node.len(), header.nritems.get() as usize);
        assert_eq!(node.items().count(), node.heads().len());
    }
    if let Err(corrupt) = result {
        let _ = corrupt.to_string();
    }
    context.incompat = Incompat::empty();
    context.generation = Transid(0);
    context.scrambled_names = false;
    let _ = check_content(node, &context);
});

fn search(node: Node<'_>) {
    for slot in [0, 1, node.len() / 2, node.len().wrapping_sub(1), node.len()] {
        let key = node.key(slot).unwrap_or(Key::MAX);
        let _ = node.search(&key);
        assert!(node.is_empty() || node.child_slot(&key) < node.len());
    }
}
