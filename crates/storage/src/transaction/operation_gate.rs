//! Groups of operations that one commit makes durable together.
//!
//! A group has exclusive write access to the volume. Other callers that use the gate wait until it has ended, and so do
//! background threads. In the group's own thread, an operation fails if it would have to commit earlier.
//!
//! Invariants
//! - GATE-1: from the first operation of a group to its end, no commit freezes and no log is written.
//! - GATE-2: a thread enters the gate before it takes any other lock. So a thread that waits for a group never holds a
//!   lock that the group needs.
//!
//! Locks: the gate is acquired before all others.
//! Not here: the write-back at the end of a group (`volume` of the engine).

use std::cell::RefCell;
use std::marker::PhantomData;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// The gate for changes of a volume that supports groups.
#[derive(Debug, Default)]
pub struct OperationGate {
    state: Mutex<State>,
    /// Wakes threads after a thread or a group has left.
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of threads inside; they may run concurrently.
    inside: usize,
    /// Number of groups that wait for the threads inside. They have priority over new threads.
    waiting: usize,
    has_group: bool,
}

/// An entry of this thread into a gate.
#[derive(Clone, Copy)]
struct Inside {
    gate: usize,
    is_group: bool,
}

thread_local! {
    static INSIDE: RefCell<Vec<Inside>> = const { RefCell::new(Vec::new()) };
}

/// Permission to change the volume. It stays with its thread.
#[derive(Debug)]
pub struct Entered<'g> {
    /// None for a nested entry of this thread.
    _note: Option<Note>,
    gate: Option<&'g OperationGate>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.gate {
            let mut state = gate.state.lock();
            state.inside -= 1;
            if state.waiting > 0 {
                gate.left.notify_all();
            }
        }
    }
}

/// An exclusive entry: the gate is closed for all other threads.
#[derive(Debug)]
pub struct OperationGroup<'g> {
    gate: &'g OperationGate,
}

impl Drop for OperationGroup<'_> {
    fn drop(&mut self) {
        self.gate.state.lock().has_group = false;
        self.gate.left.notify_all();
    }
}

/// An entry of `INSIDE`. A drop removes it.
#[derive(Debug)]
struct Note {
    gate: usize,
    /// Prevents sharing between threads.
    _thread: PhantomData<*const ()>,
}

impl Note {
    fn make(gate: &OperationGate, is_group: bool) -> Note {
        let gate = gate.address();
        INSIDE.with_borrow_mut(|inside| inside.push(Inside { gate, is_group }));
        Note {
            gate,
            _thread: PhantomData,
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(|inside| {
            if let Some(at) = inside.iter().rposition(|entry| entry.gate == self.gate) {
                inside.remove(at);
            }
        });
    }
}

impl OperationGate {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn inside(&self) -> Option<Inside> {
        let gate = self.address();
        INSIDE.with_borrow(|inside| inside.iter().rfind(|entry| entry.gate == gate).copied())
    }

    /// Enters the gate, concurrently with other threads. Waits while another thread has a group.
    pub fn enter(&self) -> Entered<'_> {
        if self.inside().is_some() {
            // A nested entry must not wait: a waiting group would wait for this thread.
            return Entered {
                _note: None,
                gate: None,
            };
        }
        // GATE-2
        let mut state = self.state.lock();
        while state.has_group || state.waiting > 0 {
            self.left.wait(&mut state);
        }
        self.entered(state)
    }

    /// Enters for work that threads inside may wait for, and therefore with priority over waiting groups. Returns None
    /// if a running group does not end in time.
    pub fn enter_first(&self, within: Duration) -> Option<Entered<'_>> {
        let mut state = self.state.lock();
        if state.has_group {
            self.left.wait_for(&mut state, within);
        }
        (!state.has_group).then(|| self.entered(state))
    }

    fn entered(&self, mut state: MutexGuard<'_, State>) -> Entered<'_> {
        state.inside += 1;
        Entered {
            _note: Some(Note::make(self, false)),
            gate: Some(self),
        }
    }

    /// Waits until all other threads have left, and blocks new ones. Returns None if this thread itself is inside.
    pub fn begin_group(&self) -> Option<OperationGroup<'_>> {
        if self.inside().is_some() {
            return None;
        }
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.has_group || state.inside > 0 {
            self.left.wait(&mut state);
        }
        state.waiting -= 1;
        state.has_group = true;
        Some(OperationGroup { gate: self })
    }

    /// Returns whether this thread works for a group, and must not commit.
    pub fn is_in_group(&self) -> bool {
        // GATE-1
        self.inside().is_some_and(|inside| inside.is_group)
    }
}

impl OperationGroup<'_> {
    /// Runs the work of the group.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _note = Note::make(self.gate, true);
        work()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    /// GATE-1
    #[test]
    fn group_keeps_other_threads_out_and_enters_again_itself() {
        let gate = OperationGate::default();
        let group = gate.begin_group().unwrap();
        assert!(!gate.is_in_group());
        thread::scope(|scope| {
            scope.spawn(|| assert!(gate.enter_first(SHORT).is_none()));
        });
        group.run(|| {
            assert!(gate.is_in_group());
            let _again = gate.enter();
            let _more = gate.enter();
            assert!(gate.begin_group().is_none());
        });
        assert!(!gate.is_in_group());
        drop(group);
        assert!(gate.enter_first(SHORT).is_some());
    }

    /// GATE-2: the background thread continues its work for threads that the group waits for.
    #[test]
    fn background_enters_before_a_group_that_waits() {
        let gate = OperationGate::default();
        let (entered, is_begun) = (gate.enter(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _group = gate.begin_group().unwrap();
                is_begun.store(true, Ordering::Relaxed);
            });
            let background = scope.spawn(|| gate.enter_first(Duration::from_secs(60)).is_some());
            assert!(background.join().unwrap());
            assert!(!is_begun.load(Ordering::Relaxed));
            drop(entered);
        });
        assert!(is_begun.load(Ordering::Relaxed));
    }

    #[test]
    fn gates_of_two_volumes_are_entered_apart() {
        let (one, other) = (OperationGate::default(), OperationGate::default());
        let group = one.begin_group().unwrap();
        group.run(|| {
            let _entered = other.enter();
            assert!(one.is_in_group() && !other.is_in_group());
        });
    }
}
