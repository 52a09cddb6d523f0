//! The list of files with buffered data, and the total size of that data.
//!
//! Invariants
//! - DIRTY-1: a file with buffered data is in the list. It leaves the list, under its lock, when it has no
//!   buffered data. A walk through the list therefore covers all data written before.
//!
//! Locks: the list's mutex is a leaf.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_storage::FileId;

use super::Inode;
use super::delalloc::BufferPool;

/// The memory of a listed file apart from its data. It matters with many small files.
const FILE_BYTES: u64 = 1024;

/// The files with buffered data, and the budget for that data.
#[derive(Debug)]
pub(crate) struct DirtyFiles {
    files: Mutex<BTreeMap<FileId, Arc<Inode>>>,
    /// The number of listed files.
    count: AtomicU64,
    buffer_pool: Arc<BufferPool>,
    budget_bytes: u64,
}

impl DirtyFiles {
    pub(crate) fn new(budget_bytes: u64) -> DirtyFiles {
        DirtyFiles {
            files: Mutex::default(),
            count: AtomicU64::new(0),
            buffer_pool: Arc::new(BufferPool::new(budget_bytes)),
            budget_bytes,
        }
    }

    /// Returns the pool that counts pieces and provides their memory.
    pub(crate) fn buffer_pool(&self) -> &Arc<BufferPool> {
        &self.buffer_pool
    }

    /// Frees memory that was not needed recently.
    pub(crate) fn trim(&self) {
        self.buffer_pool.trim();
    }

    pub(crate) fn is_over_budget(&self) -> bool {
        let of_files = FILE_BYTES * self.count.load(Ordering::Relaxed);
        self.buffer_pool.buffered_bytes() + of_files > self.budget_bytes
    }

    pub(crate) fn add(&self, inode: &Arc<Inode>) {
        let mut files = self.files.lock();
        files.insert(inode.id, Arc::clone(inode));
        self.count.store(files.len() as u64, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, id: FileId) {
        let mut files = self.files.lock();
        files.remove(&id);
        self.count.store(files.len() as u64, Ordering::Relaxed);
    }

    /// Returns up to `most` files behind `id`, in lock order.
    pub(crate) fn next(&self, id: Option<FileId>, most: usize) -> Vec<Arc<Inode>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let files = self.files.lock();
        let from = id.map_or(Unbounded, Excluded);
        let behind = files.range((from, Unbounded)).take(most);
        behind.map(|(_, inode)| Arc::clone(inode)).collect()
    }
}
