//! Coordination of discards with allocations that would fail because free space is temporarily taken out.
//!
//! Invariants
//! - TRIM-GATE-1: no allocation fails because a region is taken out. An allocation that found nothing during a discard
//!   waits until no region is out, prevents further ones, and tries again.
//!
//! Locks: a leaf. `enter` waits and is called without any lock held; `stop` waits for device IO of a single discard.

use crate::sync::{AtomicU64, Condvar, Mutex, Ordering};

#[derive(Debug, Default)]
pub(super) struct TrimGate {
    state: Mutex<State>,
    changed: Condvar,
    /// Twice the number of regions taken out so far, plus one while any is out.
    moves: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Regions that are taken out.
    out: usize,
    /// Allocations that wait or retry.
    stopped: usize,
}

/// Permission to take out a region.
#[derive(Debug)]
pub(super) struct Entered<'g>(&'g TrimGate);

/// A guard: no region is taken out while it is held.
#[derive(Debug)]
pub(super) struct Stopped<'g>(&'g TrimGate);

impl TrimGate {
    /// Announces that a region will be taken out. Waits while an allocation prevents it.
    pub(super) fn enter(&self) -> Entered<'_> {
        let mut state = self.state.lock();
        while state.stopped > 0 {
            self.changed.wait(&mut state);
        }
        state.out += 1;
        let moves = self.moves.load(Ordering::SeqCst) | 1;
        self.moves.store(moves + 2, Ordering::SeqCst);
        Entered(self)
    }

    /// Returns the current moment, for `was_quiet_since`.
    #[inline]
    pub(super) fn moment(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// Returns whether no region has been out since that moment.
    pub(super) fn was_quiet_since(&self, moment: u64) -> bool {
        moment & 1 == 0 && self.moment() == moment
    }

    /// Returns whether an allocation waits or retries.
    #[cfg(test)]
    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped > 0
    }

    pub(super) fn stop(&self) -> Stopped<'_> {
        let mut state = self.state.lock();
        state.stopped += 1;
        while state.out > 0 {
            self.changed.wait(&mut state);
        }
        Stopped(self)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.out -= 1;
        if state.out == 0 {
            self.0.moves.fetch_and(!1, Ordering::SeqCst);
        }
        self.0.changed.notify_all();
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.state.lock().stopped -= 1;
        self.0.changed.notify_all();
    }
}
