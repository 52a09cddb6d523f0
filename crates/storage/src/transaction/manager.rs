//! The transactions of a writable volume: the running one, and the state of its commits.
//!
//! Invariants
//! - WRITER-1: one commit runs at a time, under `committing`.
//! - WRITER-2: after an abort, no operation joins and no commit begins. Durable data stays.
//! - WRITER-3: the same is true after closing, because another program may use the devices.
//!
//! Locks: `gate` first, where groups are used. Then, in this order:
//! - `extents`: shared in changes of data extents, exclusive for commits that move them;
//! - `committing`;
//! - the `way` of `data_flush`: shared for data writes, exclusive for closing;
//! - `running`: shared in operations, exclusive for the freeze;
//! - `flushing` of `flush_order`: during flushes.
//!
//! Not here: reservations (`reserve`), data and flushes (`device_writes`), threads (`threads`), the phases of a
//! commit (`commit`).

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::maker::Marks;
use ubtrfs_tree::MarkWatcher;

use super::barrier::TransactionBarrier;
use super::cleaner_state::CleanerState;
use super::data_flush::DataFlush;
use super::exclusive::ExclusiveTurn;
use super::extent_barrier::ExtentBarrier;
use super::lifetime::Lifetime;
use super::log_trees::LogTrees;
use super::operation_gate::OperationGate;
use super::published::{PinnedByEpoch, RetiredSets};
use super::reclaim::SpaceReclaim;
use super::reservation::{MetadataReservations, SpaceQueues};
use super::running::RunningTransaction;
use super::shared_extents::SharedExtents;
use super::stats::{Counters, WriterStats};
use super::threads::Threads;
use crate::discard::{Discard, DiscardOptions};
use crate::error::{Error, Result};
use crate::roots::{LazyTimes, Roots};
use crate::space::Space;

/// The transactions of a writable volume. Shared as `Arc<TransactionManager>`.
#[derive(Debug)]
pub struct TransactionManager {
    pub(super) roots: Arc<Roots>,
    pub(super) reclaim: OnceLock<Weak<dyn SpaceReclaim>>,
    pub space: Arc<Space>,
    pub discard: Discard,
    pub(super) running: TransactionBarrier,
    /// Acquired before all other locks.
    pub gate: OperationGate,
    /// Closed while a commit moves data extents. Acquired before `committing`.
    pub extents: Arc<ExtentBarrier>,
    pub committing: Mutex<()>,
    /// The last transaction with a durable superblock.
    pub(super) committed: AtomicU64,
    /// Space freed by commits that readers may still use.
    pub(super) pinned_by_epoch: Mutex<PinnedByEpoch>,
    pub retired_sets: RetiredSets,
    pub shared_extents: SharedExtents,
    pub(super) lifetime: Lifetime,
    pub(super) logs: LogTrees,
    pub(super) data_flush: DataFlush,
    pub(super) delta_budget_bytes: u64,
    pub(super) reservations: MetadataReservations,
    pub queues: SpaceQueues,
    pub(super) lazy_times: Arc<LazyTimes>,
    pub counters: Counters,
    pub threads: Threads,
    pub cleaner: CleanerState,
    pub exclusive: ExclusiveTurn,
}

impl TransactionManager {
    pub(super) fn new(
        roots: Arc<Roots>,
        delta_budget_bytes: u64,
        space: Arc<Space>,
        discard: &DiscardOptions,
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
        let running = RunningTransaction::new(Transid(committed.0 + 1));
        reservations.keep_global_reserve();
        let discard = Discard::new(Arc::clone(&space), Arc::clone(roots.pool()), discard);
        Ok(TransactionManager {
            roots,
            reclaim: OnceLock::new(),
            running: TransactionBarrier::new(running),
            gate: OperationGate::default(),
            extents: Arc::default(),
            committing: Mutex::new(()),
            committed: AtomicU64::new(committed.0),
            pinned_by_epoch: Mutex::default(),
            retired_sets: RetiredSets::default(),
            shared_extents: SharedExtents::default(),
            lifetime: Lifetime::default(),
            logs: LogTrees::default(),
            data_flush: DataFlush::default(),
            delta_budget_bytes,
            reservations,
            queues: SpaceQueues::default(),
            lazy_times,
            counters: Counters::default(),
            threads: Threads::default(),
            cleaner: CleanerState::default(),
            exclusive: ExclusiveTurn::default(),
            discard,
            space,
        })
    }

