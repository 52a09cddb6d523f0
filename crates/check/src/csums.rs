//! Data checksums: missing and unexpected ones.
//!
//! The files report their expectations as ranges of addresses. Adjacent ranges are merged at once, so that
//! sequentially written data needs few records; the rest is sorted, on disk if necessary. The checksum tree is then
//! read once and merged with the sorted ranges.

mod data;
mod ranges;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{FileExtentHead, FileExtentRegular, InodeFlags};
use ubtrfs_format::key::{Key, KeyType};

use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::item_reader::ItemReader;
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::{Lost, walk};

pub(crate) use data::DataReader;
use ranges::{Range, without};
pub(crate) use ranges::{RangeSorter, Union};

/// Data of files, by the checksums that it needs.
#[derive(Debug)]
struct DataRanges<T> {
    /// All data.
    data: T,
    /// Written by files with checksums.
    needed: T,
    /// Data of files without checksums.
    forbidden: T,
    /// Preallocated space, which may have checksums. Another file may have written to the extent before it was
    /// shared. A log replay or a power cut may have kept that file's extent but not this one's.
    preallocated: T,
}

/// The checksums expected for the data of files.
#[derive(Debug)]
pub(crate) struct Expectations(DataRanges<RangeSorter>);

impl Expectations {
    pub(crate) fn new(state: &State<'_>) -> Expectations {
        let ranges = || RangeSorter::new(state.sorter());
        Expectations(DataRanges {
            data: ranges(),
            needed: ranges(),
            forbidden: ranges(),
            preallocated: ranges(),
        })
    }

    /// Adds the checksums that an extent needs. `flags` are the inode's, or None if they must be ignored.
    pub(crate) fn add(
        &mut self,
        head: &FileExtentHead,
        body: &FileExtentRegular,
        prealloc: bool,
        flags: Option<InodeFlags>,
    ) -> Result<(), CheckError> {
        let Some(disk) = body.disk() else {
            return Ok(());
        };
        let whole = (disk.0, disk.0.saturating_add(body.disk_num_bytes.get()));
        let start = disk.0.saturating_add(body.offset.get());
        let part = (start, start.saturating_add(body.num_bytes.get()));
        let is_compressed = head.compression != 0;
        let used = if is_compressed { whole } else { part };
        self.0.data.add(whole)?;
        let Some(flags) = flags else { return Ok(()) };
        if prealloc {
            self.0.preallocated.add(part)?;
        } else if flags.contains(InodeFlags::NODATASUM) && !is_compressed {
            self.0.forbidden.add(used)?;
        } else {
            self.0.needed.add(used)?;
        }
        Ok(())
    }

    /// Adds the range of an extent in a log: its checksums may already be in the tree.
    pub(crate) fn add_logged(&mut self, (start, length): (u64, u64)) -> Result<(), CheckError> {
        self.0.data.add((start, start.saturating_add(length)))
    }

    /// Reads the checksum tree and compares it with the expectations.
    pub(crate) fn check(
        self,
        state: &mut State<'_>,
        volume: &CheckedVolume,
        root: &TreeRoot,
    ) -> Result<(), CheckError> {
        // The files that use the data may be lost.
        let files_lost = state.lost_keys.keys().any(|tree| tree.holds_files())
            || state.has_lost(RootId::ROOT_TREE);
        let data_reader = state
            .report
            .data_was_read
            .then(|| DataReader::new(volume, RootId::CSUM_TREE));
        let mut reader = CsumReader {
            ranges: DataRanges {
                data: self.0.data.finish()?,
                needed: self.0.needed.finish()?,
                forbidden: self.0.forbidden.finish()?,
                preallocated: self.0.preallocated.finish()?,
            },
            written: Vec::new(),
            csum_bytes: volume.superblock().csum_type().size_bytes() as u64,
            sectorsize: u64::from(volume.sectorsize()),
            end: 0,
            files_lost,
            data_reader,
            state,
        };
        walk(volume, &[*root], &mut reader)
    }
}

struct CsumReader<'s, 'a> {
    state: &'s mut State<'a>,
    ranges: DataRanges<Union>,
    /// Ranges of the current item that files have written.
    written: Vec<Range>,
    csum_bytes: u64,
    sectorsize: u64,
    /// The end of the checksums read so far.
    end: u64,
    files_lost: bool,
    data_reader: Option<DataReader<'s>>,
}

impl<'a> ItemReader<'a> for CsumReader<'_, 'a> {
    fn state(&mut self) -> &mut State<'a> {
        self.state
    }

    fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        match key.item_type {
            KeyType::EXTENT_CSUM => self.sums(key, bytes),
            _ => Ok(()),
        }
    }

    fn lost(&mut self, lost: Lost) -> Result<(), CheckError> {
        let end = lost.range.1.map_or(u64::MAX, |end| end.offset);
        self.state.lose(lost);
        self.missing_before(self.end)?;
        // The checksums needed there are unknown.
        let mut ignored = 0;
        self.ranges
            .needed
            .take_before(end, &mut |_, _| ignored += 1)?;
        self.state.report.suppressed += ignored;
        Ok(())
    }

    fn end(&mut self) -> Result<(), CheckError> {
        self.missing_before(u64::MAX)
    }
}

impl CsumReader<'_, '_> {
    fn sums(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        self.state.report.figures.csum_bytes += bytes.len() as u64;
        let sectors = bytes.len() as u64 / self.csum_bytes;
        let start = key.offset;
        let end = start.saturating_add(sectors.saturating_mul(self.sectorsize));
        let at = Place::item(RootId::CSUM_TREE, key);
        if start < self.end {
            let before_end = self.end;
            self.state
                .add(at.at(start), Fault::CsumOverlap { before_end });
        }
        let from = start.max(self.end);
        self.end = self.end.max(end);
        if from >= end {
            return Ok(());
        }
        self.missing_before(from)?;
        let written = &mut self.written;
        written.clear();
        let mut take = |start, end| written.push((start, end));
        self.ranges.needed.take_before(end, &mut take)?;
        let state = &mut *self.state;
        let files_lost = self.files_lost;
        let mut covered = from;
        let stray = |state: &mut State<'_>, start: u64, end: u64| {
            let length = end - start;
            let fault = Fault::CsumWithoutExtent { length };
            state.add_unless(files_lost, at.at(start), fault);
        };
        self.ranges.data.take_before(end, &mut |start, end| {
            if end <= from {
                return;
            }
            if start > covered {
                stray(state, covered, start);
            }
            covered = covered.max(end);
        })?;
        if covered < end {
            stray(state, covered, end);
        }
        let mut unexpected = |start: u64, end: u64| {
            let length = end - start;
            state.add(at.at(start), Fault::CsumUnexpected { length });
        };
        self.ranges.forbidden.take_before(end, &mut |start, end| {
            let start = start.max(from);
            if start < end {
                unexpected(start, end);
            }
        })?;
        self.ranges
            .preallocated
            .take_before(end, &mut |start, end| {
                let range = (start.max(from), end);
                without(range, &self.written, &mut unexpected);
            })?;
        if let Some(reader) = &mut self.data_reader {
            self.state.poll()?;
            reader.check(self.state, start, bytes);
        }
        Ok(())
    }

    fn missing_before(&mut self, end: u64) -> Result<(), CheckError> {
        let state = &mut *self.state;
        self.ranges.needed.take_before(end, &mut |start, end| {
            let length = end - start;
            let at = Place::tree(RootId::CSUM_TREE).at(start);
            state.add(at, Fault::CsumMissing { length });
        })
    }
}
