//! Signals of Python while the library works, such as that of Ctrl-C.
//!
//! Python runs the handlers of signals in its main thread between two of its own instructions, and there are none while the
//! library works. So an observer has them run now and then. A handler that raises ends the work.
//!
//! Not here: streams, whose file objects have handlers run as well (`stream`).

use std::path::Path;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use ubtrfs::{CheckObserver, Problems, TransferObserver, TransferProblem};

use crate::failure::failed;

/// The time between two looks. Each has to wait for Python's lock, which other threads may hold.
const INTERVAL: Duration = Duration::from_millis(50);

/// An observer that runs the handlers of signals, and lists the problems of a transfer.
pub(crate) struct Signals {
    looked: Instant,
    raised: Option<PyErr>,
    problems: Problems,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the package has the library alone, which tells no time"
)]
fn now() -> Instant {
    Instant::now()
}

impl Signals {
    pub(crate) fn new() -> Signals {
        Signals {
            looked: now(),
            raised: None,
            problems: Problems::default(),
        }
    }

    /// Returns the outcome of work that was observed, with its problems. An exception of a handler comes before the error that
    /// it led to.
    pub(crate) fn outcome<T>(self, done: ubtrfs::Result<T>) -> PyResult<(T, Problems)> {
        match (done, self.raised) {
            (Ok(value), None) => Ok((value, self.problems)),
            (_, Some(raised)) => Err(raised),
            (Err(error), None) => Err(failed(&error)),
        }
    }

    /// Runs handlers if that is due. Returns whether one has raised.
    pub(crate) fn look(&mut self) -> bool {
        if self.raised.is_none() && now() - self.looked >= INTERVAL {
            self.raised = Python::attach(|py| py.check_signals()).err();
            self.looked = now();
        }
        self.raised.is_some()
    }
}

impl TransferObserver for Signals {
    fn is_cancelled(&mut self) -> bool {
        self.look()
    }

    fn failed(&mut self, path: &Path, problem: TransferProblem) {
        self.problems.failed(path, problem);
    }
}

impl CheckObserver for Signals {
    fn is_cancelled(&mut self) -> bool {
        self.look()
    }
}
