//! The result of a check: issues up to a limit, counts of all, and the figures of the volume.

use std::collections::BTreeMap;

use ubtrfs_format::uuid::Uuid;

use crate::fault::{Fault, Severity};
use crate::issue::{Issue, Place};

/// Sums over a volume, with the meaning that btrfs-progs gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Bytes in use: data and tree blocks, one copy of each.
    pub bytes_used: u64,
    /// Checksums of data.
    pub csum_bytes: u64,
    /// All tree blocks.
    pub tree_bytes: u64,
    /// The tree blocks of subvolumes.
    pub fs_tree_bytes: u64,
    /// The blocks of the extent tree.
    pub extent_tree_bytes: u64,
    /// Room in tree blocks that no item has.
    pub waste_bytes: u64,
    /// Data on the devices, one copy of each extent.
    pub data_bytes_allocated: u64,
    /// Data of files, shared extents counted for each.
    pub data_bytes_referenced: u64,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub fsid: Uuid,
    /// The first ones, in the order in which they were found.
    pub issues: Vec<Issue>,
    /// How often each number was found, those beyond the limit included.
    pub counts: BTreeMap<u16, u64>,
    pub errors: u64,
    pub warnings: u64,
    /// The number of notes, which sound operation leaves.
    pub notes: u64,
    /// Findings that may only follow from blocks that could not be read, and are not listed.
    pub suppressed: u64,
    /// The volume has a log that the next mount replays. Its blocks and checksums were checked, not its names.
    pub has_log: bool,
    /// The volume has quota groups, whose sums are not judged.
    pub has_quotas: bool,
    /// All data was read and compared with its checksums.
    pub data_was_read: bool,
    /// The volume was restored from a metadata dump, which has no data.
    pub is_dump: bool,
    pub figures: Figures,
}

impl Report {
    /// Returns whether nothing is wrong. Warnings and notes do not count.
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }

    /// Returns whether there was nothing to say at all.
    pub fn is_spotless(&self) -> bool {
        self.found() == 0
    }

    /// Returns the distinct numbers found, ascending.
    pub fn numbers(&self) -> Vec<u16> {
        self.counts.keys().copied().collect()
    }

    /// Returns how many issues were found that are not in `issues`.
    pub fn unlisted(&self) -> u64 {
        self.found().saturating_sub(self.issues.len() as u64)
    }

    /// Returns how many issues of any severity were found.
    pub fn found(&self) -> u64 {
        self.errors + self.warnings + self.notes
    }

    /// Adds an error if findings were suppressed and no error explains them: such a volume is not sound.
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
    /// Writes one issue a line.
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
