//! Errors met while reading: a bounded log with places, and counts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::ids::{DevId, Logical, Physical};

/// Records kept; older ones are dropped, counts are not.
const KEPT: usize = 1024;
/// Warnings given before only the records tell more.
const WARNED: u64 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadErrorKind {
    /// The device refused, with this message.
    Io(String),
    /// The content does not check: its sum, or what its header says.
    Content,
    /// Neither this mirror nor what it would be rebuilt from could be read.
    Rebuild(String),
}

/// A failed try to read a place that should have been good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadErrorRecord {
    pub logical: Logical,
    pub len: u64,
    pub mirror: usize,
    /// Where the bytes lie, or would if they had not been rebuilt.
    pub devid: DevId,
    pub physical: Physical,
    pub kind: ReadErrorKind,
}

#[derive(Debug, Default)]
pub(crate) struct ReadErrors {
    records: Mutex<VecDeque<ReadErrorRecord>>,
    total: AtomicU64,
    unrecovered: AtomicU64,
}

impl ReadErrors {
    pub(crate) fn add(&self, record: ReadErrorRecord) {
        let before = self.total.fetch_add(1, Ordering::Relaxed);
        if before < WARNED {
            tracing::warn!(
                logical = record.logical.0,
                len = record.len,
                mirror = record.mirror,
                devid = record.devid.0,
                physical = record.physical.0,
                kind = ?record.kind,
                "bad mirror"
            );
        } else if before == WARNED {
            tracing::warn!("more bad mirrors; no further warnings");
        }
        let mut records = self.records.lock();
        if records.len() == KEPT {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// Counts a range of which no mirror was good.
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
