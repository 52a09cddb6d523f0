//! Write-back errors of a file, and the open files that have seen them (kernel: `errseq_t`).
//!
//! Each open file reports an error once, at its next sync. A file opened later reports it too, if no open
//! file has done so yet. Syncs without an open file cannot be distinguished. They report an error each time,
//! until later data of the file reaches the devices after a report, or until the inode leaves memory.
//!
//! Locks: protected by the inode's lock.

use crate::sync::{AtomicU64, Ordering};

/// The write-back errors of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct WritebackErrors {
    count: u64,
    /// The cause of the last error.
    reason: String,
    /// Whether the last error has been reported.
    is_reported: bool,
    /// Whether data has been written successfully since that report.
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

    /// Notes that a write-back of the file succeeded.
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
    /// Creates the state of a file that is opened now. It will report only unreported and later errors.
    pub(crate) fn at_opening(errors: &WritebackErrors) -> SeenErrors {
        let unreported = u64::from(errors.is_unreported());
        SeenErrors(AtomicU64::new(errors.count - unreported))
    }
}
