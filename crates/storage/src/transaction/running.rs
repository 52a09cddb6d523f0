//! The running transaction: the changes of operations since the last freeze.
//!
//! Invariants
//! - RUN-1: a tree with edits of this transaction is in `dirty` exactly once.
//! - RUN-2: all changes recorded here enter the commit together. Operations hold the freeze guard shared while they add
//!   to it, a freeze holds it exclusively.
//!
//! Locks: `dirty`, `refs`, `pending_subvolumes`, `superblock` are leaves: nothing else is taken while one is held.
//! Not here: the edits themselves (each tree's delta), how they are committed (`commit`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::Transid;
use ubtrfs_format::node::header_flags;

use super::delayed_refs::DelayedRefs;
use super::pending_subvolumes::{Origin, PendingSubvolume, Puts};
use super::reservation::{EditCounts, EditTallies};
use super::superblock_edits::SuperblockEdits;
use crate::error::Result;
use crate::roots::Tree;

#[derive(Debug)]
pub(crate) struct RunningTransaction {
    pub(crate) transid: Transid,
    pub(super) refs: Mutex<DelayedRefs>,
    pub(super) dirty: Mutex<Vec<Arc<Tree>>>,
    /// Subvolumes and snapshots that the commit will create.
    pub(super) pending_subvolumes: Mutex<Vec<PendingSubvolume>>,
    /// Items for a UUID tree that does not exist yet.
    pub(super) uuids: Mutex<Puts>,
    pub(super) superblock: Mutex<SuperblockEdits>,
    pub(super) tallies: EditTallies,
    /// Whether a commit was requested from the background thread.
    asked: AtomicBool,
}

/// Upper bounds for the creation of a subvolume or snapshot: leaves edited in trees that may share blocks, and edits.
const LEAVES_OF_SUBVOLUME: u64 = 8;
const EDITS_OF_SUBVOLUME: u64 = 16;

impl RunningTransaction {
    pub(super) fn new(transid: Transid) -> RunningTransaction {
        RunningTransaction {
            transid,
            refs: Mutex::default(),
            dirty: Mutex::default(),
            pending_subvolumes: Mutex::default(),
            uuids: Mutex::default(),
            superblock: Mutex::default(),
            tallies: EditTallies::default(),
            asked: AtomicBool::new(false),
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
        self.tallies.grew(bytes, edits);
    }

    /// Counts edits of leaves that a snapshot may share; `grew` counts them as well.
    #[inline]
    pub(super) fn edited_shared(&self, edits: u64) {
        self.tallies.edited_shared(edits);
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
        self.tallies.counts()
    }

    /// Counts the leaves with shared edits, if the number of these edits has grown much since the last count. Returns
    /// true if it counted. Reads nodes.
    pub(super) fn measure_sharing(&self) -> Result<bool> {
        let Some(shared) = self.tallies.unmeasured() else {
            return Ok(false);
        };
        let dirty = self.dirty.lock().clone();
        let mut leaves = self.pending_subvolumes.lock().len() as u64 * LEAVES_OF_SUBVOLUME;
        for tree in dirty {
            let up_to = tree.shared_up_to();
            if up_to.0 == 0 {
                continue;
            }
            // Keeps the space of the leaves from being reused.
            let _epoch = tree.view.store().epoch();
            let found = tree.view.leaves_of(&tree.live().edited_keys())?;
            for leaf in &found {
                leaves += u64::from(may_be_shared(&tree, leaf, up_to)?);
            }
        }
        self.tallies.set_leaves(shared, leaves);
        Ok(true)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.tallies.bytes()
    }

    /// Notes a request for a commit. Returns true for the first one.
    pub(super) fn ask(&self) -> bool {
        !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed)
    }

    pub(super) fn edits(&self) -> u64 {
        self.tallies.edits()
    }

    /// Returns whether a commit of the transaction would change nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.dirty.lock().is_empty()
            && self.pending_subvolumes.lock().is_empty()
            && self.uuids.lock().is_empty()
            && self.refs.lock().is_empty()
            && self.superblock.lock().is_empty()
    }
}

/// Returns whether a snapshot may share a leaf: it is not newer than the last snapshot, or a relocation has copied it.
fn may_be_shared(tree: &Tree, leaf: &Expect, last_snapshot: Transid) -> Result<bool> {
    if leaf.generation.is_none_or(|made| made <= last_snapshot) {
        return Ok(true);
    }
    let block = tree.view.store().read_held(tree.id(), leaf)?;
    Ok(block.node().header().flags.get() & header_flags::RELOC != 0)
}
