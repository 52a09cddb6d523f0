//! Consistency checks of volumes.

use pyo3::prelude::*;
use ubtrfs::{Checker, Severity};

use crate::options::paths_of;
use crate::signals::Signals;

/// Numbers of errors, warnings and notes; issues as severity, number and message.
type Report = ((u64, u64, u64), Vec<(&'static str, u16, String)>);

#[pyfunction]
pub(crate) fn check(
    py: Python<'_>,
    paths: Vec<Vec<u8>>,
    scan: Vec<Vec<u8>>,
    read_data: bool,
    memory_bytes: Option<u64>,
    max_issues: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Report> {
    let mut checker = Checker::new()
        .read_data(read_data)
        .scan(paths_of(&scan))
        .max_issues(max_issues);
    if let Some(bytes) = memory_bytes {
        checker = checker.memory_bytes(bytes);
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
