//! Batch look-up of the leaves for many keys: reading them into the cache, and listing them.
//!
//! Each level's cold blocks are read as one batch, so that a cold tree costs one wait for each level.
//!
//! Not here: siblings ahead of a cursor (`path`).

use std::ops::Range;

use ubtrfs_format::check::Expect;
use ubtrfs_format::key::Key;

use crate::block::Block;
use crate::error::TreeError;
use crate::view::View;

impl View {
    /// Reads the committed blocks between the root and the leaves of `keys` (ascending) into the cache. Returns the
    /// expected properties of these blocks, without the root.
    ///
    /// Errors are ignored: the search that needs the block reports them. Blocks below an unreadable one are skipped.
    /// For many keys, the caller splits them into batches that fit the cache.
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
                    && let Ok(block) = store.read_held(root.tree, &expect)
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
    /// Finds the committed leaves of `keys` (ascending), unless the root is a leaf. Reads only the nodes above the
    /// leaves.
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
                    Some(child) => nodes.push((store.read_held(root.tree, &child)?, part)),
                    None => {}
                }
            }
        }
        Ok(leaves)
    }
}

/// Returns the slots of an interior node that lead to some of `keys[range]`, each with its keys. Empty for a leaf.
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
        // At least the key that was looked up, even if the keys do not ascend.
        let end = at + len.max(1);
        children.push((slot, at..end));
        at = end;
    }
    children
}
