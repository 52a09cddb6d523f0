//! A change as a record that is sorted by path.
//!
//! Invariants
//! - DIFFSORT-2: entries are ordered by path, compared name by name; removed entries precede others with the same
//!   path.

use std::cmp::Ordering;
use std::io;

use ubtrfs_spill::{RunReader, SortRecord};

use super::entry::{ChangeKind, DiffEntry};
use super::error::DiffError;

/// Memory overhead of an entry in addition to its bytes and the value itself.
const OVERHEAD_BYTES: usize = 40;

/// A serialized entry. Two entries are equal if path and kind are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    path: Vec<u8>,
    kind: ChangeKind,
    body: Vec<u8>,
}

impl Ord for Record {
    fn cmp(&self, other: &Record) -> Ordering {
        // DIFFSORT-2: a slash sorts below all bytes in names.
        let rank = |byte: &u8| {
            if *byte == b'/' {
                0
            } else {
                u16::from(*byte) + 1
            }
        };
        let paths = self.path.iter().map(rank).cmp(other.path.iter().map(rank));
        paths
            .then(self.kind.cmp(&other.kind))
            .then_with(|| self.body.cmp(&other.body))
    }
}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Record) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Record {
    pub(super) fn new(mut entry: DiffEntry) -> Result<Record, DiffError> {
        let body = serde_json::to_vec(&entry).map_err(|error| DiffError::Spill(error.into()))?;
        Ok(Record {
            path: std::mem::take(&mut entry.path),
            kind: entry.kind,
            body,
        })
    }

    pub(super) fn into_entry(self) -> Result<DiffEntry, DiffError> {
        let entry: Result<DiffEntry, _> = serde_json::from_slice(&self.body);
        let mut entry = entry.map_err(|error| DiffError::Spill(error.into()))?;
        entry.path = self.path;
        Ok(entry)
    }
}

impl SortRecord for Record {
    fn heap_bytes(&self) -> usize {
        self.path.len() + self.body.len() + OVERHEAD_BYTES
    }

    fn write(&self, out: &mut Vec<u8>) {
        for part in [&self.path, &self.body] {
            out.extend_from_slice(&(part.len() as u64).to_le_bytes());
            out.extend_from_slice(part);
        }
        out.push(match self.kind {
            ChangeKind::Removed => 0,
            ChangeKind::Added => 1,
            ChangeKind::Renamed => 2,
            ChangeKind::Changed => 3,
        });
    }

    fn read(from: &mut RunReader) -> io::Result<Record> {
        let mut part = || {
            let len = u64::from_le_bytes(from.array()?);
            from.bytes(len as usize)
        };
        Ok(Record {
            path: part()?,
            body: part()?,
            kind: match from.array()? {
                [0] => ChangeKind::Removed,
                [1] => ChangeKind::Added,
                [2] => ChangeKind::Renamed,
                _ => ChangeKind::Changed,
            },
        })
    }
}
