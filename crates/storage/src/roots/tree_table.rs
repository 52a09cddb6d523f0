//! The trees in memory, by id.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::RwLock;
use ubtrfs_format::ids::RootId;

use super::tree::Tree;
use crate::file_id::IdHasher;

/// A reference to a tree for one call. It avoids contention on a counter, unless the table changes concurrently.
#[derive(Debug)]
pub struct TreeRef(Guard<Option<Arc<Tree>>>);

impl From<Arc<Tree>> for TreeRef {
    fn from(tree: Arc<Tree>) -> TreeRef {
        TreeRef(Guard::from_inner(Some(tree)))
    }
}

impl Deref for TreeRef {
    type Target = Arc<Tree>;

    #[inline]
    fn deref(&self) -> &Arc<Tree> {
        self.0.as_ref().expect("made of a tree")
    }
}

type Trees = HashMap<RootId, Arc<Tree>, BuildHasherDefault<IdHasher>>;

/// The trees in memory.
#[derive(Debug)]
pub(super) struct TreeTable {
    trees: RwLock<Trees>,
    /// A subset of `trees`, each at an index derived from its id. Changed while `trees` is locked.
    recent: [ArcSwapOption<Tree>; RECENT_TREES],
}

const RECENT_TREES: usize = 64;

/// Maximum number of unused trees. A volume may have far more subvolumes.
const KEPT_TREES: usize = 4096;

impl Default for TreeTable {
    fn default() -> Self {
        TreeTable {
            trees: RwLock::default(),
            recent: std::array::from_fn(|_| ArcSwapOption::empty()),
        }
    }
}

impl TreeTable {
    fn recent(&self, id: RootId) -> &ArcSwapOption<Tree> {
        // Ids of regular snapshots are equidistant; the multiplication spreads them.
        let mixed = id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.recent[(mixed >> 58) as usize % RECENT_TREES]
    }

    #[inline]
    pub(super) fn get(&self, id: RootId) -> Option<TreeRef> {
        let recent = self.recent(id).load();
        if recent.as_ref().is_some_and(|tree| tree.id == id) {
            Some(TreeRef(recent))
        } else {
            self.find(id)
        }
    }

    #[cold]
    fn find(&self, id: RootId) -> Option<TreeRef> {
        let trees = self.trees.read();
        let tree = trees.get(&id)?;
        self.recent(id).store(Some(Arc::clone(tree)));
        Some(TreeRef::from(Arc::clone(tree)))
    }

    /// Inserts `tree`, unless another thread has inserted one with this id. Returns the tree in the table. Returns None
    /// if there is no tree, and the root item of `tree` is no longer current.
    pub(super) fn get_or_insert(
        &self,
        tree: Tree,
        committed: u64,
        is_current: impl FnOnce() -> bool,
    ) -> Option<Arc<Tree>> {
        let mut trees = self.trees.write();
        if let Some(known) = trees.get(&tree.id) {
            return Some(Arc::clone(known));
        }
        // A commit that changes the root of a tree keeps it in the table until it has published the new one. So without
        // a publication since the look-up, the root is still the tree's.
        if !is_current() {
            return None;
        }
        if trees.len() >= KEPT_TREES {
            // TREE-1
            trees.retain(|_, tree| Arc::strong_count(tree) > 1 || !tree.is_committed(committed));
        }
        let tree = Arc::new(tree);
        trees.insert(tree.id, Arc::clone(&tree));
        Some(tree)
    }

    /// Returns the deleted subvolumes that are held, or that have nocow writes in progress.
    pub(super) fn kept(&self) -> Vec<RootId> {
        let trees = self.trees.read();
        let deleted = trees
            .values()
            .filter(|tree| tree.id.is_subvolume() && tree.is_deleted());
        // Pairs with the end of a nocow write, which checks `is_deleted` afterwards.
        fence(Ordering::SeqCst);
        let kept = deleted.filter(|tree| tree.is_held() || tree.nocow_lock.try_write().is_none());
        kept.map(|tree| tree.id).collect()
    }

    pub(super) fn remove(&self, id: RootId) {
        let mut trees = self.trees.write();
        trees.remove(&id);
        let recent = self.recent(id);
        if recent.load().as_ref().is_some_and(|tree| tree.id == id) {
            recent.store(None);
        }
    }
}
