//! How threads of one connection hear that it ends.
//!
//! The kernel tells those that read requests; one that naps, and the threads of other queues when one fails, hear
//! it from here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// The end of a connection. As a descriptor it is readable once that has come.
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

    /// Ends the connection for this reason. The first reason counts.
    pub(crate) fn fail(&self, error: io::Error) {
        self.failure.lock().get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        self.come();
    }

    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the reason as an error if the connection was ended for one.
    pub(crate) fn take_failure(&self) -> io::Result<()> {
        match self.failure.lock().take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Waits for the end of the connection, or for so long; returns whether it has come.
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
