//! A limit on requests that wait for the kernel's writeback.
//!
//! Written pages arrive as requests of their own. Each request that waits for them occupies a thread and a slot of the
//! transport. So the limit leaves threads and slots for the writes that they wait for.
//!
//! Invariants
//! - FLUSHING-1: at most `PLACES` requests wait, fewer than a transport has threads, or a queue slots.
//! - FLUSHING-2: searches for holes take at most half of the places, since they can be answered without writeback.
//!
//! Locks: a leaf, not held while a thread waits for the kernel.

use parking_lot::{Condvar, Mutex};

const PLACES: usize = 64;
const PLACES_FOR_SEARCHES: usize = PLACES / 2;
/// The number of concurrent writeback requests to the kernel.
const AT_ONCE: usize = 8;

/// The reason for the writeback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A search for holes.
    Search,
    /// A command whose result would be wrong without the writeback.
    Command,
}

#[derive(Debug, Default)]
pub(super) struct Flushing {
    taken: Mutex<Taken>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    searches: usize,
    commands: usize,
    /// Searches and commands that have their turn.
    running: usize,
}

/// A turn, which ends on drop.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    flushing: &'a Flushing,
    why: For,
}

impl Flushing {
    /// Waits for a turn. Returns `None` if all places are taken.
    pub(super) fn enter(&self, why: For) -> Option<Turn<'_>> {
        let mut taken = self.taken.lock();
        // FLUSHING-1, FLUSHING-2
        let has_place = match why {
            For::Search => taken.searches < PLACES_FOR_SEARCHES,
            For::Command => taken.searches + taken.commands < PLACES,
        };
        if !has_place {
            return None;
        }
        *taken.of(why) += 1;
        while taken.running >= AT_ONCE {
            self.left.wait(&mut taken);
        }
        taken.running += 1;
        Some(Turn {
            flushing: self,
            why,
        })
    }
}

impl Taken {
    fn of(&mut self, why: For) -> &mut usize {
        match why {
            For::Search => &mut self.searches,
            For::Command => &mut self.commands,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut taken = self.flushing.taken.lock();
        *taken.of(self.why) -= 1;
        taken.running -= 1;
        self.flushing.left.notify_one();
    }
}

#[cfg(test)]
mod tests;
