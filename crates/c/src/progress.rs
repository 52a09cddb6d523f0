//! Progress of long calls, and their cancellation by the program.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubtrfs::{
    CheckObserver, CheckProgress, Error, FileType, FillObserver, Mkfs, ReceiveObserver,
    RemovalObserver, StreamCommand, TransferObserver, TransferProblem,
};

use crate::arguments::text_of;
use crate::failure::{Failure, Result};

/// The progress of a long call. Counts are totals of the whole call, and 0 if they do not apply to it.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_progress {
    /// The current file, in the form of error messages; for a received stream, the subvolume and the path within. NULL
    /// if there is no current file.
    pub path: *const c_char,
    /// The subject of a check, for display, such as "extents"; otherwise NULL.
    pub subject: *const c_char,
    /// The number of the phase of a check, from 1.
    pub phase: c_int,
    /// The number of phases of a check.
    pub phases: c_int,
    /// The number of files that were begun, filled in or removed, or of commands of a received stream.
    pub files: u64,
    /// The number of bytes of file data that were copied, filled in or archived, of a sent or received stream, or of
    /// trimmed space. Shared data is not counted.
    pub bytes: u64,
    /// The number of tree blocks that a check has read.
    pub blocks: u64,
    /// The number of issues that a check has found.
    pub issues: u64,
}

/// Receives the progress of a call, at least before each file and after each part of its data, with the caller's
/// `data`. `progress` is valid only during the callback. A result other than 0 cancels the call, which returns -EINTR.
/// After that the callback is not called again, and completed work is kept.
pub type ubtrfs_progress_callback =
    Option<unsafe extern "C" fn(progress: *const ubtrfs_progress, data: *mut c_void) -> c_int>;

/// Called for each file that could not be transferred or removed, with the reason and the caller's `data`. Both texts
/// are valid only during the callback.
pub type ubtrfs_problem_callback =
    Option<unsafe extern "C" fn(path: *const c_char, message: *const c_char, data: *mut c_void)>;

/// A progress callback and its `data`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listener {
    callback: ubtrfs_progress_callback,
    data: *mut c_void,
}

impl Default for Listener {
    fn default() -> Listener {
        Listener {
            callback: None,
            data: ptr::null_mut(),
        }
    }
}

impl Listener {
    /// Creates a listener.
    ///
    /// # Safety
    ///
    /// The callback accepts arguments of its declared type, in all calls that use the listener.
    pub(crate) unsafe fn new(callback: ubtrfs_progress_callback, data: *mut c_void) -> Listener {
        Listener { callback, data }
    }
}

/// The progress of a call, as reported to its listener.
pub(crate) struct Meter {
    listener: Listener,
    path: Option<CString>,
    subject: Option<CString>,
    progress: ubtrfs_progress,
    is_ended: bool,
    /// Whether the listener was called since the work last checked for cancellation.
    was_called: bool,
}

// SAFETY: the library calls observers on the calling thread. So the callback and its pointers stay there.
unsafe impl Send for Meter {}

impl Meter {
    pub(crate) fn new(listener: Listener) -> Meter {
        Meter {
            listener,
            path: None,
            subject: None,
            progress: ubtrfs_progress {
                path: ptr::null(),
                subject: ptr::null(),
                phase: 0,
                phases: 0,
                files: 0,
                bytes: 0,
                blocks: 0,
                issues: 0,
            },
            is_ended: false,
            was_called: false,
        }
    }

    fn report(&mut self) {
        let Some(callback) = self.listener.callback.filter(|_| !self.is_ended) else {
            return;
        };
        let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |of| of.as_ptr());
        self.progress.path = pointer(&self.path);
        self.progress.subject = pointer(&self.subject);
        // SAFETY: guaranteed by the caller of `Listener::new`.
        self.is_ended = unsafe { callback(&raw const self.progress, self.listener.data) } != 0;
        self.was_called = true;
    }

    fn begin(&mut self, path: &Path) {
        if self.listener.callback.is_some() {
            self.path = Some(text_of(path.as_os_str().as_bytes()));
            self.progress.files += 1;
            self.report();
        }
    }

    /// Adds `len_bytes` to the progress. Returns whether the work should continue.
    pub(crate) fn advance(&mut self, len_bytes: u64) -> bool {
        self.progress.bytes += len_bytes;
        self.report();
        !self.is_ended
    }

    /// Sets the number of bytes so far. Returns whether the work should continue.
    pub(crate) fn reach(&mut self, bytes: u64) -> bool {
        self.progress.bytes = bytes;
        self.advance(0)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Calls the listener to check for cancellation, unless it was just called.
    fn ask(&mut self) -> bool {
        if !mem::take(&mut self.was_called) {
            self.report();
            self.was_called = false;
        }
        self.is_ended
    }

    /// Returns the outcome of work. Cancellation by the listener takes precedence over the error that it caused.
    pub(crate) fn outcome<T>(&self, done: ubtrfs::Result<T>) -> Result<T> {
        match done {
            Err(error) if error.errno() == libc::EINTR => Err(error.into()),
            _ if self.is_ended => Err(Failure::new(libc::EINTR, "cancelled")),
            done => Ok(done?),
        }
    }
}