    /// Notes that the superblock of `transid` is durable.
    pub(super) fn note_commit(&self, transid: Transid) {
        self.committed.store(transid.0, Ordering::Release);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub fn committed(&self) -> Transid {
        Transid(self.committed.load(Ordering::Acquire))
    }

    /// Returns the transaction that an operation would join now.
    #[inline]
    pub fn running_transid(&self) -> Transid {
        self.running.read().transid
    }

    #[inline]
    pub fn check_alive(&self) -> Result<()> {
        self.lifetime.check_alive()
    }

    /// Checks that this thread may commit. Errors: it works for a group, which must not be committed in parts.
    pub fn check_may_commit(&self) -> Result<()> {
        // GATE-1
        if self.gate.is_in_group() {
            Err(Error::CommitInGroup)
        } else {
            Ok(())
        }
    }

    /// Checks that this thread may commit accepted data. Aborts the transaction if it works for a group: the data can
    /// be neither stored nor rejected any longer.
    pub fn check_may_commit_accepted(&self) -> Result<()> {
        let refused = self.check_may_commit();
        if let Err(error) = &refused {
            self.abort(error);
        }
        refused
    }

    pub fn is_closed(&self) -> bool {
        self.lifetime.is_closed()
    }

    pub fn lifetime(&self) -> &Lifetime {
        &self.lifetime
    }

    /// Ends write access (WRITER-3). Waits for a commit and for data writes in progress, but not for a flush of data.
    pub fn close(&self) {
        let _alone = self.committing.lock();
        let _stopped = self.data_flush.stop();
        self.lifetime.close();
        self.roots.pool().end_mirror_repair();
        self.threads.notify_frozen();
    }

    /// Aborts the running transaction (WRITER-2). Only the first reason is kept.
    pub fn abort(&self, reason: &dyn Display) {
        if self.lifetime.abort(reason) {
            tracing::error!(%reason, "transaction aborted, the volume is read-only from here on");
        }
        self.roots.pool().end_mirror_repair();
        self.threads.notify_frozen();
    }

    /// Refuses a volume with marks of a maker, now and when one is read later. Marks of inodes and extents are only read
    /// when they are needed.
    ///
    /// Errors: the blocks read so far have marks.
    pub fn refuse_marks(self: &Arc<Self>) -> Result<()> {
        let watcher: Arc<dyn MarkWatcher> = Arc::clone(self) as _;
        self.roots
            .node_store()
            .watch_marks(Arc::downgrade(&watcher));
        self.roots.refuse_marks()
    }

    /// Returns the reason why a transaction was aborted, if one was.
    pub fn abort_reason(&self) -> Option<Arc<String>> {
        self.lifetime.abort_reason()
    }

    /// Stops the background threads, and waits for them, except for the calling thread.
    pub fn stop_background(&self) {
        self.discard.stop();
        self.lifetime.begin_close();
        self.discard.wait_until_idle();
        self.threads.stop();
    }

    pub fn stats(&self) -> WriterStats {
        self.counters.stats(self.roots.pool().written_bytes())
    }
}

impl MarkWatcher for TransactionManager {
    /// Ends write access (WRITER-2): nothing that refers to the block is committed.
    fn marks_found(&self, marks: Marks) {
        if self.lifetime.abort_for_marks(marks) {
            tracing::error!("{}", Error::Marked(marks));
        }
        self.roots.pool().end_mirror_repair();
        self.threads.notify_frozen();
    }
}

/// Functions for tests of the layers above.
#[cfg(any(test, feature = "testing"))]
impl TransactionManager {
    /// Returns the number of edits in the running transaction.
    pub fn running_edits(&self) -> u64 {
        self.running.read().counts().items
    }

    /// Returns whether any operation has a reservation that it has neither used nor released.
    pub fn has_reserved(&self) -> bool {
        self.reservations.has_reserved()
    }
}
