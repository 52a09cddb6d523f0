//! Progress callbacks of long calls, and signals during the calls, such as Ctrl-C.
//!
//! A callable receives the progress. If it raises an exception, the call ends.
//!
//! Python runs signal handlers in its main thread between two of its own instructions, so none run while the library
//! works. Therefore an observer periodically runs them. If a handler raises, the call ends.
//!
//! Not here: streams, whose file objects also run signal handlers (`stream`).

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ubtrfs::{
    CheckObserver, CheckProgress, Error, FileType, FillObserver, ReceiveObserver, RemovalObserver,
    StreamCommand, TransferObserver, TransferProblem,
};

use crate::failure::failed;

/// The maximum number of listed problems.
const MAX_LISTED: usize = 1000;
/// The interval of checks for signals. Each check waits for the GIL, which other threads may hold.
const INTERVAL: Duration = Duration::from_millis(50);

/// An observer that reports the progress to a callable and runs signal handlers. It collects the problems of a tree,
/// and the names of received subvolumes.
pub(crate) struct Signals {
    looked: Instant,
    raised: Option<PyErr>,
    problems: Problems,
    names: Vec<PathBuf>,
    callable: Option<Py<PyAny>>,
    progress: Progress,
}

/// The files that failed. Only the first are listed.
#[derive(Default)]
pub(crate) struct Problems {
    pub(crate) count: u64,
    /// Paths and messages.
    pub(crate) listed: Vec<(PathBuf, String)>,
}

impl Problems {
    fn add(&mut self, path: &Path, message: String) {
        self.count += 1;
        if self.listed.len() < MAX_LISTED {
            self.listed.push((path.to_owned(), message));
        }
    }
}

/// The progress of the work.
#[derive(Default)]
struct Progress {
    path: Option<Vec<u8>>,
    subject: Option<&'static str>,
    phase: usize,
    phases: usize,
    files: u64,
    bytes: u64,
    blocks: u64,
    issues: u64,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the package has the library alone, which tells no time"
)]
fn now() -> Instant {
    Instant::now()
}

impl Signals {
    pub(crate) fn new(callable: Option<Py<PyAny>>) -> Signals {
        Signals {
            looked: now(),
            raised: None,
            problems: Problems::default(),
            names: Vec::new(),
            callable,
            progress: Progress::default(),
        }
    }

    /// Reports the progress to the callable, unless an exception has ended the work.
    fn report(&mut self) {
        let Some(callable) = self.callable.as_ref().filter(|_| self.raised.is_none()) else {
            return;
        };
        let of = &self.progress;
        let called = Python::attach(|py| {
            let path = of.path.as_ref().map(|path| PyBytes::new(py, path));
            let counts = (of.files, of.bytes, of.blocks, of.issues);
            callable.call1(py, (path, of.subject, (of.phase, of.phases), counts))
        });
        self.raised = called.err();
    }

    fn begin_at(&mut self, path: &Path) {
        if self.callable.is_some() {
            self.progress.path = Some(path.as_os_str().as_bytes().to_vec());
            self.progress.files += 1;
            self.report();
        }
    }

    /// Adds `len_bytes` to the progress.
    pub(crate) fn advance(&mut self, len_bytes: u64) {
        self.progress.bytes += len_bytes;
        self.report();
    }

    /// Sets the number of bytes so far. Returns whether the work should continue.
    pub(crate) fn reach(&mut self, bytes: u64) -> bool {
        self.progress.bytes = bytes;
        self.report();
        !self.look()
    }

    /// Returns the exception that ended the work.
    pub(crate) fn take_raised(&mut self) -> PyResult<()> {
        self.raised.take().map_or(Ok(()), Err)
    }

    pub(crate) fn names(self) -> Vec<PathBuf> {
        self.names
    }

    pub(crate) fn problems(self) -> Problems {
        self.problems
    }

    /// Returns the outcome of the observed work, with its problems. An exception of a handler takes precedence over the
    /// error that it caused.
    pub(crate) fn outcome<T>(self, done: ubtrfs::Result<T>) -> PyResult<(T, Problems)> {
        match (done, self.raised) {
            (Ok(value), None) => Ok((value, self.problems)),
            (_, Some(raised)) => Err(raised),
            (Err(error), None) => Err(failed(&error)),
        }
    }

    /// Runs signal handlers if the interval has passed. Returns whether one has raised.
    pub(crate) fn look(&mut self) -> bool {
        if self.raised.is_none() && now() - self.looked >= INTERVAL {
            self.raised = Python::attach(|py| py.check_signals()).err();
            self.looked = now();
        }
        self.raised.is_some()
    }
}

impl FillObserver for Signals {
    fn begin(&mut self, path: &Path) {
        self.begin_at(path);
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.advance(len_bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.look()
    }
}

impl TransferObserver for Signals {
    fn begin(&mut self, path: &Path) {
        self.begin_at(path);
    }

    fn transferred(&mut self, len_bytes: u64) {
        self.advance(len_bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.look()
    }

    fn failed(&mut self, path: &Path, problem: TransferProblem) {
        self.problems.add(path, problem.to_string());
    }
}

impl RemovalObserver for Signals {
    fn removed(&mut self, path: &Path, _: FileType) {
        self.begin_at(path);
    }

    fn is_cancelled(&mut self) -> bool {
        self.look()
    }

    fn failed(&mut self, path: &Path, error: Error) -> ubtrfs::Result<()> {
        self.problems.add(path, error.reason().to_string());
        Ok(())
    }
}

impl ReceiveObserver for Signals {
    fn begin(&mut self, command: &StreamCommand<'_>) {
        match command.path() {
            Some(path) => self.begin_at(&command.subvolume().join(path)),
            None => self.begin_at(command.subvolume()),
        }
    }

    fn advanced(&mut self, bytes: u64) {
        self.advance(bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.look()
    }

    fn finished(&mut self, subvolume: &Path) {
        self.names.push(subvolume.to_owned());
    }
}

impl CheckObserver for Signals {
    fn progress(&mut self, progress: &CheckProgress) {
        self.progress.subject = Some(progress.subject);
        self.progress.phase = progress.phase;
        self.progress.phases = progress.phases;
        self.progress.blocks = progress.blocks;
        self.progress.issues = progress.issues;
        self.report();
    }

    fn is_cancelled(&mut self) -> bool {
        self.look()
    }
}
