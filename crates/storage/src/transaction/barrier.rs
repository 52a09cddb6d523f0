//! The freeze guard: many operations join the running transaction concurrently, and a freeze replaces it.
//!
//! An operation takes the lock of its thread's stripe. The freeze takes all locks, always in the same order.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::running::RunningTransaction;
use super::stripes::Striped;

#[derive(Debug)]
pub(super) struct TransactionBarrier {
    running: Striped<RwLock<Arc<RunningTransaction>>>,
}

/// The closed barrier: no operation is inside.
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

    /// Returns whether operations of this thread are blocked.
    #[cfg(test)]
    pub(super) fn is_closed_to_this_thread(&self) -> bool {
        self.running.mine().try_read().is_none()
    }

    /// Waits until all operations have left, and blocks new ones.
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

    /// Sets the transaction that later operations join, and returns the previous one.
    pub(super) fn replace(&mut self, next: RunningTransaction) -> Arc<RunningTransaction> {
        let before = Arc::clone(self.running());
        let next = Arc::new(next);
        for stripe in &mut self.stripes {
            **stripe = Arc::clone(&next);
        }
        before
    }
}
