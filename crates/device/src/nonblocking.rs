//! Nonblocking threads, which wait neither for a device nor for another thread.
//!
//! On such a thread an operation that would block fails instead, without any change. The caller repeats it on a
//! thread that may block. Errors carry the condition through every layer as `WouldBlock`.
//!
//! Blocking means work that may take as long as device IO. Briefly held locks and computation do not count.

use std::cell::Cell;
use std::io;

/// The operation would block, and this thread must not.
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

/// Makes this thread nonblocking for the rest of its life.
pub fn set() {
    NONBLOCKING.set(true);
}

/// Returns whether this thread is nonblocking.
pub fn is_set() -> bool {
    NONBLOCKING.get()
}

/// Returns an error on a nonblocking thread. Call it before blocking.
pub fn check() -> Result<(), WouldBlock> {
    if is_set() { Err(WouldBlock) } else { Ok(()) }
}

/// Runs `work` in nonblocking mode.
pub fn scope<T>(work: impl FnOnce() -> T) -> T {
    let _before = Restore(NONBLOCKING.replace(true));
    work()
}

/// Runs `work` in blocking mode, because it cannot fail. An example is the release of the last reference to an
/// object.
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

/// Returns whether a device error is `WouldBlock`.
pub(crate) fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
