//! Checksums of logged data: they are in the subvolume's log, after all inodes, or in the committed tree.
//!
//! An extent written after the last commit has its checksums in the log. If data is shared with older extents, the
//! checksums may be in the committed tree.

use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::{FileExtentHead, FileExtentRegular};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;

use crate::csums::{DataReader, RangeSorter, Union};
use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::state::State;
use crate::volume::CheckedVolume;

/// The checksums of all logs.
pub(super) struct LogCsums<'v> {
    committed: Option<Committed>,
    data_reader: Option<DataReader<'v>>,
    csum_bytes: u64,
    sectorsize: u64,
    /// Generation of the last commit.
    generation: u64,
}

/// The checksums that the current log needs.
pub(super) struct NeededCsums {
    data: LoggedData,
    /// The end of the checksums read so far.
    end: u64,
}

/// Data that needs checksums.
enum LoggedData {
    /// Part of the log is lost, so that no check is possible.
    Unknown,
    Needing(RangeSorter),
    Comparing(Union),
}

impl NeededCsums {
    pub(super) fn new(state: &State<'_>) -> NeededCsums {
        NeededCsums {
            data: LoggedData::Needing(RangeSorter::new(state.sorter())),
            end: 0,
        }
    }

    pub(super) fn lose(&mut self) {
        self.data = LoggedData::Unknown;
    }
}

impl<'v> LogCsums<'v> {
    pub(super) fn new(
        state: &State<'_>,
        volume: &'v CheckedVolume,
        committed: Option<View>,
    ) -> LogCsums<'v> {
        let superblock = volume.superblock();
        let csum_bytes = superblock.csum_type().size_bytes() as u64;
        let sectorsize = u64::from(volume.sectorsize());
        let reads = state.report.data_was_read;
        LogCsums {
            committed: committed.map(|view| Committed {
                view,
                csum_bytes,
                sectorsize,
            }),
            data_reader: reads.then(|| DataReader::new(volume, RootId::TREE_LOG)),
            csum_bytes,
            sectorsize,
            generation: superblock.generation.get(),
        }
    }

    /// Adds the checksums that a data extent needs.
    pub(super) fn add_data(
        &self,
        of_log: &mut NeededCsums,
        (head, body): (&FileExtentHead, &FileExtentRegular),
        is_unsummed: bool,
    ) -> Result<(), CheckError> {
        let is_compressed = head.compression != 0;
        let (Some(disk), LoggedData::Needing(needed)) = (body.disk(), &mut of_log.data) else {
            return Ok(());
        };
        let is_older = head.generation.get() <= self.generation;
        if is_unsummed && !is_compressed || is_older {
            return Ok(());
        }
        let (start, length) = if is_compressed {
            (disk.0, body.disk_num_bytes.get())
        } else {
            let start = disk.0.saturating_add(body.offset.get());
            (start, body.num_bytes.get())
        };
        needed.add((start, start.saturating_add(length)))
    }

    /// Compares an EXTENT_CSUM item; items must be ascending.
    pub(super) fn item(
        &mut self,
        state: &mut State<'_>,
        of_log: &mut NeededCsums,
        (key, bytes): (Key, &[u8]),
    ) -> Result<(), CheckError> {
        let sectors = bytes.len() as u64 / self.csum_bytes;
        let start = key.offset;
        let end = start.saturating_add(sectors.saturating_mul(self.sectorsize));
        if start < of_log.end {
            let at = Place::item(RootId::TREE_LOG, key);
            let before_end = of_log.end;
            state.add(at, Fault::CsumOverlap { before_end });
        }
        of_log.end = of_log.end.max(end);
        let Some(needed) = self.missing_before(state, of_log, start)? else {
            return Ok(());
        };
        let (reader, csum_bytes, sectorsize) =
            (&mut self.data_reader, self.csum_bytes, self.sectorsize);
        needed.take_before(end, &mut |from, to| {
            let sums = |at: u64| (at.saturating_sub(start) / sectorsize * csum_bytes) as usize;
            if let Some(reader) = reader
                && let Some(sums) = bytes.get(sums(from)..sums(to))
            {
                reader.check(state, from, sums);
            }
        })
    }

    pub(super) fn finish(
        &mut self,
        state: &mut State<'_>,
        of_log: &mut NeededCsums,
    ) -> Result<(), CheckError> {
        self.missing_before(state, of_log, u64::MAX).map(drop)
    }

    /// Reports data below `end` without checksums, and returns the rest.
    fn missing_before<'l>(
        &self,
        state: &mut State<'_>,
        of_log: &'l mut NeededCsums,
        end: u64,
    ) -> Result<Option<&'l mut Union>, CheckError> {
        if let LoggedData::Needing(_) = of_log.data
            && let LoggedData::Needing(needed) =
                std::mem::replace(&mut of_log.data, LoggedData::Unknown)
        {
            of_log.data = LoggedData::Comparing(needed.finish()?);
        }
        let LoggedData::Comparing(needed) = &mut of_log.data else {
            return Ok(None);
        };
        needed.take_before(end, &mut |start, end| {
            let committed = self.committed.as_ref();
            if let Some(length) = committed.and_then(|csums| csums.lack(start, end)) {
                let at = Place::tree(RootId::TREE_LOG).at(start);
                state.add(at, Fault::LogCsumMissing { length });
            }
        })?;
        Ok(Some(needed))
    }
}

/// The committed checksums.
struct Committed {
    view: View,
    csum_bytes: u64,
    sectorsize: u64,
}

impl Committed {
    /// Returns how much of a range lacks checksums in the committed tree, if any. Unreadable blocks are reported
    /// elsewhere.
    fn lack(&self, start: u64, end: u64) -> Option<u64> {
        let mut cursor = self.view.cursor();
        let from = Key::new(objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM, start);
        let mut found = match cursor.seek_floor(&from) {
            Ok(true) => true,
            Ok(false) => cursor.seek(&from).ok()?,
            Err(_) => return None,
        };
        let (mut at, mut length) = (start, 0);
        while found && at < end {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if key.offset >= end || key.item_type != KeyType::EXTENT_CSUM {
                break;
            }
            let sectors = bytes.len() as u64 / self.csum_bytes;
            let item_end = key.offset.saturating_add(sectors * self.sectorsize);
            length += key.offset.saturating_sub(at);
            at = at.max(item_end);
            found = cursor.advance().ok()?;
        }
        length += end.saturating_sub(at);
        (length > 0).then_some(length)
    }
}
