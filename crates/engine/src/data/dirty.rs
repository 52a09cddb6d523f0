//! The files with buffered data, and how much that is together.
//!
//! Invariants
//! - DIRTY-1: a file with buffered data is listed; it leaves the list, under its lock, when nothing is buffered
//!   any more. So who goes through the list meets all data written before.
//!
//! Locks: the list's is a leaf.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::windows::Windows;
use crate::fs::{FileId, Inode};

#[derive(Debug)]
pub(crate) struct DirtyFiles {
    files: Mutex<BTreeMap<FileId, Arc<Inode>>>,
    windows: Arc<Windows>,
    budget_bytes: u64,
}

impl DirtyFiles {
    pub(crate) fn new(budget_bytes: u64) -> DirtyFiles {
        DirtyFiles {
            files: Mutex::default(),
            windows: Arc::default(),
            budget_bytes,
        }
    }

    /// What pieces count in, and have their memory from.
    pub(super) fn windows(&self) -> &Arc<Windows> {
        &self.windows
    }

    pub(super) fn is_over_budget(&self) -> bool {
        self.windows.buffered_bytes() > self.budget_bytes
    }

    pub(super) fn add(&self, inode: &Arc<Inode>) {
        self.files.lock().insert(inode.id, Arc::clone(inode));
    }

    pub(super) fn remove(&self, id: FileId) {
        self.files.lock().remove(&id);
    }

    /// In the order in which several are locked.
    pub(super) fn all(&self) -> Vec<Arc<Inode>> {
        self.files.lock().values().cloned().collect()
    }

    /// Up to `most` of those behind `id`.
    pub(super) fn next(&self, id: Option<FileId>, most: usize) -> Vec<Arc<Inode>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let files = self.files.lock();
        let from = id.map_or(Unbounded, Excluded);
        let behind = files.range((from, Unbounded)).take(most);
        behind.map(|(_, inode)| Arc::clone(inode)).collect()
    }
}
