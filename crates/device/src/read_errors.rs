//! Read errors: a bounded log with places, and counts.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::ids::{DevId, Logical, Physical};

/// Maximum number of records. Older ones are dropped, but still counted.
const KEPT: usize = 1024;
/// Maximum number of places that are logged as warnings; others are only recorded.
const WARNED: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadErrorKind {
    /// The device returned this error.
    Io(String),
    /// The checksum or the header does not match.
    Content,
    /// Neither this mirror nor the members for its reconstruction could be read.
    Rebuild(String),
}

/// A failed attempt to read a place that should have been valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadErrorRecord {
    pub logical: Logical,
    pub len: u64,
    pub mirror: usize,
    /// Place of the bytes, even if they were reconstructed.
    pub devid: DevId,
    pub physical: Physical,
    pub kind: ReadErrorKind,
}

#[derive(Debug, Default)]
pub(crate) struct ReadErrors {
    records: Mutex<VecDeque<ReadErrorRecord>>,
    /// The places that were logged, because a damaged block may be read many times.
    warned: Mutex<BTreeSet<(u64, u64)>>,
    total: AtomicU64,
    unrecovered: AtomicU64,
}

impl ReadErrors {
    pub(crate) fn add(&self, record: ReadErrorRecord) {
        self.total.fetch_add(1, Ordering::Relaxed);
        let place = self.new_places(&record);
        if place.is_some_and(|places| places <= WARNED) {
            tracing::warn!(
                logical = record.logical.0,
                len = record.len,
                mirror = record.mirror,
                devid = record.devid.0,
                physical = record.physical.0,
                kind = ?record.kind,
                "bad mirror"
            );
        } else if place.is_some() {
            tracing::warn!("more bad mirrors; no further warnings");
        }
        let mut records = self.records.lock();
        if records.len() == KEPT {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// Adds a place. If it is new, returns the number of known places. No place counts as new once `WARNED` + 1 are
    /// known.
    fn new_places(&self, record: &ReadErrorRecord) -> Option<usize> {
        let mut warned = self.warned.lock();
        let is_new = warned.len() <= WARNED && warned.insert((record.devid.0, record.physical.0));
        is_new.then_some(warned.len())
    }

    /// Counts a range without a good mirror.
    pub(crate) fn add_unrecovered(&self) {
        self.unrecovered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn records(&self) -> Vec<ReadErrorRecord> {
        self.records.lock().iter().cloned().collect()
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(crate) fn unrecovered(&self) -> u64 {
        self.unrecovered.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(physical: u64) -> ReadErrorRecord {
        ReadErrorRecord {
            logical: Logical(physical),
            len: 4096,
            mirror: 1,
            devid: DevId(1),
            physical: Physical(physical),
            kind: ReadErrorKind::Content,
        }
    }

    #[test]
    fn place_is_new_once_and_no_more_than_a_bounded_number_are() {
        let errors = ReadErrors::default();
        assert_eq!(errors.new_places(&at(0)), Some(1));
        assert_eq!(errors.new_places(&at(0)), None);
        for number in 1..=WARNED {
            let place = at(4096 * number as u64);
            assert_eq!(errors.new_places(&place), Some(number + 1));
        }
        assert_eq!(errors.new_places(&at(1)), None);
    }

    #[test]
    fn each_error_counts_and_is_recorded() {
        let errors = ReadErrors::default();
        errors.add(at(0));
        errors.add(at(0));
        assert_eq!((errors.total(), errors.records().len()), (2, 2));
    }
}
