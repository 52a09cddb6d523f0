//! The writers without copy on write (nocow) in a block group, and the switch that blocks them.
//!
//! Neither entering nor leaving takes a lock, unless a thread waits for the last writer.
//!
//! Invariants
//! - NOCOW-WRITERS-1: when `close` returns, no write is in progress, and all effects of the writers happen before the
//!   return. Later writes are refused until `open`.

use crate::sync::{AtomicU64, Condvar, Mutex, Ordering};

const READ_ONLY: u64 = 1 << 63;

/// The nocow writers of a block group, and whether new ones are refused.
#[derive(Debug, Default)]
pub(super) struct NocowWriters {
    /// The number of writers, plus `READ_ONLY`.
    state: AtomicU64,
    empty: Mutex<()>,
    emptied: Condvar,
}

impl NocowWriters {
    pub(super) fn enter(&self) -> bool {
        if self.state.fetch_add(1, Ordering::Acquire) & READ_ONLY == 0 {
            return true;
        }
        self.leave();
        false
    }

    pub(super) fn leave(&self) {
        // The last writer after `close`. With the lock held, the closer either sees the new state or is already
        // waiting.
        if self.state.fetch_sub(1, Ordering::Release) == READ_ONLY | 1 {
            let _empty = self.empty.lock();
            self.emptied.notify_all();
        }
    }

    /// Refuses further writers and waits for those in progress (NOCOW-WRITERS-1).
    pub(super) fn close(&self) {
        self.state.fetch_or(READ_ONLY, Ordering::AcqRel);
        let mut empty = self.empty.lock();
        while self.state.load(Ordering::Acquire) != READ_ONLY {
            self.emptied.wait(&mut empty);
        }
    }

    /// Closes the group like [`NocowWriters::close`]. Returns false if it was closed already.
    pub(super) fn close_once(&self) -> bool {
        if self.state.fetch_or(READ_ONLY, Ordering::AcqRel) & READ_ONLY != 0 {
            return false;
        }
        self.close();
        true
    }

    /// Closes the group if no write is in progress.
    pub(super) fn try_close(&self) -> bool {
        let closed = self
            .state
            .compare_exchange(0, READ_ONLY, Ordering::AcqRel, Ordering::Acquire);
        closed.is_ok() || closed == Err(READ_ONLY)
    }

    pub(super) fn open(&self) {
        self.state.fetch_and(!READ_ONLY, Ordering::AcqRel);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & READ_ONLY != 0
    }
}
