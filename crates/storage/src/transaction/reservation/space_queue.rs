//! Queues for space on a full volume (the kernel's tickets).
//!
//! Invariants
//! - SPACE-QUEUE-1: operations that find no space reclaim it one at a time, in order of arrival. Later operations wait
//!   as well, so that they do not take space freed for an earlier one.
//! - SPACE-QUEUE-2: a thread with a turn does not wait in any queue, because reclaiming makes reservations of its own.
//!
//! Locks: the state is a leaf. A turn is held while space is reclaimed, and its thread holds no lock of an inode.
//! Not here: reclaiming (`reserve`, `fs::inode::delalloc::reservation`).

use std::cell::Cell;

use parking_lot::{Condvar, Mutex};

use crate::sync::{AtomicU64, Ordering};

thread_local! {
    /// Number of turns held by this thread.
    static TURNS: Cell<usize> = const { Cell::new(0) };
}

/// A queue of threads that wait for space of one kind.
#[derive(Debug, Default)]
pub struct SpaceQueue {
    state: Mutex<State>,
    moved: Condvar,
    /// Number of threads that wait or have the turn.
    len: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The next ticket to issue.
    next: u64,
    /// The ticket that has the turn.
    turn: u64,
}

/// The queues of a volume.
#[derive(Debug, Default)]
pub struct SpaceQueues {
    pub data: SpaceQueue,
    pub(in crate::transaction) metadata: SpaceQueue,
    /// For operations that free space. They may use the global reserve, and have priority over others.
    pub(in crate::transaction) freeing: SpaceQueue,
}

/// A turn to reclaim space. A drop passes it to the next thread.
#[derive(Debug)]
#[must_use]
pub struct Turn<'q> {
    queue: &'q SpaceQueue,
}

impl SpaceQueue {
    /// Returns whether an operation of this thread has to queue.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.len.load(Ordering::SeqCst) > 0 && TURNS.get() == 0
    }

    /// Waits for the turn. Returns None if this thread already has one (SPACE-QUEUE-2).
    pub fn wait(&self) -> Option<Turn<'_>> {
        // SPACE-QUEUE-2
        if TURNS.get() > 0 {
            return None;
        }
        self.len.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock();
        let ticket = state.next;
        state.next += 1;
        // SPACE-QUEUE-1
        while state.turn != ticket {
            self.moved.wait(&mut state);
        }
        TURNS.set(TURNS.get() + 1);
        Some(Turn { queue: self })
    }

    /// Returns the number of threads that wait or have the turn.
    #[cfg(any(test, feature = "testing"))]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::SeqCst)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        TURNS.set(TURNS.get() - 1);
        self.queue.state.lock().turn += 1;
        self.queue.len.fetch_sub(1, Ordering::SeqCst);
        self.queue.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// SPACE-QUEUE-1
    #[test]
    fn threads_have_their_turns_in_the_order_in_which_they_came() {
        let queue = SpaceQueue::default();
        let order = Mutex::new(Vec::new());
        let first = queue.wait().unwrap();
        thread::scope(|scope| {
            for number in 0..8 {
                let (queue, order) = (&queue, &order);
                scope.spawn(move || {
                    assert!(queue.is_busy());
                    let _turn = queue.wait().unwrap();
                    order.lock().push(number);
                });
                while queue.len() != number + 2 || queue.state.lock().next != number + 2 {
                    thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock(), (0..8).collect::<Vec<_>>());
        assert!(!queue.is_busy());
    }

    /// SPACE-QUEUE-2
    #[test]
    fn thread_with_a_turn_waits_in_no_queue() {
        let queues = SpaceQueues::default();
        let turn = queues.data.wait().unwrap();
        assert!(!queues.data.is_busy());
        assert!(queues.data.wait().is_none() && queues.metadata.wait().is_none());
        drop(turn);
        assert!(queues.metadata.wait().is_some());
    }
}
