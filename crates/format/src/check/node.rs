//! Interior nodes: the number, order and addresses of the children.

use super::{BlockContext, CorruptBlock};
use crate::key::Key;
use crate::node::{Node, max_key_ptrs};

pub(super) fn check_node(node: Node<'_>, context: &BlockContext<'_>) -> Result<(), CorruptBlock> {
    let nritems = node.header().nritems.get();
    let max = max_key_ptrs(node.block().len());
    if nritems == 0 {
        return Err(CorruptBlock::EmptyNode);
    }
    if nritems as usize > max {
        return Err(CorruptBlock::Slots {
            nritems,
            max: max as u32,
        });
    }
    let mut before: Option<Key> = None;
    for (slot, ptr) in (0u32..).zip(node.ptrs()) {
        let bytenr = ptr.blockptr.get();
        if bytenr == 0 {
            return Err(CorruptBlock::ChildNull { slot });
        }
        if !context.is_sector_aligned(bytenr) {
            return Err(CorruptBlock::ChildAlignment { slot, bytenr });
        }
        let key = ptr.key.get();
        if let Some(before) = before
            && before >= key
        {
            return Err(CorruptBlock::KeyOrder { slot, before, key });
        }
        before = Some(key);
    }
    Ok(())
}
