//! Reservation of memory and metadata space for operations, and reclaiming of space.
//!
//! Locks: callers of `reserve_metadata` must not hold any: it may wait for a commit, which writes back files.
//! Not here: the counting of reservations and the order of waiting operations (`reservation`).

use std::sync::{Arc, Weak};

use ubtrfs_device::{clock, nonblocking};
use ubtrfs_format::ids::{RootId, Transid};

use super::handle::Reservation;
use super::manager::TransactionManager;
use super::published::{READERS_TAKE, READERS_TRIES};
use super::reclaim::{SpaceReclaim, assert_outside_transactions};
use super::reservation::{EditCounts, EditEstimate, ReservationUnits};
use super::running::RunningTransaction;
use crate::error::{Error, Result};

/// Number of attempts while other threads use up reclaimed space. Operations that free space get more of them.
const TRIES: usize = 4;
const FREEING_TRIES: usize = 100;

impl TransactionManager {
    /// Reserves memory and metadata space for an operation. Waits only if the memory for deltas is used up, or if a
    /// commit is needed to find space. Must be called before any inode lock is taken.
    ///
    /// `subvolume` is the tree that the operation changes, or the root tree for a change of the whole volume.
    ///
    /// Errors: aborted transaction, no space for `cost`.
    pub fn reserve_metadata(
        &self,
        subvolume: RootId,
        cost: EditEstimate,
    ) -> Result<Reservation<'_>> {
        self.check_alive()?;
        // A change ends the suspension of background work.
        if self.cleaner.is_quiesced() {
            self.cleaner.set_quiesced(false);
        }
        // Fast path: changes no counter shared by all threads.
        if let Some(reservation) = self.take_cached(cost) {
            return Ok(reservation);
        }
        let queue = if cost.may_use_global_reserve {
            &self.queues.freeing
        } else {
            &self.queues.metadata
        };
        // SPACE-QUEUE-1. A group must not wait: the threads in the queue wait for the group.
        let must_queue = queue.is_busy() && !self.gate.is_in_group();
        let (asks, full, reservation) = {
            let running = self.running.read();
            let bytes = self.bytes_in_memory(&running);
            // Early, so that the next transaction has memory when it is needed.
            let asks = bytes > self.delta_budget_bytes / 2 && running.ask();
            let is_full = bytes > self.delta_budget_bytes
                // A group leaves half of the memory for the write-back of its buffered data.
                || bytes > self.delta_budget_bytes / 2 && self.gate.is_in_group();
            let full = is_full.then_some(running.transid);
            let reservation = if must_queue {
                None
            } else {
                let batch = match full {
                    None => self.take_batch(&running, cost),
                    Some(_) => None,
                };
                batch.or_else(|| self.try_reserve_beside(&running, cost))
            };
            (asks, full, reservation)
        };
        if asks {
            self.threads.want_commit();
        }
        if let Some(transid) = full {
            // The freeze guard is released here: waiting for a freeze with the guard held would deadlock.
            nonblocking::check()?;
            self.check_may_commit()?;
            self.wait_for_freeze(transid)?;
        }
        if let Some(reservation) = reservation {
            return Ok(reservation);
        }
        nonblocking::check()?;
        // May read nodes.
        if !must_queue && let Some(reservation) = self.retry_with_exact_sharing(cost)? {
            return Ok(reservation);
        }
        let _turn = if self.gate.is_in_group() {
            None
        } else {
            queue.wait()
        };
        self.check_alive()?;
        // An earlier operation in the queue may have left space.
        if let Some(reservation) = self.try_reserve(cost) {
            return Ok(reservation);
        }
        match self.retry_with_exact_sharing(cost)? {
            Some(reservation) => Ok(reservation),
            None => self.reclaim_space(cost).inspect_err(|error| {
                let EditCounts { items, bytes, .. } = cost.counts;
                tracing::debug!(%subvolume, items, bytes, %error, "no reservation of metadata");
            }),
        }
    }

    /// Reclaims space and retries.
    ///
    /// A commit makes freed extents allocatable and replaces worst-case reservations by actual usage. A failed
    /// write-back is reported by the next fsync of the file. Operations that free space retry up to `FREEING_TRIES`
    /// times, so that competing writers do not starve them.
    fn reclaim_space(&self, cost: EditEstimate) -> Result<Reservation<'_>> {
        assert_outside_transactions();
        let mut waits = READERS_TRIES;
        for _ in 0..if cost.may_use_global_reserve {
            FREEING_TRIES
        } else {
            TRIES
        } {
            // ORPHAN-QUEUE-2
            if !cost.may_use_global_reserve {
                self.evict_orphans();
            }
            if self.reservations.has_reserved() {
                let _ = self.write_back_dirty();
            }
            self.write_lazy_times()?;
            if let Some(reservation) = self.retry_with_exact_sharing(cost)? {
                return Ok(reservation);
            }
            // A group must not commit (GATE-1).
            if self.gate.is_in_group() {
                break;
            }
            self.commit_running()?;
            // A further commit may free more: one in progress holds a reservation, and the cleaner may need one for
            // itself.
            let comes_more = self.reservations.is_committing() || self.cleaner.is_needed();
            // Must precede the retry: operations that leave in between may have caused it to fail.
            let has_reserved = self.reservations.has_reserved();
            let is_all_there = !has_reserved && self.running.read().edits() == 0;
            if let Some(reservation) = self.retry_after_release(cost, &mut waits) {
                return Ok(reservation);
            }
            if !comes_more && is_all_there {
                break;
            }
            if has_reserved {
                // The operations with reservations may be about to leave.
                clock::sleep(READERS_TAKE);
            }
        }
        Err(Error::NoSpace)
    }

    /// Sets the layer above that can free space.
    pub fn set_reclaim(&self, reclaim: Weak<dyn SpaceReclaim>) {
        let _ = self.reclaim.set(reclaim);
    }

    /// Returns the layer above, or None before it is set and after it is dropped.
    fn reclaim(&self) -> Option<Arc<dyn SpaceReclaim>> {
        self.reclaim.get().and_then(Weak::upgrade)
    }

    /// Writes back all buffered data ([`SpaceReclaim::write_back_dirty`]).
    pub fn write_back_dirty(&self) -> Result<()> {
        assert_outside_transactions();
        self.reclaim()
            .map_or(Ok(()), |above| above.write_back_dirty())
    }

    fn evict_orphans(&self) {
        if let Some(above) = self.reclaim() {
            above.evict_orphans();
        }
    }

    fn write_lazy_times(&self) -> Result<()> {
        self.reclaim()
            .map_or(Ok(()), |above| above.write_lazy_times())
    }

    /// Retries after readers have released freed space. Waits up to `waits` times, and decrements it.
    fn retry_after_release(&self, cost: EditEstimate, waits: &mut u32) -> Option<Reservation<'_>> {
        loop {
            self.release_freed();
            let reservation = self.try_reserve(cost);
            if reservation.is_some() || *waits == 0 || self.pinned_by_epoch.lock().is_empty() {
                return reservation;
            }
            *waits -= 1;
            clock::sleep(READERS_TAKE);
        }
    }

    /// Counts a reservation until `release`, after the edits are made or abandoned.
    pub fn reserve(&self, cost: EditCounts) {
        self.reservations.reserve(cost);
    }

    pub fn release(&self, cost: EditCounts) {
        self.reservations.release(cost);
    }

    /// Reserves `cost` if there is space without a commit.
    pub fn try_reserve(&self, cost: EditEstimate) -> Option<Reservation<'_>> {
        self.try_reserve_beside(&self.running.read(), cost)
    }

    /// Returns whether the running transaction has edits, whose commit may free space.
    pub fn has_edits(&self) -> bool {
        self.running.read().edits() > 0
    }

    /// Returns whether there is space for `cost` without a commit.
    pub fn fits_now(&self, cost: EditEstimate) -> bool {
        self.try_reserve(cost).is_some()
    }

    /// Returns the bytes that count against the memory for deltas: edits, copies of them in logs, and replaced blocks
    /// of logs.
    fn bytes_in_memory(&self, running: &RunningTransaction) -> u64 {
        running.bytes().saturating_add(self.logs.bytes())
    }

    /// Returns whether the memory for deltas has room for edits of `cost`.
    pub fn has_memory_for(&self, cost: EditEstimate) -> bool {
        let bytes = self.bytes_in_memory(&self.running.read());
        bytes.saturating_add(cost.counts.bytes) <= self.delta_budget_bytes
    }

    /// Returns whether edits of `cost` leave enough memory for concurrent operations.
    pub fn would_hold(&self, cost: EditEstimate) -> bool {
        cost.counts.bytes <= self.delta_budget_bytes / 2
    }

    /// Returns whether a commit should precede edits of `cost`. For callers that hold the extents of a file and
    /// therefore cannot wait in `reserve_metadata`.
    pub fn wants_commit(&self, cost: EditEstimate) -> bool {
        let running = self.running.read();
        self.bytes_in_memory(&running) > self.delta_budget_bytes / 2
            || self.try_reserve_beside(&running, cost).is_none()
    }

    /// Reserves for the cleaner, and returns the number of references that it may change in the commit of `counts`.
    /// Returns None if there is not enough space while other work needs it.
    pub(super) fn cleaner_refs(&self, counts: EditCounts) -> Option<u64> {
        const REF_BYTES: u64 = 640;
        let most = self.delta_budget_bytes / REF_BYTES;
        let running = self.running.read();
        let refs = self
            .reservations
            .reserve_for_cleaner(counts, &running.tallies, most);
        // If there is no other work, only the cleaner can make room, so it proceeds (CLEAN-2).
        let is_alone = counts.items == 0 && running.edits() == 0;
        // A leaf is dropped as a whole, which may exceed the limit by its references.
        let leaf = self.reservations.extents_of_leaf();
        refs.map(|refs| refs.saturating_sub(leaf))
            .or(is_alone.then_some(0))
    }

    /// Reserves space for `more` in the commit of `counts`, which no operation has reserved. Returns whether it fits.
    pub(super) fn extend_commit_reservation(&self, counts: EditCounts, more: EditCounts) -> bool {
        let running = self.running.read();
        self.reservations
            .extend_commit_reservation(counts, more, &running.tallies)
    }

    /// Releases excess reservations after a commit, or after an operation has given up.
    pub fn shrink_reservation(&self) {
        let running = self.running.write();
        let tallies = &running.running().tallies;
        self.reservations.shrink_to(tallies, self.lazy());
    }

    /// Reserves `cost` if there is space for it in addition to all edits so far and all other reservations.
    fn try_reserve_beside(
        &self,
        running: &RunningTransaction,
        cost: EditEstimate,
    ) -> Option<Reservation<'_>> {
        let reservation = Reservation::make(self, cost.counts);
        let reserved = || {
            self.reservations.reserve_space(
                &running.tallies,
                self.lazy(),
                cost.may_use_global_reserve,
            )
        };
        (reserved() || self.reservations.drain_cache() && reserved()).then_some(reservation)
    }

    /// Reserves for a small operation from its thread's cache.
    fn take_cached(&self, cost: EditEstimate) -> Option<Reservation<'_>> {
        let units = ReservationUnits::of(cost.counts)?;
        let taken = self.reservations.take_cached(units);
        taken.then(|| Reservation::of_units(self, units))
    }

    /// Reserves for a small operation, together with a batch for later ones.
    fn take_batch(
        &self,
        running: &RunningTransaction,
        cost: EditEstimate,
    ) -> Option<Reservation<'_>> {
        let units = ReservationUnits::of(cost.counts)?;
        let taken = self
            .reservations
            .take_batch(&running.tallies, self.lazy(), units);
        taken.then(|| Reservation::of_units(self, units))
    }

    /// Returns the estimate for times that are not in their items yet.
    fn lazy(&self) -> EditCounts {
        // LAZY-3
        EditEstimate::items(self.lazy_times.count() as u64).counts
    }

    /// Retries after an exact count of the shared leaves, which may read nodes.
    fn retry_with_exact_sharing(&self, cost: EditEstimate) -> Result<Option<Reservation<'_>>> {
        let running = Arc::clone(&self.running.read());
        Ok(if running.measure_sharing()? {
            self.try_reserve(cost)
        } else {
            None
        })
    }

    /// Returns whether most of the memory for deltas is available to a new group.
    pub fn has_memory_for_group(&self) -> bool {
        self.bytes_in_memory(&self.running.read()) <= self.delta_budget_bytes / 8
    }

    /// Waits until transaction `full` is frozen, or has no edits to freeze.
    fn wait_for_freeze(&self, full: Transid) -> Result<()> {
        let _waiting = self.counters.delta_waits.begin();
        self.threads.want_commit();
        let comes_freeze = || {
            let running = self.running.read();
            running.transid == full && !running.is_empty()
        };
        loop {
            // Read before the check, so a freeze in between is not missed.
            let seen = self.threads.notices();
            if !comes_freeze() {
                return Ok(());
            }
            self.check_alive()?;
            if !self.threads.has_background() {
                // There is no background thread, or it has ended.
                return self.commit_running();
            }
            self.threads.wait_beyond(seen);
        }
    }
}
