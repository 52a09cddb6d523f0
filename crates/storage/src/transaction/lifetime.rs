//! The end of write access to a volume. Threads can wait for it without keeping the devices open.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex};
use ubtrfs_format::maker::Marks;

use crate::error::{Error, Result};

/// The lifetime of a writable volume.
#[derive(Clone, Debug, Default)]
pub struct Lifetime(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the volume is aborted or closed, or about to be. While it is false, operations check nothing else.
    may_have_ended: AtomicBool,
    /// The first reason for an abort.
    aborted: ArcSwapOption<String>,
    /// The marks of a maker (`Marks::bits`), if they are the reason.
    marks: AtomicU64,
    closed: AtomicBool,
    /// Whether the volume is being closed or dropped.
    is_closing: Mutex<bool>,
    /// Wakes threads that wait for an abort or the end.
    ended: Condvar,
}

impl Lifetime {
    /// Waits until a transaction is aborted, and returns the reason. Returns None if the volume is closed or dropped.
    pub fn wait_for_abort(&self) -> Option<Arc<String>> {
        let mut is_closing = self.0.is_closing.lock();
        loop {
            let reason = self.abort_reason();
            if reason.is_some() || *is_closing {
                return reason;
            }
            self.0.ended.wait(&mut is_closing);
        }
    }

    /// Waits until the volume is being closed, for at most `at_most`. Returns whether it is.
    pub fn wait_for_close(&self, at_most: Duration) -> bool {
        let mut is_closing = self.0.is_closing.lock();
        if !*is_closing {
            self.0.ended.wait_for(&mut is_closing, at_most);
        }
        *is_closing
    }

    /// Checks that the volume is in use. Errors: the volume is closed, or a transaction was aborted.
    #[inline]
    pub(super) fn check_alive(&self) -> Result<()> {
        if self.0.may_have_ended.load(Ordering::Acquire) {
            self.check_ended()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn check_ended(&self) -> Result<()> {
        match self.abort_reason() {
            None if self.is_closed() => Err(Error::Closed),
            None => Ok(()),
            Some(reason) => match Marks::from_bits(self.0.marks.load(Ordering::Acquire)) {
                Marks::NONE => Err(Error::Aborted(reason.to_string())),
                marks => Err(Error::Marked(marks)),
            },
        }
    }

    #[inline]
    pub(super) fn abort_reason(&self) -> Option<Arc<String>> {
        self.0.aborted.load_full()
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// Stores the reason, if it is the first. Returns whether it is.
    pub(super) fn abort(&self, reason: &dyn Display) -> bool {
        let reason = Some(Arc::new(reason.to_string()));
        // Must be set first, so that a thread that sees the reason is refused.
        self.0.may_have_ended.store(true, Ordering::Release);
        let aborted = &self.0.aborted;
        let before = aborted.compare_and_swap(&None::<Arc<String>>, reason);
        let _closing = self.0.is_closing.lock();
        self.0.ended.notify_all();
        before.is_none()
    }

    /// Ends write access, like [`Lifetime::abort`], because of the marks of a maker.
    pub(super) fn abort_for_marks(&self, marks: Marks) -> bool {
        // Before the abort, so that each refused thread gets the marks.
        self.0.marks.fetch_or(marks.bits(), Ordering::Release);
        self.abort(&Error::Marked(marks))
    }

    pub(super) fn begin_close(&self) {
        *self.0.is_closing.lock() = true;
        self.0.ended.notify_all();
    }

    pub(super) fn close(&self) {
        self.0.may_have_ended.store(true, Ordering::Release);
        self.0.closed.store(true, Ordering::Release);
    }
}
