//! The interface of transactions for tests of the layers above.

use std::cell::Cell;

use super::manager::TransactionManager;

thread_local! {
    static REFUSED_LOG_BLOCK: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Has the n-th block that this thread allocates for a log find no room; None: all are given again.
pub fn refuse_log_block(nth: Option<u64>) {
    REFUSED_LOG_BLOCK.set(nth);
}

/// Whether a log block is still to be refused.
pub fn refuses_log_block() -> bool {
    REFUSED_LOG_BLOCK.get().is_some()
}

/// Counts an allocation. True: this is the one to refuse.
pub(super) fn is_refused() -> bool {
    let left = REFUSED_LOG_BLOCK.get();
    REFUSED_LOG_BLOCK.set(left.and_then(|left| left.checked_sub(1)));
    left == Some(0)
}

impl TransactionManager {
    /// Edits that have entered the running transaction.
    pub fn running_edits(&self) -> u64 {
        self.running.read().counts().edits
    }

    /// Whether any operation has reserved something that it has neither entered nor released.
    pub fn has_reserved(&self) -> bool {
        self.reservations.has_reserved()
    }
}
