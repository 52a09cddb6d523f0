//! Volumes that no kernel would create: bytes of tree blocks are replaced, and checksums updated.
//!
//! The bytes to replace are searched in every copy of every block, so that a test need not know the item's location.

mod crafted;
mod mutate;

pub(super) use crafted::pack;
pub use crafted::{Crafted, Items};
pub use mutate::mutate;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ubtrfs_format::name_hash::name_hash;
use ubtrfs_format::node::{HEADER_SIZE, ITEM_HEAD_SIZE, Node};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};

use crate::Result;
use crate::error::At;

const STEP: u64 = 4096;
const DIR_ITEM: u8 = 84;

/// Returns the bytes of a key in a leaf.
pub fn key(objectid: u64, item_type: u8, offset: u64) -> Vec<u8> {
    let mut bytes = objectid.to_le_bytes().to_vec();
    bytes.push(item_type);
    bytes.extend(offset.to_le_bytes());
    bytes
}

/// Replaces `from` by the equally long `to` in the keys of leaves; returns the number of replacements.
pub fn replace_in_keys(device: &Path, from: &[u8], to: &[u8]) -> Result<usize> {
    edit_leaves(device, |heads, _| replace(heads, from, to))
}

/// Replaces `from` by the equally long `to` in the items of leaves; returns the number of replacements.
pub fn replace_in_items(device: &Path, from: &[u8], to: &[u8]) -> Result<usize> {
    edit_leaves(device, |_, items| replace(items, from, to))
}

/// Renames the only entry `from` of directory `dir` to the equally long name `to`, which may have any bytes.
pub fn rename(device: &Path, dir: u64, from: &[u8], to: &[u8]) -> Result<usize> {
    let hash_key = |name| key(dir, DIR_ITEM, u64::from(name_hash(name)));
    let (old, new) = (hash_key(from), hash_key(to));
    edit_leaves(device, |heads, items| {
        replace(heads, &old, &new) + replace(items, from, to)
    })
}

/// Edits all copies of the superblock.
pub fn edit_superblock(device: &Path, edit: impl Fn(&mut Superblock)) -> Result<()> {
    let file = open(device)?;
    for offset in SUPERBLOCK_OFFSETS {
        let mut block = vec![0; SUPERBLOCK_SIZE];
        if file.read_exact_at(&mut block, offset).is_err() {
            break;
        }
        let mut superblock = parse(&block);
        edit(&mut superblock);
        superblock.seal();
        let bytes = zerocopy::IntoBytes::as_bytes(&superblock);
        file.write_all_at(bytes, offset).at("write", device)?;
    }
    Ok(())
}

/// Calls `edit` with the item heads and the rest of every leaf; it returns its number of changes.
fn edit_leaves(
    device: &Path,
    mut edit: impl FnMut(&mut [u8], &mut [u8]) -> usize,
) -> Result<usize> {
    let file = open(device)?;
    let len = file.metadata().at("stat", device)?.len();
    let mut block = vec![0; SUPERBLOCK_SIZE];
    file.read_exact_at(&mut block, SUPERBLOCK_OFFSETS[0])
        .at("read", device)?;
    let superblock = parse(&block);
    let (csum_type, fsid) = (superblock.csum_type(), *superblock.metadata_fsid());
    let mut node = vec![0; superblock.nodesize.get() as usize];
    let mut changed = 0;
    for offset in (0..len).step_by(STEP as usize) {
        if SUPERBLOCK_OFFSETS.contains(&offset) || file.read_exact_at(&mut node, offset).is_err() {
            continue;
        }
        let sound = Node::new(&node)
            .filter(|found| found.header().fsid == fsid && found.is_leaf())
            .filter(|_| csum_type.verify_block(&node).is_ok());
        let Some(heads_len) = sound.map(|node| node.len() * ITEM_HEAD_SIZE) else {
            continue;
        };
        let (heads, items) = node[HEADER_SIZE..].split_at_mut(heads_len);
        let count = edit(heads, items);
        if count > 0 {
            csum_type.seal_block(&mut node);
            file.write_all_at(&node, offset).at("write", device)?;
            changed += count;
        }
    }
    Ok(changed)
}

fn open(device: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true);
    options.open(device).at("open", device)
}

fn parse(block: &[u8]) -> Superblock {
    Superblock::from_block(block)
        .expect("as long as a superblock")
        .clone()
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) -> usize {
    assert_eq!(from.len(), to.len(), "replaced bytes keep their place");
    let mut count = 0;
    let mut at = 0;
    while let Some(window) = bytes.get_mut(at..at + from.len()) {
        if window == from {
            window.copy_from_slice(to);
            count += 1;
        }
        at += 1;
    }
    count
}
