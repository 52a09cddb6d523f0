//! The freeze guard: the running transaction, which many operations join at once and one freeze replaces.
//!
//! An operation takes the lock of its own threads. The freeze takes all locks, always in the same order.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::running::RunningTransaction;
use super::stripes::Striped;

#[derive(Debug)]
pub(super) struct TransactionBarrier {
    running: Striped<RwLock<Arc<RunningTransaction>>>,
}

/// The barrier, closed: no operation is within.
pub(super) struct Closed<'g> {
    stripes: Vec<RwLockWriteGuard<'g, Arc<RunningTransaction>>>,
}

impl TransactionBarrier {
    pub(super) fn new(running: RunningTransaction) -> TransactionBarrier {
        let running = Arc::new(running);
        TransactionBarrier {
            running: Striped::of(|| RwLock::new(Arc::clone(&running))),
        }
    }

    #[inline]
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Arc<RunningTransaction>> {
        self.running.mine().read()
    }

    /// Returns whether operations of this thread are kept out.
    #[cfg(test)]
    pub(super) fn is_closed_to_this_thread(&self) -> bool {
        self.running.mine().try_read().is_none()
    }

    /// Waits until all operations have left, and keeps others out.
    pub(super) fn write(&self) -> Closed<'_> {
        Closed {
            stripes: self.running.iter().map(RwLock::write).collect(),
        }
    }
}

impl Closed<'_> {
    pub(super) fn running(&self) -> &Arc<RunningTransaction> {
        &self.stripes[0]
    }

    /// Replaces the transaction that the next operations join, and returns the one before.
    pub(super) fn replace(&mut self, next: RunningTransaction) -> Arc<RunningTransaction> {
        let before = Arc::clone(self.running());
        let next = Arc::new(next);
        for stripe in &mut self.stripes {
            **stripe = Arc::clone(&next);
        }
        before
    }
}
