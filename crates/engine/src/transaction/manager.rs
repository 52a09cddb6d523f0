//! What a writable volume has besides a readable one: the running transaction, space, and the state of
//! its commits.
//!
//! Invariants
//! - WRITER-1: one commit runs at a time, under `committing`.
//! - WRITER-2: once aborted, nothing enters and nothing commits any more; what was durable stays.
//! - WRITER-3: the same once closed: another may have the devices then.
//! - WRITER-4: data that was written is `unflushed` until a flush begins that covers it. Flushes come one at a time, so
//!   that who is at `committing` and finds nothing unflushed had written before a flush began that has ended.
//!
//! Locks, in this order: `committing`; `data_way` (shared while data is written, alone to close it); `running` (shared in
//! operations, alone for the freeze).
//! Not here: the phases of a commit (`commit`), when one is due (`background`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::Key;

use super::estimate::EditEstimate;
use super::gate::Gate;
use super::handle::Reservation;
use super::lifetime::Lifetime;
use super::published::{PinnedByEpoch, READERS_TAKE, READERS_TRIES, RetiredSets};
use super::reclaim::{SpaceReclaim, assert_outside_transactions};
use super::reservation::MetadataReservations;
use super::reservation_cache::Units;
use super::running::Running;
use super::shared_extents::SharedExtents;
use super::waits::{WaitCounter, Waiting, Waits};
use super::worst_case::EditCounts;
use crate::error::{Error, Result};
use crate::roots::{LazyTimes, Roots};
use crate::space::Space;

/// Counts since the volume was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriterStats {
    /// Transactions committed.
    pub commits: u64,
    /// Operations that waited because the memory for deltas was used up.
    pub delta_waits: Waits,
    /// Writers that wrote data back because the memory for it was used up.
    pub buffer_waits: Waits,
    /// Bytes of tree blocks written, one copy of each.
    pub node_bytes: u64,
    /// Bytes of data written, one copy of each.
    pub data_bytes: u64,
    pub phases: CommitPhases,
}

/// What the phases of all commits took, together.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitPhases {
    /// While operations wait to enter.
    pub freeze: Duration,
    /// The frozen sets of subvolumes, pending subvolumes and cleaning.
    pub apply: Duration,
    pub converge: Duration,
    /// Blocks and the flush after them.
    pub write: Duration,
    /// Superblocks and their flushes.
    pub superblock: Duration,
    pub publish: Duration,
}

