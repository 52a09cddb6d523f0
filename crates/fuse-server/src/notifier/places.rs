//! Places for requests that are answered when the kernel has forgotten what they changed.
//!
//! The kernel waits for the locks of the pages that it is to forget. Such a lock may belong to a read that the kernel
//! has not sent. Direct writes and read-ahead are background requests, and it sends the next ones when earlier ones
//! are answered. So a request without a place gives up after a while, is answered, and leaves its notice to a lane.
//!
//! Invariants
//! - PLACES-1: at most `PLACES` requests wait without end, fewer than the kernel sends in the background.
//!
//! Locks: a leaf, not held while the kernel is told something.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::capacity::BACKGROUND_MIN;
use crate::clock;

/// Telling takes a microsecond where no page is locked. The kernel sends 12 at a time by default.
const PLACES: usize = 8;
// PLACES-1
const _: () = assert!(PLACES < 12 && PLACES < BACKGROUND_MIN as usize);
const PATIENCE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Places {
    taken: Mutex<usize>,
    left: Condvar,
}

/// A place; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a Places);

impl Places {
    /// Waits for a place; none if there is none in time.
    pub(super) fn enter(&self) -> Option<Place<'_>> {
        let mut taken = self.taken.lock();
        if *taken >= PLACES {
            let until = clock::now() + PATIENCE;
            while *taken >= PLACES {
                if self.left.wait_until(&mut taken, until).timed_out() {
                    return None;
                }
            }
        }
        *taken += 1;
        Some(Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() -= 1;
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_place_is_not_held_up_for_good() {
        let places = Places::default();
        let mut held: Vec<_> = (0..PLACES).map(|_| places.enter().unwrap()).collect();
        // PLACES-1
        assert!(places.enter().is_none());
        held.pop();
        assert!(places.enter().is_some());
    }
}
