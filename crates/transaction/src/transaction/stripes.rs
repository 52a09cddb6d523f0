//! Stripes: a part of a value for some threads each, which avoids false sharing.

use std::sync::atomic::{AtomicUsize, Ordering};

const STRIPES: usize = 8;

/// One part for a few threads, chosen by the thread.
#[derive(Debug)]
pub(super) struct Striped<T> {
    stripes: [Alone<T>; STRIPES],
}

/// On cache lines of its own, of which processors fetch two at a time.
#[derive(Debug)]
#[repr(align(128))]
struct Alone<T>(T);

impl<T> Striped<T> {
    pub(super) fn of(make: impl Fn() -> T) -> Striped<T> {
        Striped {
            stripes: std::array::from_fn(|_| Alone(make())),
        }
    }

    /// Returns the calling thread's stripe.
    #[inline]
    pub(super) fn mine(&self) -> &T {
        &self.stripes[my_stripe()].0
    }

    /// Iterates over all stripes, in an order that is always the same.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.stripes.iter().map(|alone| &alone.0)
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Striped::of(T::default)
    }
}

/// Returns the number of the calling thread's stripe, in the order of [`Striped::iter`].
#[inline]
pub(super) fn my_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    MINE.with(|stripe| *stripe)
}
