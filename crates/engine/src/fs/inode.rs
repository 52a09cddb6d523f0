//! Inodes in memory: one object for each that is in use, with the lock that protects its items.
//!
//! Invariants
//! - INODE-1: two users of an inode hold the same object. One that has buffered data, or is open though
//!   unlinked, stays in the table.
//!
//! Locks: `Inode::lock` protects every item of the inode, and of a directory its entries. Several are
//! taken in the order directory before entry, else by `FileId`. It may be held across reads of cold
//! blocks: who waits then wants the same inode. The table's lock is a leaf.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::FileId;
use crate::data::WriteBuffer;
use crate::error::Result;
use crate::volume::{Tree, Volume};

/// An inode in use.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) id: FileId,
    pub(crate) tree: Arc<Tree>,
    pub(crate) lock: RwLock<InodeState>,
}

/// What is known of an inode that its items do not say.
#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// Written data that has no extent yet, and the size with it.
    pub(crate) buffer: WriteBuffer,
    /// Of a directory: the index for the next entry; None until somebody asks.
    pub(crate) next_index: Option<u64>,
    /// Handles that keep it after its last name is gone.
    pub(crate) open_count: u64,
}

/// The inodes in use.
#[derive(Debug)]
pub(crate) struct InodeTable {
    shards: Vec<Mutex<HashMap<FileId, Arc<Inode>>>>,
}

const SHARDS: usize = 64;
/// How many inodes of a shard stay although nobody holds them.
const KEPT_PER_SHARD: usize = 1024;

impl Default for InodeTable {
    fn default() -> Self {
        InodeTable {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl InodeTable {
    fn shard(&self, id: FileId) -> &Mutex<HashMap<FileId, Arc<Inode>>> {
        let mixed = (id.ino.0 ^ id.root.0.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 58) as usize % SHARDS]
    }

    /// The object of an inode; whether the inode exists is for the caller to find out under its lock.
    pub(crate) fn get(&self, volume: &Volume, id: FileId) -> Result<Arc<Inode>> {
        if let Some(inode) = self.shard(id).lock().get(&id) {
            return Ok(Arc::clone(inode));
        }
        let tree = volume.subvolume_tree(id.root)?;
        let mut shard = self.shard(id).lock();
        if shard.len() >= KEPT_PER_SHARD {
            shard.retain(|_, inode| Arc::strong_count(inode) > 1 || inode.must_stay());
        }
        let inode = shard.entry(id).or_insert_with(|| {
            Arc::new(Inode {
                id,
                tree,
                lock: RwLock::default(),
            })
        });
        Ok(Arc::clone(inode))
    }

    /// The object, if there is one.
    pub(crate) fn find(&self, id: FileId) -> Option<Arc<Inode>> {
        self.shard(id).lock().get(&id).cloned()
    }
}

impl Inode {
    /// Nobody else holds it when this is asked, so that the lock is free.
    fn must_stay(&self) -> bool {
        self.lock
            .try_read()
            .is_none_or(|state| state.buffer.is_dirty() || state.open_count > 0)
    }
}
