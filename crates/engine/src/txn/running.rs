//! The running transaction: what operations have changed since the last freeze.
//!
//! Invariants
//! - RUN-1: a tree with edits of this transaction is in `dirty` exactly once.
//! - RUN-2: everything in here enters the commit together: operations hold the freeze guard shared
//!   while they add to it, freezing holds it alone.
//!
//! Locks: `dirty`, `refs`, `births`, `superblock` are leaves: nothing else is taken while one is held.
//! Not here: the edits themselves (each tree's delta), how they are committed (`commit`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::ids::Transid;

use super::births::{Birth, Puts};
use super::delayed_refs::DelayedRefs;
use super::superblock_edits::SuperblockEdits;
use crate::volume::Tree;

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) transid: Transid,
    pub(super) refs: Mutex<DelayedRefs>,
    pub(super) dirty: Mutex<Vec<Arc<Tree>>>,
    /// Subvolumes and snapshots to be made by the commit.
    pub(super) births: Mutex<Vec<Birth>>,
    /// Into the UUID tree, where there is none yet.
    pub(super) uuids: Mutex<Puts>,
    pub(super) superblock: Mutex<SuperblockEdits>,
    /// Memory of all edits, estimated.
    bytes: AtomicI64,
    /// The background thread was asked for a commit.
    asked: AtomicBool,
    /// Items edited, those edited twice counted twice.
    edits: AtomicU64,
}

impl Running {
    pub(super) fn new(transid: Transid) -> Running {
        Running {
            transid,
            refs: Mutex::default(),
            dirty: Mutex::default(),
            births: Mutex::default(),
            uuids: Mutex::default(),
            superblock: Mutex::default(),
            bytes: AtomicI64::new(0),
            asked: AtomicBool::new(false),
            edits: AtomicU64::new(0),
        }
    }

    /// Notes that `tree` has edits (RUN-1).
    pub(super) fn touch(&self, tree: &Arc<Tree>) {
        if tree.dirty_in.load(Ordering::Relaxed) != self.transid.0
            && tree.dirty_in.swap(self.transid.0, Ordering::AcqRel) != self.transid.0
        {
            self.dirty.lock().push(Arc::clone(tree));
        }
    }

    pub(super) fn grew(&self, bytes: i64, edits: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.edits.fetch_add(edits, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// True the first time.
    pub(super) fn ask(&self) -> bool {
        !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed)
    }

    pub(super) fn edits(&self) -> u64 {
        self.edits.load(Ordering::Relaxed)
    }

    /// Whether committing it would change nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.dirty.lock().is_empty()
            && self.births.lock().is_empty()
            && self.uuids.lock().is_empty()
            && self.refs.lock().is_empty()
            && self.superblock.lock().is_empty()
    }
}
