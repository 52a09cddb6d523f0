//! A change as a record that is sorted by path.
//!
//! Invariants
//! - DIFFSORT-2: entries are ordered by path, compared name by name; removed entries precede others with the same
//!   path.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ubtrfs_spill::{Position, RunReader, SortRecord};

use super::change::{Change, ChangeKind};
use super::error::DiffError;

/// A change. Path and serialized change are its tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    kind: ChangeKind,
    path_bytes: u32,
}

impl Record {
    /// Returns the record of a change with its tail.
    pub(super) fn new(change: &Change) -> Result<(Record, Vec<u8>), DiffError> {
        let mut tail = change.path.as_os_str().as_bytes().to_vec();
        let record = Record {
            kind: change.kind,
            path_bytes: tail.len() as u32,
        };
        serde_json::to_writer(&mut tail, change).map_err(|error| DiffError::Spill(error.into()))?;
        Ok((record, tail))
    }

    pub(super) fn change(self, tail: &[u8]) -> Result<Change, DiffError> {
        let (path, body) = self.parts(tail);
        let change: Result<Change, _> = serde_json::from_slice(body);
        let mut change = change.map_err(|error| DiffError::Spill(error.into()))?;
        change.path = PathBuf::from(OsStr::from_bytes(path));
        Ok(change)
    }

    fn parts(self, tail: &[u8]) -> (&[u8], &[u8]) {
        tail.split_at(self.path_bytes as usize)
    }
}

impl SortRecord for Record {
    type Tail = Position;

    fn compare<'t>(
        &self,
        other: &Record,
        tails: impl FnOnce() -> (&'t [u8], &'t [u8]),
    ) -> Ordering {
        // DIFFSORT-2: a slash sorts below all bytes in names.
        let rank = |byte: &u8| {
            if *byte == b'/' {
                0
            } else {
                u16::from(*byte) + 1
            }
        };
        let (tail, other_tail) = tails();
        let ((path, body), (other_path, other_body)) = (self.parts(tail), other.parts(other_tail));
        let paths = path.iter().map(rank).cmp(other_path.iter().map(rank));
        paths
            .then(self.kind.cmp(&other.kind))
            .then_with(|| body.cmp(other_body))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        out.extend_from_slice(&self.path_bytes.to_le_bytes());
    }

    fn read(from: &mut RunReader) -> io::Result<Record> {
        Ok(Record {
            kind: match from.array()? {
                [0] => ChangeKind::Removed,
                [1] => ChangeKind::Added,
                [2] => ChangeKind::Renamed,
                _ => ChangeKind::Changed,
            },
            path_bytes: u32::from_le_bytes(from.array()?),
        })
    }
}
