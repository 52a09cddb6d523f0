//! The running transaction: what operations have changed since the last freeze.
//!
//! Invariants
//! - RUN-1: a tree with edits of this transaction is in `dirty` exactly once.
//! - RUN-2: everything in here enters the commit together: operations hold the freeze guard shared
//!   while they add to it, freezing holds it alone.
//!
//! Locks: `dirty`, `refs`, `pending_subvolumes`, `superblock` are leaves: nothing else is taken while one is held.
//! Not here: the edits themselves (each tree's delta), how they are committed (`commit`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::Transid;

use super::delayed_refs::DelayedRefs;
use super::pending_subvolumes::{Origin, PendingSubvolume, Puts};
use super::stripes::Striped;
use super::superblock_edits::SuperblockEdits;
use super::worst_case::EditCounts;
use crate::error::Result;
use crate::roots::Tree;

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) transid: Transid,
    pub(super) refs: Mutex<DelayedRefs>,
    pub(super) dirty: Mutex<Vec<Arc<Tree>>>,
    /// Subvolumes and snapshots to be made by the commit.
    pub(super) pending_subvolumes: Mutex<Vec<PendingSubvolume>>,
    /// Into the UUID tree, where there is none yet.
    pub(super) uuids: Mutex<Puts>,
    pub(super) superblock: Mutex<SuperblockEdits>,
    tallies: Striped<Tally>,
    /// The background thread was asked for a commit.
    asked: AtomicBool,
    /// By how many these are more than the leaves that they lie in, and how many they were when that was found.
    surplus: AtomicU64,
    measured: AtomicU64,
}

/// What some of the threads have done.
#[derive(Debug, Default)]
struct Tally {
    /// Memory of all edits, estimated.
    bytes: AtomicI64,
    /// Items edited, those edited twice counted twice.
    edits: AtomicU64,
    /// Those of trees that may share blocks with a snapshot.
    shared: AtomicU64,
}

/// Leaves that the making of a subvolume or a snapshot edits, in trees that may share blocks.
const LEAVES_OF_SUBVOLUME: u64 = 8;
const EDITS_OF_SUBVOLUME: u64 = 16;

impl Running {
    pub(super) fn new(transid: Transid) -> Running {
        Running {
            transid,
            refs: Mutex::default(),
            dirty: Mutex::default(),
            pending_subvolumes: Mutex::default(),
            uuids: Mutex::default(),
            superblock: Mutex::default(),
            tallies: Striped::default(),
            asked: AtomicBool::new(false),
            surplus: AtomicU64::new(0),
            measured: AtomicU64::new(0),
        }
    }

    /// Notes that `tree` has edits (RUN-1).
    #[inline]
    pub(super) fn touch(&self, tree: &Arc<Tree>) {
        if tree.dirty_in.load(Ordering::Relaxed) != self.transid.0
            && tree.dirty_in.swap(self.transid.0, Ordering::AcqRel) != self.transid.0
        {
            self.dirty.lock().push(Arc::clone(tree));
        }
    }

    #[inline]
    pub(super) fn grew(&self, bytes: i64, edits: u64) {
        let tally = self.tallies.mine();
        tally.bytes.fetch_add(bytes, Ordering::Relaxed);
        tally.edits.fetch_add(edits, Ordering::Relaxed);
    }

    /// Counts edits of leaves that a snapshot may share; `grew` counts them as well.
    #[inline]
    pub(super) fn edited_shared(&self, edits: u64) {
        let tally = self.tallies.mine();
        tally.shared.fetch_add(edits, Ordering::Relaxed);
    }

    pub(super) fn queue_subvolume(&self, pending: PendingSubvolume) {
        self.grew(0, EDITS_OF_SUBVOLUME);
        self.edited_shared(LEAVES_OF_SUBVOLUME);
        if let Origin::Snapshot(source) = &pending.origin {
            source.note_snapshot(self.transid.0);
        }
        self.pending_subvolumes.lock().push(pending);
    }

    pub(super) fn counts(&self) -> EditCounts {
        let shared = self.sum(|tally| &tally.shared);
        EditCounts {
            edits: self.edits(),
            shared: shared.saturating_sub(self.surplus.load(Ordering::Relaxed)),
            bytes: self.bytes(),
        }
    }

    /// Counts the leaves that shared edits lie in, if there are many more of these than when that was done last. True
    /// if it was done. Reads nodes.
    pub(super) fn measure_sharing(&self) -> Result<bool> {
        let shared = self.sum(|tally| &tally.shared);
        let measured = self.measured.load(Ordering::Relaxed);
        if shared < measured + measured / 32 + 16 {
            return Ok(false);
        }
        let dirty = self.dirty.lock().clone();
        let mut leaves = self.pending_subvolumes.lock().len() as u64 * LEAVES_OF_SUBVOLUME;
        for tree in dirty {
            let up_to = tree.shared_up_to();
            if up_to.0 == 0 {
                continue;
            }
            let found = tree.view.leaves_of(&tree.live().edited_keys())?;
            let is_old = |leaf: &&Expect| leaf.generation.is_none_or(|made| made <= up_to);
            leaves += found.iter().filter(is_old).count() as u64;
        }
        let surplus = shared.saturating_sub(leaves);
        self.surplus.store(surplus, Ordering::Relaxed);
        self.measured.store(shared, Ordering::Relaxed);
        Ok(true)
    }

    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.tallies.iter();
        let bytes: i64 = bytes.map(|tally| tally.bytes.load(Ordering::Relaxed)).sum();
        bytes.max(0) as u64
    }

    fn sum(&self, count: fn(&Tally) -> &AtomicU64) -> u64 {
        let counts = self.tallies.iter().map(count);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// True the first time.
    pub(super) fn ask(&self) -> bool {
        !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed)
    }

    pub(super) fn edits(&self) -> u64 {
        self.sum(|tally| &tally.edits)
    }

    /// Whether committing it would change nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.dirty.lock().is_empty()
            && self.pending_subvolumes.lock().is_empty()
            && self.uuids.lock().is_empty()
            && self.refs.lock().is_empty()
            && self.superblock.lock().is_empty()
    }
}
