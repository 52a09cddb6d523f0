//! Stripes: a value is split into parts for groups of threads, which avoids false sharing.

use std::sync::atomic::{AtomicUsize, Ordering};

const STRIPES: usize = 8;

/// A value with one part per stripe of threads.
#[derive(Debug)]
pub(super) struct Striped<T> {
    stripes: [Alone<T>; STRIPES],
}

/// A value on cache lines of its own. Processors fetch lines in pairs, so the alignment is 128.
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

    /// Iterates over all stripes in a fixed order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.stripes.iter().map(|alone| &alone.0)
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Striped::of(T::default)
    }
}

/// Returns the index of the calling thread's stripe, in the order of [`Striped::iter`].
#[inline]
pub(super) fn my_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    MINE.with(|stripe| *stripe)
}
