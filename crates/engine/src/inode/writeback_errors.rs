//! Write-back errors of a file, and which open files have seen them (kernel: `errseq_t`).
//!
//! Each open file reports an error once, at its next sync. A file opened later reports it too if no open file has yet.
//! Syncs without an open file cannot be told apart. They report an error each time, until other data of the file has
//! reached the devices after a report, or until the inode leaves memory.
//!
//! Locks: the inode's protects it.

use crate::sync::{AtomicU64, Ordering};

/// The write-back errors of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct WritebackErrors {
    count: u64,
    /// The cause of the last.
    reason: String,
    /// The last has been reported.
    is_reported: bool,
    /// Other data has reached the devices since.
    is_past: bool,
}

impl WritebackErrors {
    pub(crate) fn add(&mut self, reason: String) {
        *self = WritebackErrors {
            count: self.count + 1,
            reason,
            is_reported: false,
            is_past: false,
        };
    }

    /// Notes that written data has reached the devices.
    pub(crate) fn note_written(&mut self) {
        self.is_past |= self.is_reported;
    }

    pub(crate) fn is_unreported(&self) -> bool {
        self.count > 0 && !self.is_reported
    }

    /// Reports the last error to a sync without an open file.
    pub(crate) fn report(&mut self) -> Option<String> {
        (self.count > 0 && !self.is_past).then(|| self.take_reason())
    }

    /// Reports the last error to an open file that has not seen it.
    pub(crate) fn report_to(&mut self, seen: &SeenErrors) -> Option<String> {
        let before = seen.0.swap(self.count, Ordering::Relaxed);
        (before < self.count).then(|| self.take_reason())
    }

    fn take_reason(&mut self) -> String {
        self.is_reported = true;
        self.reason.clone()
    }
}

/// The number of errors that an open file has seen.
#[derive(Debug, Default)]
pub(crate) struct SeenErrors(AtomicU64);

impl SeenErrors {
    /// Creates the note of the errors that a file opened now need not report.
    pub(crate) fn at_opening(errors: &WritebackErrors) -> SeenErrors {
        let unreported = u64::from(errors.is_unreported());
        SeenErrors(AtomicU64::new(errors.count - unreported))
    }
}