impl CommitPhases {
    /// What has come to it since it was `before`.
    #[must_use]
    pub fn since(&self, before: &CommitPhases) -> CommitPhases {
        CommitPhases {
            freeze: self.freeze - before.freeze,
            apply: self.apply - before.apply,
            converge: self.converge - before.converge,
            write: self.write - before.write,
            superblock: self.superblock - before.superblock,
            publish: self.publish - before.publish,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(super) commits: AtomicU64,
    delta_waits: WaitCounter,
    buffer_waits: WaitCounter,
    pub(super) node_bytes: AtomicU64,
    pub(crate) data_bytes: AtomicU64,
    pub(super) phases: Mutex<CommitPhases>,
}

#[derive(Debug)]
pub(crate) struct TransactionManager {
    pub(super) roots: Arc<Roots>,
    reclaim: OnceLock<Weak<dyn SpaceReclaim>>,
    pub(crate) space: Arc<Space>,
    pub(super) running: Gate,
    pub(crate) committing: Mutex<()>,
    /// The last transaction whose superblock is durable.
    pub(super) committed: AtomicU64,
    /// Space that commits freed and readers may still look at.
    pub(super) pinned_by_epoch: Mutex<PinnedByEpoch>,
    pub(crate) retired_sets: RetiredSets,
    pub(crate) shared_extents: SharedExtents,
    lifetime: Lifetime,
    data_way: RwLock<()>,
    unflushed: AtomicBool,
    delta_budget_bytes: u64,
    pub(super) reservations: MetadataReservations,
    lazy_times: Arc<LazyTimes>,
    pub(super) counters: Counters,
    wake: Mutex<Wake>,
    /// Wakes the background thread.
    wanted: Condvar,
    /// Wakes operations that wait for room in the delta.
    frozen: Condvar,
    /// Wakes the thread that writes back and deletes inodes without a name.
    evicts: Condvar,
    /// The threads that commit and write back, and whether there are any.
    background: Mutex<Vec<JoinHandle<()>>>,
    has_background: AtomicBool,
    /// Deleted subvolumes are left to clean.
    needs_cleaner: AtomicBool,
    /// Where the cleaner has come to in a deleted tree's blocks that others share.
    converted: Mutex<Option<(RootId, Key)>>,
    /// Nothing is changed but by operations.
    quiesced: AtomicBool,
    /// The free-space tree is not trusted, and not made anew yet.
    clears_free_space_tree: AtomicBool,
    commit_interval_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Wake {
    commit: bool,
    evict: bool,
    stop: bool,
}

/// How often an operation reclaims space while others use it up; more often if it frees space.
const TRIES: usize = 4;
const FREEING_TRIES: usize = 100;

/// Why the background thread woke.
pub(crate) enum Wakening {
    Stop,
    /// Somebody waits for a commit.
    Pressed,
    /// It is time to look.
    Due,
}

/// How often the background thread looks whether something is due.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl TransactionManager {
    pub(super) fn new(
        roots: Arc<Roots>,
        delta_budget_bytes: u64,
        space: Arc<Space>,
    ) -> Result<TransactionManager> {
        let extent_tree = roots.tree(RootId::EXTENT_TREE)?.item().bytes_used.get();
        let reservations = MetadataReservations::new(
            &space,
            u64::from(roots.superblock().nodesize.get()),
            extent_tree,
            Arc::clone(roots.sharing()),
        );
        let committed = roots.superblock().transid();
        let lazy_times = Arc::clone(roots.lazy_times());
        let running = Running::new(Transid(committed.0 + 1));
        reservations.keep_global_reserve();
        Ok(TransactionManager {
            roots,
            reclaim: OnceLock::new(),
            running: Gate::new(running),
            committing: Mutex::new(()),
            committed: AtomicU64::new(committed.0),
            pinned_by_epoch: Mutex::default(),
            retired_sets: RetiredSets::default(),
            shared_extents: SharedExtents::default(),
            lifetime: Lifetime::default(),
            data_way: RwLock::new(()),
            unflushed: AtomicBool::new(false),
            delta_budget_bytes,
            reservations,
            lazy_times,
            counters: Counters::default(),
            wake: Mutex::default(),
            wanted: Condvar::new(),
            frozen: Condvar::new(),
            evicts: Condvar::new(),
            background: Mutex::default(),
            has_background: AtomicBool::new(false),
            needs_cleaner: AtomicBool::new(false),
            converted: Mutex::default(),
            quiesced: AtomicBool::new(false),
            clears_free_space_tree: AtomicBool::new(false),
            commit_interval_ns: AtomicU64::new(u64::MAX),
            space,
        })
    }

    /// The superblock of `transid` is durable.
    pub(super) fn note_commit(&self, transid: Transid) {
        self.committed.store(transid.0, Ordering::Release);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn committed(&self) -> Transid {
        Transid(self.committed.load(Ordering::Acquire))
    }

    /// The transaction that an operation would enter now.
    pub(crate) fn running_transid(&self) -> Transid {
        self.running.read().transid
    }

    #[inline]
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.lifetime.check_alive()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lifetime.is_closed()
    }

    pub(crate) fn lifetime(&self) -> &Lifetime {
        &self.lifetime
    }

    /// WRITER-3. Waits for a commit and for data under way.
    pub(crate) fn close(&self) {
        let _alone = self.committing.lock();
        let _nobody = self.data_way.write();
        self.lifetime.close();
        let _wake = self.wake.lock();
        self.frozen.notify_all();
    }

    /// Puts data on the devices; durable after the next flush.
    pub(crate) fn write_data(&self, writes: &[(Logical, &[u8])]) -> Result<()> {
        let _open = self.data_way.read();
        self.check_alive()?;
        let written = self.roots.pool().write(writes);
        // WRITER-4: after the write. Always an exchange, so that a flush sees what all before have written.
        self.unflushed.swap(true, Ordering::AcqRel);
        Ok(written?)
    }

    /// Makes durable what was written. The caller holds `committing`.
    pub(super) fn flush(&self) -> Result<()> {
        self.unflushed.swap(false, Ordering::AcqRel);
        Ok(self.roots.pool().flush()?)
    }

    /// The same, if data was written that no flush is known to cover.
    pub(super) fn flush_data(&self) -> Result<()> {
        match self.unflushed.load(Ordering::Acquire) {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// WRITER-2. The first reason stays.
    pub(crate) fn abort(&self, reason: &Error) {
        tracing::error!(%reason, "transaction aborted, the volume is read-only from here on");
        self.lifetime.abort(reason);
        let _wake = self.wake.lock();
        self.frozen.notify_all();
    }

    /// Why a transaction was aborted, if one was.
    pub(crate) fn abort_reason(&self) -> Option<Arc<String>> {
        self.lifetime.abort_reason()
    }

    /// Reserves memory and metadata space for an operation. Waits only if the memory for deltas is used up, or if a commit
    /// must show whether there is space. Call it before any inode lock is taken.
    ///
    /// Errors: aborted transaction, no space for `cost`.
    pub(crate) fn reserve_metadata(&self, cost: EditEstimate) -> Result<Reservation<'_>> {
        self.check_alive()?;
        if self.is_quiesced() {
            self.set_quiesced(false);
        }
        if let Some(reservation) = self.take_cached(cost) {
            return Ok(reservation);
        }
        let (asks, full, reservation) = {
            let running = self.running.read();
            let bytes = running.bytes();
            // Early, so that the next transaction's room is there when it is needed.
            let asks = bytes > self.delta_budget_bytes / 2 && running.ask();
            let full = (bytes > self.delta_budget_bytes).then_some(running.transid);
            let batch = match full {
                None => self.take_batch(&running, cost),
                Some(_) => None,
            };
            (
                asks,
                full,
                batch.or_else(|| self.try_reserve_beside(&running, cost)),
            )
        };
        if asks {
            self.want_commit();
        }
        if let Some(transid) = full {
            nonblocking::check()?;
            self.wait_for_freeze(transid)?;
        }
        if let Some(reservation) = reservation {
            return Ok(reservation);
        }
        nonblocking::check()?;
        match self.retry_with_exact_sharing(cost)? {
            Some(reservation) => Ok(reservation),
            None => self.reclaim_space(cost),
        }
    }

    /// Reclaims space and retries.
    ///
    /// A commit makes freed extents allocatable and replaces worst-case reservations by actual usage. A failed write-back
    /// is reported by the next fsync of the file. Operations that free space retry up to `FREEING_TRIES` times, so that
    /// competing writers do not starve them.
    fn reclaim_space(&self, cost: EditEstimate) -> Result<Reservation<'_>> {
        assert_outside_transactions();
        let mut waits = READERS_TRIES;
        for _ in 0..if cost.frees { FREEING_TRIES } else { TRIES } {
            if !cost.frees {
                self.evict_orphans();
            }
            if self.reservations.has_reserved() {
                let _ = self.write_back_dirty();
            }
            self.write_lazy_times()?;
            if let Some(reservation) = self.retry_with_exact_sharing(cost)? {
                return Ok(reservation);
            }
            self.commit_running()?;
            // The next one, which keeps room for itself, or one that the cleaner has alone.
            let comes_more = self.reservations.is_committing() || self.needs_cleaner();
            if let Some(reservation) = self.retry_after_release(cost, &mut waits) {
                return Ok(reservation);
            }
            let has_reserved = self.reservations.has_reserved();
            let is_all_there = self.running.read().edits() == 0 && !has_reserved;
            if !comes_more && (is_all_there || !cost.frees && !has_reserved) {
                break;
            }
            if has_reserved {
                // By operations that are about to leave, perhaps.
                thread::sleep(READERS_TAKE);
            }
        }
        Err(Error::NoSpace)
    }

    /// Sets the layer above that can free space.
    pub(crate) fn set_reclaim(&self, reclaim: Weak<dyn SpaceReclaim>) {
        let _ = self.reclaim.set(reclaim);
    }

    /// None as long as nothing above has anything to free, and from when it is gone.
    fn reclaim(&self) -> Option<Arc<dyn SpaceReclaim>> {
        self.reclaim.get().and_then(Weak::upgrade)
    }

    /// As [`SpaceReclaim::write_back_dirty`].
    pub(crate) fn write_back_dirty(&self) -> Result<()> {
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

    /// Reserves once readers have let go of what was freed, if there is space then. Waits for them as often as `waits` says.
    fn retry_after_release(&self, cost: EditEstimate, waits: &mut u32) -> Option<Reservation<'_>> {
        loop {
            self.release_freed();
            let reservation = self.try_reserve(cost);
            if reservation.is_some() || *waits == 0 || self.pinned_by_epoch.lock().is_empty() {
                return reservation;
            }
            *waits -= 1;
            thread::sleep(READERS_TAKE);
        }
    }

    /// Counts edits that come later, until they are made or given up.
    pub(crate) fn reserve(&self, cost: EditEstimate) {
        self.reservations.reserve(cost);
    }

    pub(crate) fn release(&self, cost: EditEstimate) {
        self.reservations.release(cost);
    }

    /// Reserves `cost` if there is space without a commit.
    pub(crate) fn try_reserve(&self, cost: EditEstimate) -> Option<Reservation<'_>> {
        self.try_reserve_beside(&self.running.read(), cost)
    }

    /// Whether there is space for `cost` without a commit.
    pub(crate) fn fits_now(&self, cost: EditEstimate) -> bool {
        self.try_reserve(cost).is_some()
    }

    /// Whether edits of `cost` fit the memory for deltas beside what has entered.
    pub(crate) fn has_memory_for(&self, cost: EditEstimate) -> bool {
        let bytes = self.running.read().bytes();
        bytes.saturating_add(cost.bytes) <= self.delta_budget_bytes
    }

    /// Whether edits of `cost` take so little of the memory for deltas that others go on beside them.
    pub(crate) fn would_hold(&self, cost: EditEstimate) -> bool {
        cost.bytes <= self.delta_budget_bytes / 2
    }

    /// Whether a commit should come before edits of `cost`. For callers that cannot wait in `reserve_metadata`, as they hold
    /// the extents of a file.
    pub(crate) fn wants_commit(&self, cost: EditEstimate) -> bool {
        let running = self.running.read();
        running.bytes() > self.delta_budget_bytes / 2
            || self.try_reserve_beside(&running, cost).is_none()
    }

    /// Reserves for the cleaner, and returns how many references it may change in the commit of `counts`. None if there is
    /// not enough space, and something else that needs it.
    pub(super) fn cleaner_refs(&self, counts: EditCounts) -> Option<u64> {
        const REF_BYTES: u64 = 640;
        let most = self.delta_budget_bytes / REF_BYTES;
        let running = self.running.read();
        let refs = self
            .reservations
            .reserve_for_cleaner(counts, running.counts(), most);
        // Nothing else makes room where there is none.
        let is_alone = counts.edits == 0 && running.edits() == 0;
        // A leaf is dropped as a whole.
        let leaf = self.reservations.extents_of_leaf();
        refs.map(|refs| refs.saturating_sub(leaf))
            .or(is_alone.then_some(0))
    }

    /// Whether the commit of `counts` may change `more` as well, which nobody was reserved room for.
    pub(super) fn extend_commit_reservation(&self, counts: EditCounts, more: EditCounts) -> bool {
        let running = self.running.read();
        self.reservations
            .extend_commit_reservation(counts, more, running.counts())
    }

    /// Releases what is not needed any more: a commit is done, or an operation has given up.
    pub(crate) fn shrink_reservation(&self) {
        let running = self.running.write();
        self.reservations
            .shrink_to(running.running().counts(), self.lazy());
    }

    /// Counts until it is dropped the wait of a writer for room in the write buffer.
    pub(crate) fn wait_for_buffer(&self) -> Waiting<'_> {
        self.counters.buffer_waits.begin()
    }