impl CheckObserver for Meter {
    fn progress(&mut self, progress: &CheckProgress) {
        let number = |count| c_int::try_from(count).unwrap_or(c_int::MAX);
        self.subject = Some(text_of(progress.subject));
        self.progress.phase = number(progress.phase);
        self.progress.phases = number(progress.phases);
        self.progress.blocks = progress.blocks;
        self.progress.issues = progress.issues;
        self.report();
    }

    fn is_cancelled(&mut self) -> bool {
        self.ask()
    }
}

/// The progress of filling a new volume, shared by the call and the observer of the new volume.
#[derive(Clone)]
pub(crate) struct FillMeter(Arc<Mutex<Meter>>);

impl FillMeter {
    pub(crate) fn new(listener: Listener) -> FillMeter {
        FillMeter(Arc::new(Mutex::new(Meter::new(listener))))
    }

    /// Reports the progress of filling a volume to the listener.
    pub(crate) fn observe(&self, mkfs: Mkfs) -> Mkfs {
        mkfs.observe(Arc::new(Mutex::new(self.clone())))
    }

    /// Returns the outcome of creating a volume; see [`Meter::outcome`].
    pub(crate) fn outcome<T>(&self, made: ubtrfs::Result<T>) -> Result<T> {
        self.meter().outcome(made)
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FillObserver for FillMeter {
    fn begin(&mut self, path: &Path) {
        self.meter().begin(path);
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.meter().advance(len_bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.meter().ask()
    }
}

/// The progress of a transfer or a removal of a tree, with a callback for its problems.
pub(crate) struct TransferMeter {
    pub(crate) meter: Meter,
    callback: ubtrfs_problem_callback,
    data: *mut c_void,
    pub(crate) problems: usize,
}

impl TransferMeter {
    /// Creates the meter of a transfer.
    ///
    /// # Safety
    ///
    /// The callback accepts arguments of its declared type.
    pub(crate) unsafe fn new(
        listener: Listener,
        callback: ubtrfs_problem_callback,
        data: *mut c_void,
    ) -> TransferMeter {
        TransferMeter {
            meter: Meter::new(listener),
            callback,
            data,
            problems: 0,
        }
    }

    fn report_problem(&mut self, path: &Path, message: &str) {
        self.problems += 1;
        if let Some(callback) = self.callback {
            let path = text_of(path.as_os_str().as_bytes());
            let message = text_of(message);
            // SAFETY: guaranteed by the caller of `new`.
            unsafe { callback(path.as_ptr(), message.as_ptr(), self.data) };
        }
    }
}

impl TransferObserver for TransferMeter {
    fn begin(&mut self, path: &Path) {
        self.meter.begin(path);
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.meter.advance(len_bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.meter.ask()
    }

    fn failed(&mut self, path: &Path, problem: TransferProblem) {
        self.report_problem(path, &problem.to_string());
    }
}

impl RemovalObserver for TransferMeter {
    fn removed(&mut self, path: &Path, _: FileType) {
        self.meter.begin(path);
    }

    fn is_cancelled(&mut self) -> bool {
        self.meter.ask()
    }

    fn failed(&mut self, path: &Path, error: Error) -> ubtrfs::Result<()> {
        self.report_problem(path, &error.reason().to_string());
        Ok(())
    }
}

/// The progress of receiving, with the names of the created subvolumes.
pub(crate) struct ReceiveMeter {
    pub(crate) meter: Meter,
    pub(crate) names: Vec<PathBuf>,
}

impl ReceiveObserver for ReceiveMeter {
    fn begin(&mut self, command: &StreamCommand<'_>) {
        let subvolume = command.subvolume();
        match command.path() {
            Some(path) => self.meter.begin(&subvolume.join(path)),
            None => self.meter.begin(subvolume),
        }
    }

    fn advanced(&mut self, bytes: u64) {
        self.meter.advance(bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.meter.ask()
    }

    fn finished(&mut self, subvolume: &Path) {
        self.names.push(subvolume.to_owned());
    }
}
