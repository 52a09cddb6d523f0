//! Whether a volume is consistent.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use pyo3::prelude::*;
use ubtrfs::{Checker, Severity};

use crate::failure::failed;

/// Errors, warnings, notes; issues as severity, number and message.
type Report = ((u64, u64, u64), Vec<(&'static str, u16, String)>);

#[pyfunction]
pub(crate) fn check(py: Python<'_>, path: &[u8], read_data: bool) -> PyResult<Report> {
    let path = OsStr::from_bytes(path);
    let checker = Checker::new().read_data(read_data);
    let report = py.detach(|| checker.check(path));
    let report = report.map_err(|error| failed(&error))?;
    let issues = report.issues.into_iter().map(|issue| {
        let severity = match issue.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        (severity, issue.number, issue.message)
    });
    let counts = (report.errors, report.warnings, report.notes);
    Ok((counts, issues.collect()))
}
