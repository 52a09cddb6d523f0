//! Traversal of tree blocks, as opposed to items.

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;
use ubtrfs_tree::{Block, TreeError, View};

use crate::error::Result;

/// Calls `each` with every block of a tree in depth-first order, parents first.
pub fn walk(view: &View, each: &mut dyn FnMut(&Block)) -> Result<()> {
    let root = view.read_root()?;
    each(&root);
    let mut path = vec![Step::at(root, None)];
    while let Some(step) = path.last_mut() {
        let slot = step.slot;
        step.slot += 1;
        match child(view, step, slot)? {
            Some(below) => {
                each(&below.block);
                path.push(below);
            }
            None => {
                path.pop();
            }
        }
    }
    Ok(())
}

/// Returns the block on `level` whose key range contains `key`, or None if the tree has no such level.
pub fn find(view: &View, key: &Key, level: u8) -> Result<Option<Block>> {
    let mut step = Step::at(view.read_root()?, None);
    while step.block.node().level() > level {
        let slot = step.block.node().child_slot(key);
        match child(view, &step, slot)? {
            Some(below) => step = below,
            None => return Ok(None),
        }
    }
    Ok((step.block.node().level() == level).then_some(step.block))
}

#[derive(Debug)]
struct Step {
    block: Block,
    slot: usize,
    /// Upper bound of all keys in the block. It guarantees that a walk ends, even in a crafted tree.
    bound: Option<Key>,
}

impl Step {
    fn at(block: Block, bound: Option<Key>) -> Step {
        Step {
            block,
            slot: 0,
            bound,
        }
    }
}

/// Reads the child in `slot`. Returns None if there is no such child.
fn child(view: &View, parent: &Step, slot: usize) -> Result<Option<Step>> {
    let tree: RootId = view.tree();
    let node = parent.block.node();
    let Some(ptr) = node.ptrs().get(slot) else {
        return Ok(None);
    };
    let expect = Expect {
        bytenr: Logical(ptr.blockptr.get()),
        level: Some(node.level().saturating_sub(1)),
        generation: Some(Transid(ptr.generation.get())),
        owner: Some(tree),
        first_key: Some(ptr.key.get()),
    };
    let bound = node.key(slot + 1).or(parent.bound);
    let block = view.store().read(tree, &expect)?;
    let child = block.node();
    let last = child.len().checked_sub(1).and_then(|slot| child.key(slot));
    if let (Some(last), Some(bound)) = (last, bound)
        && last >= bound
    {
        return Err(TreeError::KeyBound {
            tree,
            bytenr: expect.bytenr,
            last,
            bound,
        }
        .into());
    }
    Ok(Some(Step::at(block, bound)))
}
