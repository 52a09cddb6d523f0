//! The result of a check: a limited number of issues, counts of all, and the figures of the volume.

use std::collections::BTreeMap;

use ubtrfs_format::uuid::Uuid;

use crate::fault::{Fault, Severity};
use crate::issue::{Issue, Place};

/// Totals of a volume, as defined by btrfs-progs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Bytes in use by data and tree blocks, one copy of each.
    pub bytes_used: u64,
    /// Bytes of data checksums.
    pub csum_bytes: u64,
    /// Bytes of all tree blocks.
    pub tree_bytes: u64,
    /// Bytes of the subvolumes' tree blocks.
    pub fs_tree_bytes: u64,
    /// Bytes of the extent tree's blocks.
    pub extent_tree_bytes: u64,
    /// Unused bytes in tree blocks.
    pub waste_bytes: u64,
    /// Bytes of data extents on disk, one copy of each.
    pub data_bytes_allocated: u64,
    /// Bytes of data in files; shared extents count for each user.
    pub data_bytes_referenced: u64,
}

/// Data of the system of a NAS maker that mainline does not have. Its contents are not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MakerMark {
    /// The maker's system.
    pub maker: &'static str,
    /// A short name, for programs.
    pub name: &'static str,
    /// The place and the meaning.
    pub description: String,
    /// How many items have the mark. A field of the superblock and a tree count as one.
    pub count: u64,
    /// Whether it is a tree that derives from other trees, and is not compared with them.
    pub is_tree: bool,
}

/// The findings of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The UUID of the volume.
    pub uuid: Uuid,
    /// The first issues, in the order of detection.
    pub issues: Vec<Issue>,
    /// The number of occurrences of each kind of issue, including unlisted ones.
    pub counts: BTreeMap<u16, u64>,
    /// The number of errors, including unlisted ones.
    pub errors: u64,
    /// The number of warnings.
    pub warnings: u64,
    /// The number of notes: harmless leftovers of normal operation, such as of a power cut.
    pub notes: u64,
    /// The number of issues that may only follow from unreadable blocks. They are neither listed nor counted.
    pub suppressed: u64,
    /// Whether the volume has a log that the next mount replays. Its blocks and checksums were checked, but not its
    /// names.
    pub has_log: bool,
    /// Whether the volume has quota groups, whose sums are not checked.
    pub has_quotas: bool,
    /// The marks of the system of a NAS maker. They are not issues.
    pub marks: Vec<MakerMark>,
    /// Whether all data was read and verified against its checksums.
    pub data_was_read: bool,
    /// Whether the volume was restored from a metadata dump, which has no data.
    pub is_dump: bool,
    /// Sums over the volume.
    pub figures: Figures,
}

impl Report {
    /// Returns whether there is no error. Warnings and notes do not count as errors.
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }

    /// Returns whether there are no findings at all.
    pub fn is_spotless(&self) -> bool {
        self.found() == 0
    }

    /// Returns the distinct numbers found, ascending.
    pub fn numbers(&self) -> Vec<u16> {
        self.counts.keys().copied().collect()
    }

    /// Returns the number of unlisted issues.
    pub fn unlisted(&self) -> u64 {
        self.found().saturating_sub(self.issues.len() as u64)
    }

    /// Returns how many issues of any severity were found.
    pub fn found(&self) -> u64 {
        self.errors + self.warnings + self.notes
    }

    /// Adds an error if findings were suppressed and no error explains them: such a volume is not consistent.
    pub(crate) fn finish(&mut self, limit: usize) {
        if self.suppressed > 0 && self.errors == 0 {
            let suppressed = self.suppressed;
            let fault = Fault::SuppressedUnexplained { suppressed };
            self.add(Place::default(), fault, limit);
        }
    }

    pub(crate) fn add(&mut self, at: Place, fault: Fault, limit: usize) {
        *self.counts.entry(fault.number()).or_default() += 1;
        match fault.severity() {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
            Severity::Note => self.notes += 1,
        }
        if self.issues.len() < limit {
            self.issues.push(Issue { at, fault });
        }
    }
}

impl std::fmt::Display for Report {
    /// Writes one issue per line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for issue in &self.issues {
            writeln!(f, "{issue}")?;
        }
        match self.unlisted() {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_findings_without_an_error_are_an_error() {
        let mut report = Report {
            suppressed: 8,
            ..Report::default()
        };
        let warning = Fault::OrphanWithoutRoot {};
        report.add(Place::default(), warning, 10);
        assert!(report.is_clean());
        report.finish(10);
        assert!(!report.is_clean());
        assert_eq!(report.numbers(), [310, 608]);
    }

    #[test]
    fn suppressed_findings_beside_an_error_add_nothing() {
        let mut report = Report::default();
        report.finish(10);
        assert!(report.is_spotless());
        report.suppressed = 8;
        report.add(Place::default(), Fault::TreeMissing {}, 10);
        report.finish(10);
        assert_eq!(report.numbers(), [304]);
    }
}
