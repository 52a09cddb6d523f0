//! Signals the end of a connection to its threads.
//!
//! The kernel signals it to threads that read requests. Sleeping threads, and threads of other queues after a failure,
//! receive it from here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// The end of a connection. As a descriptor it becomes readable at the end.
#[derive(Debug)]
pub(crate) struct Ending {
    event: OwnedFd,
    failed: AtomicBool,
    failure: Mutex<Option<io::Error>>,
}

impl Ending {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        })
    }

    /// Signals that the kernel has ended the connection.
    pub(crate) fn come(&self) {
        if let Err(error) = rustix::io::write(&self.event, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot signal the end of the connection");
        }
    }

    /// Ends the connection with this error. Only the first error is kept.
    pub(crate) fn fail(&self, error: io::Error) {
        self.failure.lock().get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        self.come();
    }

    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the error if the connection was ended by one.
    pub(crate) fn take_failure(&self) -> io::Result<()> {
        match self.failure.lock().take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Sleeps for `time`, or until the end of the connection. Returns whether the connection has ended.
    pub(crate) fn nap(&self, time: Duration) -> bool {
        let time = Timespec::try_from(time).ok();
        let mut event = [PollFd::new(&self.event, PollFlags::IN)];
        poll(&mut event, time.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Ending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests;
