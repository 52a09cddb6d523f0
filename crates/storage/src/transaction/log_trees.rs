//! The items of the running transaction's logs, and the state of the logs on the devices.
//!
//! All log items are kept in memory, where they share their bytes with the sets that they were copied from.
//!
//! Invariants
//! - LOG-5: before the next commit changes the first copy of the superblock, the other copies name the log. So fsynced
//!   data is not lost if a power cut tears the first copy.
//!
//! Not here: writing a log (`log_session`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_device::Pool;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::Key;
use ubtrfs_format::superblock::Superblock;
use ubtrfs_tree::CommittedRoot;

use super::log_places::Places;
use crate::error::Result;
use crate::roots::Tree;
use crate::space::Space;

/// The logs since the last commit.
#[derive(Debug, Default)]
pub(super) struct LogTrees {
    pub(super) state: Mutex<LogState>,
    /// Estimated memory of the items. Reset by a freeze, like the edits of the frozen transaction.
    pub(super) bytes: AtomicI64,
    /// Memory of replaced blocks, kept for comparison with their successors. Reset by a freeze.
    pub(super) idle_bytes: AtomicU64,
}

/// Estimates the memory of an item in a log: itself, its key and its share of the map.
pub(super) fn item_bytes(item: &[u8]) -> i64 {
    (item.len() + 3 * size_of::<Key>() + 64) as i64
}

/// The logs of all subvolumes.
#[derive(Debug, Default)]
pub(super) struct LogState {
    pub(super) subvolumes: BTreeMap<RootId, LogTree>,
    /// The log root tree.
    pub(super) roots: LogTree,
    pub(super) places: Places,
    /// The durable superblock that names the log.
    pub(super) superblock: Option<Superblock>,
}

/// One tree of a log.
#[derive(Debug, Default)]
pub(super) struct LogTree {
    /// None for the log root tree.
    pub(super) subvolume: Option<Arc<Tree>>,
    pub(super) items: BTreeMap<Key, Arc<[u8]>>,
    /// The changes of items since the last write. The last change of a key counts.
    pub(super) changed: Vec<(Key, Option<Arc<[u8]>>)>,
    pub(super) root: Option<CommittedRoot>,
}

impl LogTrees {
    /// Writes the superblock with the log to the other copies. They become durable with the next flush.
    pub(super) fn copy_superblock(&self, pool: &Pool) -> Result<()> {
        match &self.state.lock().superblock {
            // LOG-5
            Some(superblock) => Ok(pool.write_other_superblocks(superblock)?),
            None => Ok(()),
        }
    }

    /// Returns the memory of the running transaction's logs.
    pub(super) fn bytes(&self) -> u64 {
        let items = self.bytes.load(Ordering::Relaxed).max(0) as u64;
        items + self.idle_bytes.load(Ordering::Relaxed)
    }

    /// Resets the memory counts at a freeze, because the memory does not belong to the next transaction. No log is
    /// written until `end`.
    pub(super) fn freeze(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.idle_bytes.store(0, Ordering::Relaxed);
    }

    /// Ends the logs after a durable commit, which makes them void. Pins their places, so they are freed together with
    /// the extents freed by the commit.
    pub(super) fn end(&self, space: &Space, nodesize: u64) {
        let state = std::mem::take(&mut *self.state.lock());
        let trees = state.subvolumes.values();
        for subvolume in trees.filter_map(|tree| tree.subvolume.as_ref()) {
            subvolume.log_journal.end();
        }
        for place in state.places.into_all() {
            space.pin(place, nodesize);
        }
    }
}

impl LogTree {
    /// Inserts or replaces an item. Returns the growth of the items in bytes.
    pub(super) fn put(&mut self, key: Key, item: Arc<[u8]>) -> i64 {
        let bytes = item_bytes(&item);
        let grown = match self.items.entry(key) {
            Entry::Occupied(old) if **old.get() == *item => return 0,
            Entry::Occupied(mut old) => bytes - item_bytes(&old.insert(Arc::clone(&item))),
            Entry::Vacant(vacant) => {
                vacant.insert(Arc::clone(&item));
                bytes
            }
        };
        self.changed.push((key, Some(item)));
        grown
    }
}