    pub(crate) fn count_data(&self, bytes: u64) {
        self.counters.data_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reserves `cost` if there is space for it, for all edits so far and for all other reservations.
    fn try_reserve_beside(&self, running: &Running, cost: EditEstimate) -> Option<Reservation<'_>> {
        let reservation = Reservation::make(self, cost);
        let reserved = || {
            self.reservations
                .reserve_space(running, self.lazy(), cost.frees)
        };
        (reserved() || self.reservations.drain_cache() && reserved()).then_some(reservation)
    }

    /// Reserves for a small operation from the cache of its thread.
    fn take_cached(&self, cost: EditEstimate) -> Option<Reservation<'_>> {
        let units = Units::of(cost)?;
        let taken = self.reservations.take_cached(units);
        taken.then(|| Reservation::of_units(self, units))
    }

    /// Reserves for a small operation, and a batch for those that follow.
    fn take_batch(&self, running: &Running, cost: EditEstimate) -> Option<Reservation<'_>> {
        let units = Units::of(cost)?;
        let taken = self.reservations.take_batch(running, self.lazy(), units);
        taken.then(|| Reservation::of_units(self, units))
    }

    /// The estimate for times that are in no item yet.
    fn lazy(&self) -> EditEstimate {
        EditEstimate::items(self.lazy_times.count() as u64)
    }

    /// Reserves after a recount of the shared leaves, which may read.
    fn retry_with_exact_sharing(&self, cost: EditEstimate) -> Result<Option<Reservation<'_>>> {
        let running = Arc::clone(&self.running.read());
        Ok(match running.measure_sharing()? {
            true => self.try_reserve(cost),
            false => None,
        })
    }

    fn wait_for_freeze(&self, full: Transid) -> Result<()> {
        let _waiting = self.counters.delta_waits.begin();
        let mut wake = self.wake.lock();
        wake.commit = true;
        self.wanted.notify_one();
        while self.running.read().transid == full {
            self.check_alive()?;
            if !self.has_background() {
                // Nobody else would commit, or not any more.
                drop(wake);
                return self.commit_running();
            }
            self.frozen.wait(&mut wake);
        }
        Ok(())
    }

    /// Those that waited for room go on.
    pub(super) fn notify_frozen(&self) {
        let _wake = self.wake.lock();
        self.frozen.notify_all();
    }

    /// Asks the background thread for a commit.
    pub(crate) fn want_commit(&self) {
        self.wake.lock().commit = true;
        self.wanted.notify_one();
    }

    pub(crate) fn has_background(&self) -> bool {
        self.has_background.load(Ordering::Relaxed)
    }

    pub(crate) fn add_background(&self, thread: JoinHandle<()>) {
        self.background.lock().push(thread);
        self.has_background.store(true, Ordering::Relaxed);
    }

    /// Ends the background threads, and waits for them but for the one that asks.
    pub(crate) fn stop_background(&self) {
        self.has_background.store(false, Ordering::Relaxed);
        let mut wake = self.wake.lock();
        wake.stop = true;
        // Who waits for room makes it.
        self.frozen.notify_all();
        drop(wake);
        self.wanted.notify_one();
        self.evicts.notify_one();
        self.lifetime.begin_close();
        let threads = std::mem::take(&mut *self.background.lock());
        for thread in threads {
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("a background thread has panicked");
            }
        }
    }

    /// Asks for inodes without a name to be deleted.
    pub(crate) fn want_eviction(&self) {
        self.wake.lock().evict = true;
        self.evicts.notify_one();
    }

    /// Returns when somebody asked for it, or after `within`. False: the volume is being closed.
    pub(crate) fn next_eviction(&self, within: Duration) -> bool {
        let mut wake = self.wake.lock();
        if !wake.evict && !wake.stop {
            self.evicts.wait_for(&mut wake, within);
        }
        wake.evict = false;
        !wake.stop
    }

    pub(crate) fn next_wake(&self) -> Wakening {
        let mut wake = self.wake.lock();
        if !wake.commit && !wake.stop {
            self.wanted
                .wait_for(&mut wake, self.commit_interval().min(LOOK_EVERY));
        }
        match *wake {
            Wake { stop: true, .. } => Wakening::Stop,
            Wake { commit: true, .. } => {
                wake.commit = false;
                Wakening::Pressed
            }
            _ => Wakening::Due,
        }
    }

    /// There are deleted subvolumes to clean. Operations say so within their transaction.
    pub(crate) fn wake_cleaner(&self) {
        self.needs_cleaner.store(true, Ordering::Release);
    }

    /// Asked under the freeze guard: what is unclean then, the frozen transaction shows.
    pub(super) fn take_needs_cleaner(&self) -> bool {
        !self.is_quiesced() && self.needs_cleaner.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn needs_cleaner(&self) -> bool {
        !self.is_quiesced() && self.needs_cleaner.load(Ordering::Acquire)
    }

    pub(super) fn converted_to(&self, deleted: RootId) -> Option<Key> {
        let converted = *self.converted.lock();
        converted.and_then(|(id, key)| (id == deleted).then_some(key))
    }

    pub(super) fn note_converted(&self, deleted: RootId, to: Option<Key>) {
        *self.converted.lock() = to.map(|key| (deleted, key));
    }

    /// Has a commit make the free-space tree anew, and come for that if for nothing else.
    pub(crate) fn clear_free_space_tree(&self) {
        self.clears_free_space_tree.store(true, Ordering::Release);
        self.wake_cleaner();
    }

    pub(super) fn clears_free_space_tree(&self) -> bool {
        self.clears_free_space_tree.load(Ordering::Acquire)
    }

    pub(super) fn made_free_space_tree(&self) {
        self.clears_free_space_tree.store(false, Ordering::Release);
    }

    /// How long a change may stay uncommitted.
    pub(crate) fn commit_interval(&self) -> Duration {
        Duration::from_nanos(self.commit_interval_ns.load(Ordering::Relaxed))
    }

    /// From now on.
    pub(crate) fn set_commit_interval(&self, interval: Duration) {
        let ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.commit_interval_ns.store(ns, Ordering::Relaxed);
        // Who waits for the end of one that was longer looks again.
        let _wake = self.wake.lock();
        self.evicts.notify_one();
    }

    pub(crate) fn is_quiesced(&self) -> bool {
        self.quiesced.load(Ordering::Relaxed)
    }

    pub(crate) fn set_quiesced(&self, yes: bool) {
        self.quiesced.store(yes, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> WriterStats {
        let counters = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WriterStats {
            commits: get(&counters.commits),
            delta_waits: counters.delta_waits.so_far(),
            buffer_waits: counters.buffer_waits.so_far(),
            node_bytes: get(&counters.node_bytes),
            data_bytes: get(&counters.data_bytes),
            phases: *counters.phases.lock(),
        }
    }
}
