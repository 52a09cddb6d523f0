//! Random damage to meaningful bytes of a tree block.

use ubtrfs_format::node::{HEADER_SIZE, ITEM_HEAD_SIZE, KeyPtr, Node};

use crate::Rng;

#[cfg(test)]
mod tests;

/// Number of bytes at the start of an item to mutate. After these there are only names and data, for which any bytes
/// are valid.
const ITEM_BYTES: u64 = 80;

/// Changes one byte of the header, of a pointer, of an item's head, or of an item. The checksum is not updated.
pub fn mutate(block: &mut [u8], rng: &mut Rng) {
    let node = Node::new(block).expect("a whole block");
    if node.is_empty() {
        return;
    }
    let slot = rng.below(node.len() as u64) as usize;
    let at = if rng.one_in(20) {
        80 + rng.below(HEADER_SIZE as u64 - 80)
    } else if !node.is_leaf() {
        let ptr_bytes = size_of::<KeyPtr>();
        (HEADER_SIZE + slot * ptr_bytes) as u64 + rng.below(ptr_bytes as u64)
    } else {
        let Some(head) = node.heads().get(slot) else {
            return;
        };
        let size = u64::from(head.size.get());
        match rng.below(4) {
            0 => (HEADER_SIZE + slot * ITEM_HEAD_SIZE) as u64 + rng.below(17),
            _ if size == 0 => return,
            _ => {
                HEADER_SIZE as u64 + u64::from(head.offset.get()) + rng.below(size.min(ITEM_BYTES))
            }
        }
    };
    // A previously mutated field may point outside of the block.
    let Some(byte) = block.get_mut(at as usize) else {
        return;
    };
    *byte = match rng.below(3) {
        0 => *byte ^ (1 << rng.below(8)),
        1 => [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
        _ => rng.below(256) as u8,
    };
}
