//! The counts of a transaction's edits, in stripes of threads.
//!
//! The additions of different threads are unordered. The release of an operation's reservation orders its edits
//! (RESERVATION-2).
//!
//! Not here: the space that a commit needs for these counts (`worst_case`).

use super::estimate::EditCounts;
use crate::sync::{AtomicI64, AtomicU64, Ordering};
use crate::transaction::stripes::Striped;

#[derive(Debug, Default)]
pub(in crate::transaction) struct EditTallies {
    stripes: Striped<Tally>,
    /// The excess of shared edits over the number of leaves with such edits, and the number of shared edits at that
    /// measurement.
    surplus: AtomicU64,
    measured: AtomicU64,
}

/// The edits of one stripe of threads.
#[derive(Debug, Default)]
struct Tally {
    /// Estimated memory of all edits.
    bytes: AtomicI64,
    /// Number of item edits. An item edited twice counts twice.
    edits: AtomicU64,
    /// Edits of trees that may share blocks with a snapshot.
    shared: AtomicU64,
}

impl EditTallies {
    #[inline]
    pub(in crate::transaction) fn grew(&self, bytes: i64, edits: u64) {
        let tally = self.stripes.mine();
        tally.bytes.fetch_add(bytes, Ordering::Relaxed);
        tally.edits.fetch_add(edits, Ordering::Relaxed);
    }

    /// Counts edits of leaves that a snapshot may share; `grew` counts them as well.
    #[inline]
    pub(in crate::transaction) fn edited_shared(&self, edits: u64) {
        let tally = self.stripes.mine();
        tally.shared.fetch_add(edits, Ordering::Relaxed);
    }

    pub(in crate::transaction) fn counts(&self) -> EditCounts {
        let shared = self.shared();
        EditCounts {
            items: self.edits(),
            leaves: shared.saturating_sub(self.surplus.load(Ordering::Relaxed)),
            bytes: self.bytes(),
        }
    }

    pub(in crate::transaction) fn bytes(&self) -> u64 {
        let bytes = self.stripes.iter();
        let bytes: i64 = bytes.map(|tally| tally.bytes.load(Ordering::Relaxed)).sum();
        bytes.max(0) as u64
    }

    pub(in crate::transaction) fn edits(&self) -> u64 {
        self.sum(|tally| &tally.edits)
    }

    fn shared(&self) -> u64 {
        self.sum(|tally| &tally.shared)
    }

    /// Returns the number of shared edits if it has grown much since the last `set_leaves`.
    pub(in crate::transaction) fn unmeasured(&self) -> Option<u64> {
        let shared = self.shared();
        let measured = self.measured.load(Ordering::Relaxed);
        (shared >= measured + measured / 32 + 16).then_some(shared)
    }

    /// Notes that the first `shared` edits of shared leaves are in `leaves` leaves.
    pub(in crate::transaction) fn set_leaves(&self, shared: u64, leaves: u64) {
        let surplus = shared.saturating_sub(leaves);
        self.surplus.store(surplus, Ordering::Relaxed);
        self.measured.store(shared, Ordering::Relaxed);
    }

    fn sum(&self, count: fn(&Tally) -> &AtomicU64) -> u64 {
        let counts = self.stripes.iter().map(count);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}
