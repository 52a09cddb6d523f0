//! Open files by handle, for kernels that send opens.
//!
//! Invariants
//! - HANDLE-1: a handle is in the table from its open to its release, and its number is unique for that time.
//! - HANDLE-2: a file counts as written to while any handle may write to it. Pages of a shared mapping keep
//!   their handle, so a file that is not counted has no dirty page in the kernel.
//!
//! Locks: one mutex for each shard, leaves. A thread always opens in the same shard.
//! Not here: directories, which are listed without a handle (`listing`).

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use slab::Slab;
use ubtrfs_fs::OpenFile;
use ubtrfs_fuse_server::request::{AccessMode, Handle};

use super::source::FileId;

const SHARDS: usize = 32;

/// An open file.
#[derive(Debug)]
pub(super) struct OpenHandle {
    pub(super) file: OpenFile,
    pub(super) access: AccessMode,
    /// Writes are durable when they are answered (`O_SYNC`, `O_DSYNC`).
    pub(super) sync: bool,
    /// The value of the capability counter when the file was last found without a capability; 0 means never.
    pub(super) without_capability: AtomicU64,
}

/// The open handles of a mount.
#[derive(Debug)]
pub(super) struct Handles {
    shards: Vec<Mutex<Slab<Arc<OpenHandle>>>>,
    /// The number of writable handles of each file.
    writers: Vec<Mutex<HashMap<FileId, u32>>>,
    next_shard: AtomicUsize,
}

thread_local! {
    static OWN_SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Default for Handles {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            writers: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next_shard: AtomicUsize::new(0),
        }
    }
}

impl Handles {
    pub(super) fn insert(&self, open: OpenHandle) -> Handle {
        if open.access.writes() {
            let id = open.file.id();
            *self.writers_of(id).lock().entry(id).or_insert(0) += 1;
        }
        let own = OWN_SHARD.get().unwrap_or_else(|| {
            let shard = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
            OWN_SHARD.set(Some(shard));
            shard
        });
        // HANDLE-1
        let key = self.shards[own].lock().insert(Arc::new(open));
        Handle((key * SHARDS + own) as u64)
    }

    pub(super) fn get(&self, handle: Handle) -> Option<Arc<OpenHandle>> {
        let (shard, key) = place(handle);
        self.shards[shard].lock().get(key).cloned()
    }

    /// Removes a handle. The file is closed when the last request that still uses the handle ends.
    pub(super) fn remove(&self, handle: Handle) -> Option<Arc<OpenHandle>> {
        let (shard, key) = place(handle);
        let open = self.shards[shard].lock().try_remove(key)?;
        if open.access.writes() {
            let id = open.file.id();
            if let Entry::Occupied(mut count) = self.writers_of(id).lock().entry(id) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        Some(open)
    }

    /// HANDLE-2
    pub(super) fn may_be_written(&self, id: FileId) -> bool {
        self.writers_of(id).lock().contains_key(&id)
    }

    /// Returns all files that may be written (`may_be_written`).
    pub(super) fn written(&self) -> Vec<FileId> {
        let shards = self.writers.iter();
        shards
            .flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>())
            .collect()
    }

    fn writers_of(&self, id: FileId) -> &Mutex<HashMap<FileId, u32>> {
        &self.writers[(id.ino.0 % SHARDS as u64) as usize]
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

fn place(handle: Handle) -> (usize, usize) {
    let number = handle.0 as usize;
    (number % SHARDS, number / SHARDS)
}
