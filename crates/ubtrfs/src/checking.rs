//! Whether a volume is consistent: an independent second opinion.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_check::CheckOptions;
use ubtrfs_device::BlockDevice;

use crate::error::{Naming, Result};

/// How bad an issue of a check is.
///
/// ```
/// use ubtrfs::Severity;
///
/// assert!(Severity::Note < Severity::Warning && Severity::Warning < Severity::Error);
/// ```
pub use ubtrfs_check::Severity;

/// Checks a volume that is not being written to, as `ubtrfs check` does. It only reads, and shares no code with what writes
/// volumes. Memory does not grow with the volume.
///
/// ```
/// use ubtrfs::{Checker, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// # let path = folder.path().join("volume.img");
/// let volume = Volume::create(&path, 1 << 30)?;
/// volume.root().write("/file", b"content")?;
/// volume.close()?;
/// let report = Checker::new().read_data(true).check(&path)?;
/// assert!(report.is_clean(), "{:?}", report.issues);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Checker {
    options: CheckOptions,
}

/// The findings of a check. [`Checker`] has an example.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// The first ones that were found.
    pub issues: Vec<CheckIssue>,
    /// How many errors there are, those included that are not listed.
    pub errors: u64,
    /// How many warnings there are.
    pub warnings: u64,
    /// How many notes there are: of what sound operation leaves, such as a power cut.
    pub notes: u64,
}

impl CheckReport {
    /// Tells whether there is no error. Warnings and notes are none.
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }
}

/// Something that is wrong with a volume. [`Checker`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckIssue {
    /// How bad it is.
    pub severity: Severity,
    /// The number, which stays from release to release. `docs/check.md` lists them.
    pub number: u16,
    /// A description of the fault and its place, for people.
    pub message: String,
}

impl Checker {
    /// A check of the trees, with 256 MiB of memory.
    pub fn new() -> Checker {
        Checker::default()
    }

    /// Also reads all data of every mirror, and compares it with its checksums.
    #[must_use]
    pub fn read_data(mut self, read_data: bool) -> Checker {
        self.options.data_csums = read_data;
        self
    }

    /// Sets the budget of buffers and caches.
    #[must_use]
    pub fn memory_bytes(mut self, memory_bytes: u64) -> Checker {
        self.options.memory_bytes = memory_bytes;
        self
    }

    /// Sets how many issues are listed; 1000 by default.
    #[must_use]
    pub fn max_issues(mut self, max_issues: usize) -> Checker {
        self.options.max_issues = max_issues;
        self
    }

    /// Where the volume's other devices are looked for, as [`Builder::scan`](crate::Builder::scan).
    #[must_use]
    pub fn scan(mut self, places: impl IntoIterator<Item = impl Into<PathBuf>>) -> Checker {
        self.options.scan = places.into_iter().map(Into::into).collect();
        self
    }

    /// Checks the volume that has `path` among its devices.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or holds no btrfs. What is wrong with a volume is no error, but an issue.
    pub fn check(&self, path: impl AsRef<Path>) -> Result<CheckReport> {
        let path = path.as_ref();
        let report = ubtrfs_check::check(&[path.to_owned()], &self.options, &mut |_| {});
        report.map(|report| plain(&report)).naming("check", path)
    }

    /// Checks the volume on devices of the caller's own; the paths are names for messages.
    ///
    /// # Errors
    ///
    /// As [`Checker::check`].
    pub fn check_devices(
        &self,
        devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
    ) -> Result<CheckReport> {
        let shown = devices.first().map(|(path, _)| path.clone());
        let report = ubtrfs_check::check_devices(devices, &self.options, &mut |_| {});
        report
            .map(|report| plain(&report))
            .naming("check", &shown.unwrap_or_default())
    }
}

fn plain(report: &ubtrfs_check::Report) -> CheckReport {
    let issues = report.issues.iter().map(|issue| CheckIssue {
        severity: issue.severity(),
        number: issue.fault.number(),
        message: issue.to_string(),
    });
    CheckReport {
        issues: issues.collect(),
        errors: report.errors,
        warnings: report.warnings,
        notes: report.notes,
    }
}
