//! A barrier that keeps changes of data extents out while a commit moves extents.
//!
//! A change of a file's extents reads addresses, and enters items and references with them later. It stays inside the
//! barrier in between. A commit that moves extents closes the barrier before its freeze, and opens it after it has
//! published the new addresses. So no change enters an address that is no longer valid.
//!
//! Invariants
//! - EXTENT-BARRIER-1: while the barrier is closed, no thread is inside.
//! - EXTENT-BARRIER-2: a thread inside may enter again without waiting. Otherwise it could wait for a commit that waits
//!   for it.
//!
//! Locks: the state is a leaf.

use std::cell::RefCell;
use std::marker::PhantomData;

use parking_lot::{Condvar, Mutex, MutexGuard};
use ubtrfs_device::nonblocking::{self, WouldBlock};

use super::stripes::Striped;
use crate::error::Result;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

thread_local! {
    /// The barriers that this thread is inside, with the number of its entries.
    static INSIDE: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

/// The barrier of a volume. Shared as `Arc<ExtentBarrier>`.
#[derive(Debug, Default)]
pub struct ExtentBarrier {
    is_closed: AtomicBool,
    /// The number of threads inside, by their stripes.
    inside: Striped<AtomicU64>,
    state: Mutex<()>,
    changed: Condvar,
    /// Held by the thread that has closed the barrier.
    closing: Mutex<()>,
}

/// An entry of this thread.
#[derive(Debug)]
pub struct InsideBarrier<'b> {
    barrier: &'b ExtentBarrier,
    /// Prevents a move to another thread.
    _thread: PhantomData<*const ()>,
}

/// The closed barrier.
#[derive(Debug)]
pub(super) struct ClosedBarrier<'b> {
    barrier: &'b ExtentBarrier,
    _closing: MutexGuard<'b, ()>,
}

impl ExtentBarrier {
    /// Enters, and waits while the barrier is closed.
    ///
    /// Errors: the thread must not wait.
    pub fn enter(&self) -> Result<InsideBarrier<'_>> {
        loop {
            if let Some(inside) = self.try_enter() {
                return Ok(inside);
            }
            if nonblocking::is_set() {
                return Err(WouldBlock.into());
            }
            let mut state = self.state.lock();
            while self.is_closed.load(Ordering::SeqCst) {
                self.changed.wait(&mut state);
            }
        }
    }

    /// Enters if the barrier is open.
    pub fn try_enter(&self) -> Option<InsideBarrier<'_>> {
        // EXTENT-BARRIER-2
        if !self.count_entry(false) {
            self.inside.mine().fetch_add(1, Ordering::SeqCst);
            if self.is_closed.load(Ordering::SeqCst) {
                self.leave();
                return None;
            }
            self.count_entry(true);
        }
        Some(InsideBarrier {
            barrier: self,
            _thread: PhantomData,
        })
    }

    /// Waits until all threads have left, and blocks new ones.
    pub(super) fn close(&self) -> ClosedBarrier<'_> {
        let closing = self.closing.lock();
        self.is_closed.store(true, Ordering::SeqCst);
        let mut state = self.state.lock();
        // EXTENT-BARRIER-1
        while self
            .inside
            .iter()
            .any(|count| count.load(Ordering::SeqCst) > 0)
        {
            self.changed.wait(&mut state);
        }
        drop(state);
        ClosedBarrier {
            barrier: self,
            _closing: closing,
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Counts an entry of this thread, if it has one already or if it `is_first`. Returns whether it was counted.
    fn count_entry(&self, is_first: bool) -> bool {
        let address = self.address();
        INSIDE.with_borrow_mut(|inside| {
            if let Some((_, entries)) = inside.iter_mut().find(|(at, _)| *at == address) {
                *entries += 1;
                return true;
            }
            if is_first {
                inside.push((address, 1));
            }
            is_first
        })
    }

    /// Removes an entry of this thread. Returns whether it was the last.
    fn uncount_entry(&self) -> bool {
        let address = self.address();
        INSIDE.with_borrow_mut(|inside| {
            let Some(slot) = inside.iter().position(|(at, _)| *at == address) else {
                return false;
            };
            inside[slot].1 -= 1;
            let is_last = inside[slot].1 == 0;
            if is_last {
                inside.swap_remove(slot);
            }
            is_last
        })
    }

    fn leave(&self) {
        self.inside.mine().fetch_sub(1, Ordering::SeqCst);
        if self.is_closed.load(Ordering::SeqCst) {
            // With the lock held, the closing thread either sees the new count or is already waiting.
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }
}

impl Drop for InsideBarrier<'_> {
    fn drop(&mut self) {
        if self.barrier.uncount_entry() {
            self.barrier.leave();
        }
    }
}

impl Drop for ClosedBarrier<'_> {
    fn drop(&mut self) {
        let _state = self.barrier.state.lock();
        self.barrier.is_closed.store(false, Ordering::SeqCst);
        self.barrier.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// EXTENT-BARRIER-1
    #[test]
    fn closing_waits_for_the_last_thread_inside() {
        let barrier = ExtentBarrier::default();
        let (outer, inner) = (barrier.enter().unwrap(), barrier.enter().unwrap());
        let is_closed = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _closed = barrier.close();
                is_closed.store(true, Ordering::SeqCst);
            });
            while !barrier.is_closed.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            // The order of the drops does not matter.
            drop(outer);
            assert!(!is_closed.load(Ordering::SeqCst));
            // EXTENT-BARRIER-2
            drop(barrier.try_enter().unwrap());
            drop(inner);
        });
        assert!(is_closed.load(Ordering::SeqCst));
        assert!(barrier.try_enter().is_some());
    }

    #[test]
    fn closed_barrier_is_not_entered() {
        let barrier = ExtentBarrier::default();
        let closed = barrier.close();
        assert!(barrier.try_enter().is_none());
        drop(closed);
        assert!(barrier.try_enter().is_some());
    }
}
