//! Progress callbacks of long calls, and signals during the calls, such as Ctrl-C.
//!
//! A callable receives the progress. If it raises an exception, the call ends.
//!
//! Python runs signal handlers in its main thread between two of its own instructions, so none run while the library
//! works. Therefore an observer periodically runs them. If a handler raises, the call ends.
//!
//! Not here: streams, whose file objects also run signal handlers (`stream`).

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ubtrfs::{Event, PhaseProgress, Problems, Progress};

use crate::failure::failed;

/// The interval of checks for signals. Each check waits for the GIL, which other threads may hold.
const INTERVAL: Duration = Duration::from_millis(50);

/// An observer that reports the progress to a callable and runs signal handlers. It collects the problems of a tree.
pub(crate) struct Signals {
    looked: Instant,
    raised: Option<PyErr>,
    problems: Problems,
    callable: Option<Py<PyAny>>,
    totals: Totals,
}

/// The totals of the work, and its current file and phase.
#[derive(Default)]
struct Totals {
    path: Option<Vec<u8>>,
    phase: Option<PhaseProgress>,
    files: u64,
    bytes: u64,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the package only has the library, which has no clock"
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
            callable,
            totals: Totals::default(),
        }
    }

    /// Passes an event to the callable.
    fn report(&mut self, event: &str, message: Option<&str>) {
        let Some(callable) = &self.callable else {
            return;
        };
        let of = &self.totals;
        let called = Python::attach(|py| {
            let path = of.path.as_ref().map(|path| PyBytes::new(py, path));
            let (blocks, issues) = of.phase.map_or((0, 0), |at| (at.blocks, at.issues));
            let counts = (of.files, of.bytes, blocks, issues);
            let phases = of.phase.map_or((0, 0), |at| (at.phase, at.phases));
            let subject = of.phase.map(|at| at.subject);
            callable.call1(py, (event, path, message, subject, phases, counts))
        });
        self.raised = called.err();
    }

    fn at(&mut self, path: &Path) {
        if self.callable.is_some() {
            self.totals.path = Some(path.as_os_str().as_bytes().to_vec());
        }
    }

    /// Returns the exception that ended the work.
    pub(crate) fn take_raised(&mut self) -> PyResult<()> {
        self.raised.take().map_or(Ok(()), Err)
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

    /// Runs signal handlers if the interval has passed.
    fn run_handlers(&mut self) {
        if self.raised.is_none() && now() - self.looked >= INTERVAL {
            self.raised = Python::attach(|py| py.check_signals()).err();
            self.looked = now();
        }
    }
}

impl Progress for Signals {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Begin { path } => {
                self.at(path);
                self.totals.files += 1;
                self.report("begin", None);
            }
            Event::Command(command) => {
                self.at(&command.full_path());
                self.totals.files += 1;
                self.report("begin", None);
            }
            // Only signal handlers run then.
            Event::Advance { bytes: 0 } => {}
            Event::Advance { bytes } => {
                self.totals.bytes += bytes;
                self.report("advance", None);
            }
            Event::Phase(at) => {
                self.totals.phase = Some(*at);
                self.report("phase", None);
            }
            Event::Problem(problem) => {
                // It continues by itself.
                let _ = self.problems.event(event);
                self.at(&problem.path);
                self.report("problem", Some(&problem.message));
            }
            Event::Removed { path, .. } => {
                self.at(path);
                self.totals.files += 1;
                self.report("removed", None);
            }
            Event::Finished { path, is_complete } => {
                self.at(path);
                if *is_complete {
                    self.report("finished", None);
                } else {
                    self.report("unfinished", None);
                }
            }
            _ => {}
        }
        self.run_handlers();
        match self.raised {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }
}
