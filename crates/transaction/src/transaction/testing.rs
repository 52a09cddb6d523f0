//! The interface of transactions for tests of the layers above.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::manager::TransactionManager;
use crate::error::{Error, Result};

pub use super::failpoint::Failpoint;

/// A call at a step of a commit, a log or a replay.
type Hook = Rc<dyn Fn(Failpoint) -> Result<(), Error>>;

thread_local! {
    static REFUSED_LOG_BLOCK: Cell<Option<u64>> = const { Cell::new(None) };
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Calls a hook at each step of commits, logs and replays, as long as this lives.
#[derive(Debug)]
#[must_use]
pub struct Hooked(());

/// Calls `hook` at each step of the commits, logs and replays that this thread makes. The step fails as it does.
pub fn at_failpoints(hook: impl Fn(Failpoint) -> Result<(), Error> + 'static) -> Hooked {
    HOOK.set(Some(Rc::new(hook)));
    Hooked(())
}

impl Drop for Hooked {
    fn drop(&mut self) {
        HOOK.set(None);
    }
}

/// Calls the hook of this thread at a step.
///
/// # Errors
/// That of the hook.
pub fn reach(step: Failpoint) -> Result<()> {
    let hook = HOOK.with_borrow(Option::clone);
    hook.map_or(Ok(()), |hook| hook(step))
}

/// Has the n-th block that this thread allocates for a log find no room; None: all are given again.
pub fn refuse_log_block(nth: Option<u64>) {
    REFUSED_LOG_BLOCK.set(nth);
}

/// Returns whether a log block is still to be refused.
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
    /// Returns the number of edits that have entered the running transaction.
    pub fn running_edits(&self) -> u64 {
        self.running.read().counts().edits
    }

    /// Returns whether any operation has reserved something that it has neither entered nor released.
    pub fn has_reserved(&self) -> bool {
        self.reservations.has_reserved()
    }
}
