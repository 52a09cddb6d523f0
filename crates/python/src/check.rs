//! Consistency checks of volumes.

use pyo3::prelude::*;
use ubtrfs::{Checker, Severity};

use crate::options::{Named, paths_of, with_named};
use crate::signals::Signals;

/// Numbers of errors, warnings and notes; issues as severity, number and message.
type Report = ((u64, u64, u64), Vec<(&'static str, u16, String)>);

#[pyfunction]
pub(crate) fn check(
    py: Python<'_>,
    paths: Vec<Vec<u8>>,
    scan: Vec<Vec<u8>>,
    volume: Option<String>,
    options: Named,
    progress: Option<Py<PyAny>>,
) -> PyResult<Report> {
    let mut checker = with_named(Checker::new(), options, Checker::set)?.scan(paths_of(&scan));
    if let Some(volume) = volume {
        checker = checker.volume(volume);
    }
    let mut signals = Signals::new(progress);
    let report = py.detach(|| checker.open(&paths_of(&paths))?.run(&mut signals));
    let (report, _) = signals.outcome(report)?;
    let issues = report.issues.into_iter().map(|issue| {
        let severity = match issue.severity() {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        (severity, issue.fault.number(), issue.to_string())
    });
    let counts = (report.errors, report.warnings, report.notes);
    Ok((counts, issues.collect()))
}
