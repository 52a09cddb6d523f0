//! The interface of transactions for tests of the layers above.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::error::{Error, Result};

pub use super::failpoint::Failpoint;

/// A function called at each step of a commit, a log or a replay.
type Hook = Rc<dyn Fn(Failpoint) -> Result<(), Error>>;

thread_local! {
    static REFUSED_LOG_BLOCK: Cell<Option<u64>> = const { Cell::new(None) };
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Keeps a hook for the steps of commits, logs and replays installed.
#[derive(Debug)]
#[must_use]
pub struct Hooked(());

/// Calls `hook` at each step of commits, logs and replays in this thread. An error of the hook fails the step.
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
/// The error of the hook.
pub fn reach(step: Failpoint) -> Result<()> {
    let hook = HOOK.with_borrow(Option::clone);
    hook.map_or(Ok(()), |hook| hook(step))
}

/// Makes the n-th log block allocation of this thread fail. None disables this.
pub fn refuse_log_block(nth: Option<u64>) {
    REFUSED_LOG_BLOCK.set(nth);
}

/// Returns whether an allocation is still to fail.
pub fn refuses_log_block() -> bool {
    REFUSED_LOG_BLOCK.get().is_some()
}

/// Counts an allocation. Returns true if it must fail.
pub(super) fn is_refused() -> bool {
    let left = REFUSED_LOG_BLOCK.get();
    REFUSED_LOG_BLOCK.set(left.and_then(|left| left.checked_sub(1)));
    left == Some(0)
}
