//! States of all trees of a volume, for look-ups that read several trees together.
//!
//! Invariants
//! - TREE-SOURCE-1: the blocks of a committed state are not reused while it exists: it takes its epoch before its root.

use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{CommittedRoot, Epoch, NodeStore, View};

use super::Roots;
use crate::error::{CorruptItem, Error, Result};

/// A state of all trees.
pub trait TreeSource {
    /// Returns the cache of tree blocks.
    fn store(&self) -> &Arc<NodeStore>;

    /// Returns a view of a tree in this state. Returns None if the state has no such tree.
    fn find_view(&self, id: RootId) -> Result<Option<View>>;
}

/// The live views: file trees with the edits of running transactions, and all others as of the last commit.
impl TreeSource for Roots {
    fn store(&self) -> &Arc<NodeStore> {
        &self.store
    }

    fn find_view(&self, id: RootId) -> Result<Option<View>> {
        match id {
            RootId::ROOT_TREE => Ok(Some(self.root_tree())),
            RootId::CHUNK_TREE => Ok(Some(self.chunk_tree())),
            id => Ok(self.find_tree(id)?.map(|tree| tree.view.clone())),
        }
    }
}

/// All trees as of one commit. Delays the reuse of space that later commits free.
#[derive(Debug)]
pub struct CommittedState {
    store: Arc<NodeStore>,
    _epoch: Arc<Epoch>,
    root_tree: CommittedRoot,
    chunk_tree: CommittedRoot,
}

impl Roots {
    /// Returns the state as of the last commit.
    pub fn committed_state(&self) -> CommittedState {
        // TREE-SOURCE-1
        let epoch = self.store.epoch();
        CommittedState {
            store: Arc::clone(&self.store),
            _epoch: epoch,
            root_tree: self.root_tree.view.committed(),
            chunk_tree: self.chunk_tree.view.committed(),
        }
    }
}

impl CommittedState {
    fn view(&self, root: CommittedRoot) -> View {
        View::new(Arc::clone(&self.store), root)
    }
}

impl TreeSource for CommittedState {
    fn store(&self) -> &Arc<NodeStore> {
        &self.store
    }

    fn find_view(&self, id: RootId) -> Result<Option<View>> {
        let root_tree = self.view(self.root_tree);
        match id {
            RootId::ROOT_TREE => return Ok(Some(root_tree)),
            RootId::CHUNK_TREE => return Ok(Some(self.view(self.chunk_tree))),
            _ => {}
        }
        let found = find_root_item(&root_tree, id)?;
        Ok(found.map(|(_, item)| self.view(recorded_root(id, &item))))
    }
}

/// Finds the root item of a tree in a root tree.
pub(crate) fn find_root_item(root_tree: &View, id: RootId) -> Result<Option<(Key, RootItem)>> {
    let mut cursor = root_tree.cursor();
    // The root item of a snapshot has the creating transaction as key offset. There is only one per id.
    let is_found = if id.holds_files() {
        cursor.seek_floor(&Key::new(id.0, KeyType::ROOT_ITEM, u64::MAX))?
    } else {
        cursor.seek(&Key::new(id.0, KeyType::ROOT_ITEM, 0))?
    };
    let found = cursor
        .current()
        .filter(|(key, _)| is_found && (key.objectid, key.item_type) == (id.0, KeyType::ROOT_ITEM));
    let Some((key, bytes)) = found else {
        return Ok(None);
    };
    let item = RootItem::decode(bytes).ok_or(Error::Corrupt {
        tree: RootId::ROOT_TREE,
        key,
        what: CorruptItem::Undecodable,
    })?;
    Ok(Some((key, item)))
}

/// Returns the root that a root item records.
pub(crate) fn recorded_root(id: RootId, item: &RootItem) -> CommittedRoot {
    CommittedRoot {
        tree: id,
        bytenr: item.bytenr(),
        level: item.level,
        generation: Some(item.transid()),
    }
}
