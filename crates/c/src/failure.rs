//! Error reporting to C: a negative errno, and a message for each thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// An error of a function.
pub(crate) struct Failure {
    errno: c_int,
    message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Failure {
        Failure {
            errno,
            message: message.into(),
        }
    }

    /// Creates the error for an invalid argument.
    pub(crate) fn invalid(what: &str) -> Failure {
        Failure::new(libc::EINVAL, format!("invalid argument: {what}"))
    }

    fn of_panic(panic: &(dyn Any + Send)) -> Failure {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message");
        Failure::new(libc::ENOTRECOVERABLE, format!("a fault of ubtrfs: {text}"))
    }
}

impl From<ubtrfs::Error> for Failure {
    fn from(error: ubtrfs::Error) -> Failure {
        Failure::new(error.errno(), error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.downcast::<ubtrfs::Error>() {
            Ok(error) => error.into(),
            Err(error) => {
                Failure::new(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
            }
        }
    }
}

/// Runs the work of a function. An error sets the message of the thread.
fn run<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, c_int> {
    // C-1. Handles stay sound: the library also keeps its state consistent after a panic in a caller's device.
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    outcome
        .unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)))
        .map_err(|failure| {
            let bytes: Vec<u8> = failure.message.into_bytes();
            let bytes: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 0).collect();
            let message = CString::new(bytes).unwrap_or_default();
            // A thread that is ending no longer has a message.
            let _ = MESSAGE.try_with(|last| *last.borrow_mut() = message);
            -failure.errno
        })
}

/// Runs work without a result. Returns 0 or a negative errno.
pub(crate) fn status(work: impl FnOnce() -> Result<()>) -> c_int {
    match run(work) {
        Ok(()) => 0,
        Err(errno) => errno,
    }
}

/// Runs work with a small number as its result. Returns the number, or a negative errno.
pub(crate) fn number(work: impl FnOnce() -> Result<c_int>) -> c_int {
    run(work).unwrap_or_else(|errno| errno)
}

/// Runs work with a byte count as its result. Returns the count, or a negative errno.
pub(crate) fn size(work: impl FnOnce() -> Result<usize>) -> i64 {
    let count = |len| i64::try_from(len).unwrap_or(i64::MAX);
    run(work).map_or_else(i64::from, count)
}

/// Returns the English message of this thread's last error, including paths. It is empty if no call has failed. The
/// text is valid until the next call of this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn ubtrfs_error_message() -> *const c_char {
    let message = MESSAGE.try_with(|last| last.borrow().as_ptr());
    message.unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_is_an_error() {
        assert_eq!(status(|| panic!("on purpose")), -libc::ENOTRECOVERABLE);
        let message = MESSAGE.with(|last| last.borrow().clone());
        assert_eq!(message.to_str(), Ok("a fault of ubtrfs: on purpose"));
    }
}
