//! Views: one tree as seen by a reader.
//!
//! A view is a list of the sorted sets for key look-ups, newest first. The lowest is always the committed root. A
//! view of a root never changes. A view of a live tree shows the state at the start of a search or at a cursor's last
//! seek.

use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;

use crate::block::{Block, Item};
use crate::committed::CommittedRoot;
use crate::error::TreeError;
use crate::live::{Depth, LiveTree};
use crate::store::NodeStore;

/// A readable tree. Cheap to clone.
#[derive(Clone, Debug)]
pub struct View {
    source: Source,
}

#[derive(Clone, Debug)]
pub(crate) enum Source {
    Root(Arc<NodeStore>, CommittedRoot),
    Live(Arc<LiveTree>, Depth),
}

impl View {
    /// Creates a view of one committed root. Once a commit has replaced the root, its blocks may be reused. Only a
    /// running search or an open cursor protects them.
    pub fn new(store: Arc<NodeStore>, committed: CommittedRoot) -> View {
        let source = Source::Root(store, committed);
        View { source }
    }

    pub(crate) fn of_live(tree: Arc<LiveTree>, depth: Depth) -> View {
        let source = Source::Live(tree, depth);
        View { source }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub fn tree(&self) -> RootId {
        match &self.source {
            Source::Root(_, root) => root.tree,
            Source::Live(tree, _) => tree.id(),
        }
    }

    /// Reads all blocks of the committed tree, and continues behind unreadable ones, whose errors go to `failed`.
    pub fn read_all_blocks(&self, failed: &mut dyn FnMut(TreeError)) {
        let _epoch = self.store().hold_epoch_briefly();
        self.committed().read_all(self.store(), failed);
    }

    /// Returns the current committed root.
    pub fn committed(&self) -> CommittedRoot {
        match &self.source {
            Source::Root(_, root) => *root,
            Source::Live(tree, _) => tree.committed(),
        }
    }

    pub fn store(&self) -> &Arc<NodeStore> {
        match &self.source {
            Source::Root(store, _) => store,
            Source::Live(tree, _) => tree.store(),
        }
    }

    /// Reads the committed root's block.
    pub fn read_root(&self) -> Result<Block, TreeError> {
        let _epoch = self.store().hold_epoch_briefly();
        self.committed().read(self.store())
    }

    /// Returns the item with exactly this key.
    pub fn get(&self, key: &Key) -> Result<Option<Item>, TreeError> {
        // EPOCH-1: the token before the layers.
        let _epoch = self.store().hold_epoch_briefly();
        match &self.source {
            Source::Root(store, root) => root.get(store, key),
            Source::Live(tree, depth) => tree.get(*depth, key),
        }
    }
}

impl LiveTree {
    /// Returns a view of all sets. Each search and each seek uses the sets that are current then.
    pub fn view(self: &Arc<Self>) -> View {
        View::of_live(Arc::clone(self), Depth::Mutable)
    }

    /// Returns a view without the running transaction's changes.
    pub fn frozen_view(self: &Arc<Self>) -> View {
        View::of_live(Arc::clone(self), Depth::Frozen)
    }

    /// Returns a view of the committed tree.
    pub fn committed_view(self: &Arc<Self>) -> View {
        View::of_live(Arc::clone(self), Depth::Committed)
    }
}
