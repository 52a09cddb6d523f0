//! Nonblocking threads: they wait neither for a device, nor for what another thread holds.
//!
//! On such a thread an operation that would wait fails instead and has changed nothing. The caller has it repeated
//! by a thread that may wait. Errors carry it through every layer as `WouldBlock`.
//!
//! Waiting means work that may take as long as a device does. Locks that are held for moments, and
//! computing, do not.

use std::cell::Cell;
use std::io;

/// It cannot be done without waiting, which this thread must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call would block")]
pub struct WouldBlock;

impl From<WouldBlock> for io::Error {
    fn from(reason: WouldBlock) -> io::Error {
        io::Error::new(io::ErrorKind::WouldBlock, reason)
    }
}

thread_local! {
    static NONBLOCKING: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread nonblocking, for the rest of its life.
pub fn set() {
    NONBLOCKING.set(true);
}

/// Returns whether this thread is nonblocking.
pub fn is_set() -> bool {
    NONBLOCKING.get()
}

/// Fails on a nonblocking thread. An operation calls it before it waits.
pub fn check() -> Result<(), WouldBlock> {
    match is_set() {
        true => Err(WouldBlock),
        false => Ok(()),
    }
}

/// Does something as on a nonblocking thread.
pub fn scope<T>(work: impl FnOnce() -> T) -> T {
    let _before = Restore(NONBLOCKING.replace(true));
    work()
}

/// Does something as on a thread that may wait, because it has no way to fail. Such is the release of the last
/// reference to something.
pub fn blocking_scope<T>(work: impl FnOnce() -> T) -> T {
    let _before = Restore(NONBLOCKING.replace(false));
    work()
}

struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        NONBLOCKING.set(self.0);
    }
}

/// Returns whether a device says that it would wait.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
