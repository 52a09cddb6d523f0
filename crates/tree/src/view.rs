//! What a reader sees of one tree.
//!
//! A view names the sorted sets in which keys are looked up, newest first. The lowest is always the
//! committed root. A view is a value: it goes on showing the same state whatever is committed later.

use std::sync::Arc;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;
use ubtrfs_format::superblock::MAX_LEVEL;

use crate::block::{Block, Item};
use crate::cursor::Cursor;
use crate::error::TreeError;
use crate::store::NodeStore;

/// A tree as a superblock or a root item names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommittedRoot {
    pub tree: RootId,
    pub bytenr: Logical,
    pub level: u8,
    /// None if the naming structure does not say.
    pub generation: Option<Transid>,
}

/// A readable state of one tree. Cheap to clone.
#[derive(Clone, Debug)]
pub struct View {
    store: Arc<NodeStore>,
    committed: CommittedRoot,
}

impl View {
    pub fn new(store: Arc<NodeStore>, committed: CommittedRoot) -> View {
        View { store, committed }
    }

    pub fn tree(&self) -> RootId {
        self.committed.tree
    }

    pub fn committed(&self) -> &CommittedRoot {
        &self.committed
    }

    pub fn store(&self) -> &Arc<NodeStore> {
        &self.store
    }

    /// The root's block.
    pub fn read_root(&self) -> Result<Block, TreeError> {
        let CommittedRoot {
            tree,
            bytenr,
            level,
            generation,
        } = self.committed;
        if level > MAX_LEVEL {
            return Err(TreeError::Level { tree, level });
        }
        let expect = Expect {
            bytenr,
            level: Some(level),
            generation,
            owner: Some(tree),
            first_key: None,
        };
        self.store.read(tree, &expect)
    }

    /// The item of exactly this key.
    pub fn get(&self, key: &Key) -> Result<Option<Item>, TreeError> {
        let mut block = self.read_root()?;
        let mut bound = None;
        while !block.node().is_leaf() {
            let slot = block.node().child_slot(key);
            block = self.read_child(&block, slot, &mut bound)?;
        }
        let found = block.node().search(key).ok();
        Ok(found.and_then(|slot| block.item(slot)))
    }

    /// A cursor that stands nowhere until it is sought.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self)
    }

    /// What the child in `slot` of `parent` must be; None if there is no such slot.
    pub(crate) fn expect_child(&self, parent: &Block, slot: usize) -> Option<Expect> {
        let node = parent.node();
        let ptr = node.ptrs().get(slot)?;
        Some(Expect {
            bytenr: Logical(ptr.blockptr.get()),
            level: Some(node.level().saturating_sub(1)),
            generation: Some(Transid(ptr.generation.get())),
            owner: Some(self.committed.tree),
            first_key: Some(ptr.key.get()),
        })
    }

    /// Reads the child in `slot`. `bound` is the key that all of `parent` lies below; it becomes the
    /// child's. That bound makes every walk end: without it a crafted tree could be visited
    /// through exponentially many paths.
    pub(crate) fn read_child(
        &self,
        parent: &Block,
        slot: usize,
        bound: &mut Option<Key>,
    ) -> Result<Block, TreeError> {
        let tree = self.committed.tree;
        let expect = self
            .expect_child(parent, slot)
            .expect("interior nodes are never empty");
        if let Some(next) = parent.node().key(slot + 1) {
            *bound = Some(next);
        }
        let child = self.store.read(tree, &expect)?;
        let node = child.node();
        let last = node.len().checked_sub(1).and_then(|slot| node.key(slot));
        match (last, *bound) {
            (Some(last), Some(bound)) if last >= bound => Err(TreeError::KeyBound {
                tree,
                bytenr: expect.bytenr,
                last,
                bound,
            }),
            _ => Ok(child),
        }
    }
}
