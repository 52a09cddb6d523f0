//! The leaves that many keys lie in: reading them before the keys are looked up one after the other, and which they
//! are.
//!
//! A level at a time, all its cold blocks at once: so a tree that is cold costs as many waits as it has levels.
//!
//! Not here: siblings ahead of a cursor (`path`).

use std::ops::Range;

use ubtrfs_format::check::Expect;
use ubtrfs_format::key::Key;

use crate::block::Block;
use crate::error::TreeError;
use crate::view::View;

impl View {
    /// Brings the committed blocks between the root and the leaves of `keys`, which ascend, into memory. Returns what
    /// these blocks are, the root apart.
    ///
    /// A block that cannot be read is left to the search that needs it, and so is what lies below. A caller hands many
    /// keys over in portions that the cache has room for.
    pub fn prefetch(&self, keys: &[Key]) -> Vec<Expect> {
        let store = self.store();
        let _epoch = store.epoch();
        let root = self.committed();
        let mut found = Vec::new();
        let Ok(top) = root.read(store) else {
            return found;
        };
        let mut level: Vec<(Block, Range<usize>)> = vec![(top, 0..keys.len())];
        loop {
            let mut below: Vec<(Expect, Range<usize>)> = Vec::new();
            for (block, range) in &level {
                for (slot, part) in children(block, keys, range.clone()) {
                    below.extend(root.expect_child(block, slot).map(|child| (child, part)));
                }
            }
            let expects: Vec<Expect> = below.iter().map(|(expect, _)| *expect).collect();
            store.prefetch(&expects);
            found.extend(expects);
            level.clear();
            for (expect, range) in below {
                if expect.level != Some(0)
                    && let Ok(block) = store.read(root.tree, &expect)
                {
                    level.push((block, range));
                }
            }
            if level.is_empty() {
                return found;
            }
        }
    }
}

impl View {
    /// Finds the committed leaves of `keys`, which ascend, unless the root is a leaf. It reads the nodes above them
    /// only.
    pub fn leaves_of(&self, keys: &[Key]) -> Result<Vec<Expect>, TreeError> {
        let store = self.store();
        let _epoch = store.epoch();
        let root = self.committed();
        let mut leaves = Vec::new();
        let mut nodes = vec![(root.read(store)?, 0..keys.len())];
        while let Some((block, range)) = nodes.pop() {
            for (slot, part) in children(&block, keys, range) {
                match root.expect_child(&block, slot) {
                    Some(child) if child.level == Some(0) => leaves.push(child),
                    Some(child) => nodes.push((store.read(root.tree, &child)?, part)),
                    None => {}
                }
            }
        }
        Ok(leaves)
    }
}

/// Returns the slots of an interior node that some of `keys[range]` lead to, each with those keys. In a leaf there are
/// none.
fn children(block: &Block, keys: &[Key], range: Range<usize>) -> Vec<(usize, Range<usize>)> {
    let node = block.node();
    let mut children = Vec::new();
    if node.is_leaf() || node.is_empty() {
        return children;
    }
    let mut at = range.start;
    while at < range.end {
        let slot = node.child_slot(&keys[at]);
        let len = match node.key(slot + 1) {
            Some(next) => keys[at..range.end].partition_point(|key| *key < next),
            None => range.end - at,
        };
        // At least the key that was looked up, also if the keys do not ascend.
        let end = at + len.max(1);
        children.push((slot, at..end));
        at = end;
    }
    children
}
