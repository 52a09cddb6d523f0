//! Interface for reclaiming space in the layers above before an operation fails with ENOSPC.
//!
//! Invariants
//! - RECLAIM-1: space is reclaimed outside of transactions: it may include a commit, which would wait for the thread's
//!   own handle. Debug builds assert it.
//!
//! Not here: the order of attempts (`reservation::reserve`).

use std::fmt::Debug;

use crate::error::Result;

/// Ways to free space before an operation fails with ENOSPC (the kernel's `flush_space()`).
///
/// Locks: called without any lock held.
pub trait SpaceReclaim: Debug + Send + Sync {
    /// Writes back all buffered data, which may need less space than was reserved for it.
    ///
    /// Errors: some data could not be stored; the next fsync of its file also reports that.
    fn write_back_dirty(&self) -> Result<()>;

    /// Evicts the queued orphans.
    fn evict_orphans(&self);

    /// Writes the times that are only in memory.
    fn write_lazy_times(&self) -> Result<()>;
}

/// The number of handles of this thread, in debug builds.
#[cfg(debug_assertions)]
mod held {
    use std::cell::Cell;

    thread_local! {
        static HANDLES: Cell<usize> = const { Cell::new(0) };
    }

    pub(in super::super) fn count(change: isize) -> usize {
        HANDLES.with(|handles| {
            let count = handles.get().wrapping_add_signed(change);
            handles.set(count);
            count
        })
    }
}

/// Counts the handles of this thread in builds with debug assertions. A handle stays with its thread.
#[derive(Debug)]
pub(super) struct HandleCount(());

impl HandleCount {
    #[inline]
    pub(super) fn one_more() -> HandleCount {
        #[cfg(debug_assertions)]
        held::count(1);
        HandleCount(())
    }
}

#[cfg(debug_assertions)]
impl Drop for HandleCount {
    fn drop(&mut self) {
        held::count(-1);
    }
}

/// Asserts RECLAIM-1.
pub(super) fn assert_outside_transactions() {
    #[cfg(debug_assertions)]
    assert_eq!(held::count(0), 0, "space is reclaimed within a transaction");
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    /// RECLAIM-1
    #[test]
    #[should_panic(expected = "within a transaction")]
    fn space_is_not_reclaimed_within_a_transaction() {
        drop(HandleCount::one_more());
        assert_outside_transactions();
        let _handle = HandleCount::one_more();
        assert_outside_transactions();
    }
}
