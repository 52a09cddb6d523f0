//! Progress of long calls, and their cancellation by the program.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use ubtrfs::{Event, Progress};

use crate::arguments::text_of;
use crate::failure::{Failure, Result};

/// A file, or a command of a received stream, is next.
pub const UBTRFS_EVENT_BEGIN: c_uint = 1;
/// A part of the work is complete, or time has passed.
pub const UBTRFS_EVENT_ADVANCE: c_uint = 2;
/// A phase of a check has begun or continues.
pub const UBTRFS_EVENT_PHASE: c_uint = 3;
/// A file was not transferred or removed, or only in part, or a command failed. The call continues.
pub const UBTRFS_EVENT_PROBLEM: c_uint = 4;
/// A file was removed.
pub const UBTRFS_EVENT_REMOVED: c_uint = 5;
/// A received subvolume is complete and read-only.
pub const UBTRFS_EVENT_FINISHED: c_uint = 6;
/// A received subvolume has failed commands. It is kept as it is, and writable.
pub const UBTRFS_EVENT_UNFINISHED: c_uint = 7;

/// The progress of a long call. Counts are totals of the whole call, and 0 if they do not apply to it.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_progress {
    /// The event, such as UBTRFS_EVENT_BEGIN. Later versions may have others.
    pub event: c_uint,
    /// The file of the event or the current file, in the form of error messages. For a received stream, the subvolume
    /// and the path within. NULL if there is no file.
    pub path: *const c_char,
    /// The reason of a problem, for display; otherwise NULL.
    pub message: *const c_char,
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

/// Receives the progress of a call: its events, at least before each file and after each part of its data, with the
/// caller's `data`. `progress` is valid only during the callback. A result other than 0 cancels the call, which returns
/// -EINTR. After that the callback is not called again, and completed work is kept.
pub type ubtrfs_progress_callback =
    Option<unsafe extern "C" fn(progress: *const ubtrfs_progress, data: *mut c_void) -> c_int>;

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
    progress: ubtrfs_progress,
    is_cancelled: bool,
    /// The number of problems.
    pub(crate) problems: usize,
}

// SAFETY: the library calls observers on the calling thread. So the callback and its pointers stay there.
unsafe impl Send for Meter {}

impl Meter {
    pub(crate) fn new(listener: Listener) -> Meter {
        Meter {
            listener,
            path: None,
            progress: ubtrfs_progress {
                event: 0,
                path: ptr::null(),
                message: ptr::null(),
                subject: ptr::null(),
                phase: 0,
                phases: 0,
                files: 0,
                bytes: 0,
                blocks: 0,
                issues: 0,
            },
            is_cancelled: false,
            problems: 0,
        }
    }

    fn at(&mut self, path: &Path) {
        self.path = Some(text_of(path.as_os_str().as_bytes()));
    }

    /// Returns the outcome of work. Cancellation by the listener takes precedence over the error that it caused.
    pub(crate) fn outcome<T>(&self, done: ubtrfs::Result<T>) -> Result<T> {
        match done {
            Err(error) if error.errno() == libc::EINTR => Err(error.into()),
            _ if self.is_cancelled => Err(Failure::new(libc::EINTR, "cancelled")),
            done => Ok(done?),
        }
    }
}

impl Progress for Meter {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if matches!(event, Event::Problem(_)) {
            self.problems += 1;
        }
        let Some(callback) = self.listener.callback else {
            return ControlFlow::Continue(());
        };
        let mut message = None;
        let mut subject = None;
        self.progress.event = match event {
            Event::Begin { path } => {
                self.at(path);
                self.progress.files += 1;
                UBTRFS_EVENT_BEGIN
            }
            Event::Command(command) => {
                self.at(&command.full_path());
                self.progress.files += 1;
                UBTRFS_EVENT_BEGIN
            }
            Event::Advance { bytes } => {
                self.progress.bytes += bytes;
                UBTRFS_EVENT_ADVANCE
            }
            Event::Phase(at) => {
                let number = |count| c_int::try_from(count).unwrap_or(c_int::MAX);
                subject = Some(text_of(at.subject));
                self.progress.phase = number(at.phase);
                self.progress.phases = number(at.phases);
                self.progress.blocks = at.blocks;
                self.progress.issues = at.issues;
                UBTRFS_EVENT_PHASE
            }
            Event::Problem(problem) => {
                self.at(&problem.path);
                message = Some(text_of(&problem.message));
                UBTRFS_EVENT_PROBLEM
            }
            Event::Removed { path, .. } => {
                self.at(path);
                self.progress.files += 1;
                UBTRFS_EVENT_REMOVED
            }
            Event::Finished { path, is_complete } => {
                self.at(path);
                if *is_complete {
                    UBTRFS_EVENT_FINISHED
                } else {
                    UBTRFS_EVENT_UNFINISHED
                }
            }
            _ => return ControlFlow::Continue(()),
        };
        let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |of| of.as_ptr());
        self.progress.path = pointer(&self.path);
        self.progress.message = pointer(&message);
        self.progress.subject = pointer(&subject);
        // SAFETY: guaranteed by the caller of `Listener::new`.
        if unsafe { callback(&raw const self.progress, self.listener.data) } == 0 {
            ControlFlow::Continue(())
        } else {
            self.is_cancelled = true;
            ControlFlow::Break(())
        }
    }
}
