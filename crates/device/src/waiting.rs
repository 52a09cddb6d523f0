//! Threads that must not wait: neither for a device, nor for what another thread holds.
//!
//! On such a thread an operation that would wait fails instead and has changed nothing. The caller has it repeated
//! by a thread that may wait. Errors carry it through every layer as `WouldWait`.
//!
//! What counts as waiting is what may take as long as a device does. Locks that are held for moments, and
//! computing, do not.

use std::cell::Cell;
use std::io;

/// It cannot be done without waiting, which this thread must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it would have to wait")]
pub struct WouldWait;

impl From<WouldWait> for io::Error {
    fn from(reason: WouldWait) -> io::Error {
        io::Error::new(io::ErrorKind::WouldBlock, reason)
    }
}

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Forbids this thread to wait, for the rest of its life.
pub fn forbid() {
    FORBIDDEN.set(true);
}

/// Whether this thread must not wait.
pub fn is_forbidden() -> bool {
    FORBIDDEN.get()
}

/// For whoever is about to wait.
pub fn check() -> Result<(), WouldWait> {
    match is_forbidden() {
        true => Err(WouldWait),
        false => Ok(()),
    }
}

/// Does something without waiting.
pub fn while_forbidden<T>(work: impl FnOnce() -> T) -> T {
    let _before = Restore(FORBIDDEN.replace(true));
    work()
}

/// Does something that has no way to say that it would wait, such as letting go of the last hold on something.
pub fn while_allowed<T>(work: impl FnOnce() -> T) -> T {
    let _before = Restore(FORBIDDEN.replace(false));
    work()
}

struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        FORBIDDEN.set(self.0);
    }
}

/// Whether a device says that it would wait.
pub(crate) fn is_would_wait(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
