//! The plan of a file's write-back: the data that it takes, and the changes to the file's extents.
//!
//! Not here: storing the data (`store`), inserting the items (`write_back`, `split_insert`).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::{InodeFlags, InodeItem};

use super::Files;
use super::encode::Encoder;
use super::extent::Extent;
use super::extent_edit::ExtentEdit;
use super::read::Reader;
use super::runs::{Run, runs};
use crate::error::{Error, Result};
use crate::inode::{
    DelallocReservation, DirtyRanges, FileExtentsState, Inode, InodeState, inode_item_cached,
    property,
};

/// The most runs whose items change in one transaction. The limit keeps a freeze from waiting long.
const GROUP_RUNS: usize = 256;

/// One file's data on its way to the devices, with its locked extents and its reservation.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) taken: TakenData<'a>,
    pub(super) extents: &'a mut FileExtentsState,
    pub(super) delalloc: DelallocReservation,
}

// The data of one file that a write-back took.
#[derive(Debug)]
pub(super) struct TakenData<'a> {
    pub(super) inode: &'a Arc<Inode>,
    pub(super) source: Source<'a>,
    /// The inode item when the data was taken.
    item: InodeItem,
    /// The file's size after the write-back.
    size: u64,
}

#[derive(Debug)]
pub(super) enum Source<'a> {
    Buffer(Arc<DirtyRanges>),
    /// Bytes of a single write, which is still waiting for the result: an error is returned to it.
    Own(Arc<DirtyRanges>),
    /// Whole sectors straight from the caller's memory.
    Caller(u64, &'a [u8]),
}

/// The groups of changes that store a file's data.
#[derive(Debug)]
pub(super) struct StoragePlan<'a> {
    pub(super) groups: Vec<RunGroup<'a>>,
    pub(super) encoder: Encoder,
    pub(super) flags: InodeFlags,
    /// The file's size after the write-back.
    pub(super) size: u64,
}

/// The changes of one transaction.
#[derive(Debug)]
pub(super) struct RunGroup<'a> {
    pub(super) runs: Vec<Run<'a>>,
    pub(super) extent_edit: ExtentEdit,
    /// The file's size before and after.
    pub(super) size: Range<u64>,
    /// Whether this is the last group of the job.
    pub(super) ends: bool,
}

impl<'a> Job<'a> {
    /// Takes the buffered data of a file. Returns None if nothing is buffered and the file does not grow.
    pub(super) fn from_buffer(
        files: &Files,
        inode: &'a Arc<Inode>,
        extents: &'a mut FileExtentsState,
        grow_to: Option<u64>,
    ) -> Result<Option<Job<'a>>> {
        let mut state = inode.lock.write();
        Job::from_state(files, inode, &mut state, extents, grow_to)
    }

    /// Takes the buffered data of a file whose lock the caller holds. Returns None if nothing is buffered and
    /// the file does not grow.
    pub(super) fn from_state(
        files: &Files,
        inode: &'a Arc<Inode>,
        state: &mut InodeState,
        extents: &'a mut FileExtentsState,
        grow_to: Option<u64>,
    ) -> Result<Option<Job<'a>>> {
        if !state.buffer.is_dirty() && grow_to.is_none() {
            // Another thread may have discarded the buffered data.
            files.inodes.dirty.remove(inode.id);
            return Ok(None);
        }
        let item = match inode_item_cached(&inode.tree, inode.id) {
            Ok(item) => item,
            Err(Error::NoSuchInode(_)) => {
                drop(state.buffer.forget(0..u64::MAX, files.roots.sectorsize()));
                files.inodes.dirty.remove(inode.id);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let item_size = item.size.get();
        let size = state.buffer.size_over(item_size).max(grow_to.unwrap_or(0));
        let (dirty_ranges, delalloc) = match state.buffer.take() {
            Some(taken) => (taken.dirty_ranges, taken.delalloc),
            None if size > item_size => Default::default(),
            None => return Ok(None),
        };
        let taken = TakenData {
            inode,
            source: Source::Buffer(dirty_ranges),
            item,
            size,
        };
        Ok(Some(Job {
            taken,
            extents,
            delalloc,
        }))
    }

    /// Takes whole sectors of the caller, bypassing the buffer. Returns None if the file ends within a sector
    /// and `offset` is beyond its end. That last sector must be completed then, which only the buffer does.
    pub(super) fn from_caller(
        files: &Files,
        inode: &'a Arc<Inode>,
        extents: &'a mut FileExtentsState,
        offset: u64,
        bytes: &'a [u8],
        delalloc: DelallocReservation,
    ) -> Result<Option<Job<'a>>> {
        let item = inode_item_cached(&inode.tree, inode.id)?;
        let old_size = item.size.get();
        if offset > old_size && !old_size.is_multiple_of(files.roots.sectorsize()) {
            return Ok(None);
        }
        let taken = TakenData {
            inode,
            source: Source::Caller(offset, bytes),
            size: old_size.max(offset + bytes.len() as u64),
            item,
        };
        Ok(Some(Job {
            taken,
            extents,
            delalloc,
        }))
    }

    /// Creates the job for bytes of a single write in sectors that are not dirty. The bytes stay in flight
    /// until the job is done. The file must have nothing in flight, and `item` must be its current item.
    pub(super) fn of_own(
        files: &Files,
        inode: &'a Arc<Inode>,
        state: &mut InodeState,
        extents: &'a mut FileExtentsState,
        (item, dirty_ranges, delalloc): (InodeItem, DirtyRanges, DelallocReservation),
    ) -> Job<'a> {
        let size = item.size.get().max(dirty_ranges.end().unwrap_or(0));
        let is_listed = state.buffer.is_dirty();
        let source = Source::Own(
            state
                .buffer
                .put_in_flight(dirty_ranges, files.roots.sectorsize()),
        );
        if !is_listed {
            // DIRTY-1
            files.inodes.dirty.add(inode);
        }
        let taken = TakenData {
            inode,
            source,
            item,
            size,
        };
        Job {
            taken,
            extents,
            delalloc,
        }
    }
}

impl Source<'_> {
    /// Returns whether the writes of this data have already returned success.
    pub(super) fn is_acknowledged(&self) -> bool {
        match self {
            // A file that only grows has no data.
            Source::Buffer(dirty_ranges) => !dirty_ranges.is_empty(),
            Source::Own(_) | Source::Caller(..) => false,
        }
    }
}

impl TakenData<'_> {
    /// Completes partial sectors, and loads the extents that the data replaces.
    pub(super) fn plan(&self, files: &Files) -> Result<StoragePlan<'_>> {
        let sectorsize = files.roots.sectorsize();
        let flags = self.item.flags();
        let old_size = self.item.size.get();
        let runs = match &self.source {
            Source::Buffer(dirty_ranges) | Source::Own(dirty_ranges) => {
                let dirty_ranges: &DirtyRanges = dirty_ranges;
                let also = self.also_written(files, dirty_ranges)?;
                runs(
                    dirty_ranges,
                    &also,
                    sectorsize,
                    old_size,
                    &mut |offset, buf| {
                        let mut reader = Reader::new(files, &self.inode.tree, self.inode.id, flags);
                        reader.plan(offset, 0..buf.len(), buf)?;
                        reader.run(buf)
                    },
                )?
            }
            Source::Caller(offset, bytes) => vec![Run::new(*offset, Cow::Borrowed(*bytes))],
        };
        let mut groups = Vec::new();
        let mut size = old_size;
        let mut runs = runs.into_iter().peekable();
        loop {
            let members: Vec<Run<'_>> = runs.by_ref().take(GROUP_RUNS).collect();
            let end = members.last().map_or(0, |run| run.range().end);
            let after = match runs.peek() {
                Some(_) => size.max(end.min(self.size)),
                None => self.size,
            };
            let extent_edit = self.load(files, &members, size..after)?;
            groups.push(RunGroup {
                runs: members,
                extent_edit,
                size: size..after,
                ends: runs.peek().is_none(),
            });
            size = after;
            if runs.peek().is_none() {
                break;
            }
        }
        let property = if flags.contains(InodeFlags::COMPRESS) {
            self.compression_property(files)?
        } else {
            None
        };
        Ok(StoragePlan {
            groups,
            encoder: Encoder::new(&files.inodes.settings.compress(), flags, property),
            flags,
            size: self.size,
        })
    }

    /// Returns the ranges that must be written in addition to the dirty ones.
    fn also_written(&self, files: &Files, dirty_ranges: &DirtyRanges) -> Result<Vec<Range<u64>>> {
        let sectorsize = files.roots.sectorsize();
        let old_size = self.item.size.get();
        let mut also = Vec::new();
        // Growing the file turns the rest of its last sector into data, so its stale bytes must be zeroed.
        let tail = old_size - old_size % sectorsize;
        if self.size > old_size && tail < old_size {
            let touched = tail..tail + sectorsize;
            let extents = ExtentEdit::load(self.inode, sectorsize, touched.clone())?;
            let mut hit = extents.overlapping(touched.clone());
            if hit.any(|(_, extent)| extent.has_data()) {
                also.push(touched);
            }
        }
        // EXTENT-EDIT-2: inline data is replaced as a whole. It is rarely longer than a sector.
        let touches_first = dirty_ranges.overlapping(0..sectorsize).next().is_some();
        if touches_first || also.iter().any(|range| range.start == 0) {
            let extents = ExtentEdit::load(self.inode, sectorsize, 0..sectorsize)?;
            let inline = extents.overlapping(0..sectorsize).next();
            if let Some((range, Extent::Inline(_))) = inline {
                also.push(range);
            }
        }
        Ok(also)
    }

    pub(super) fn load(
        &self,
        files: &Files,
        runs: &[Run<'_>],
        size: Range<u64>,
    ) -> Result<ExtentEdit> {
        self.load_ranges(files, runs.iter().map(Run::range).collect(), size)
    }

    /// Loads the extents that change when data is inserted in `ranges` and the size changes.
    pub(super) fn load_ranges(
        &self,
        files: &Files,
        mut ranges: Vec<Range<u64>>,
        size: Range<u64>,
    ) -> Result<ExtentEdit> {
        let sectorsize = files.roots.sectorsize();
        if size.start < size.end && !files.roots.has_no_holes() {
            ranges.push(size.start..size.end.next_multiple_of(sectorsize));
            ranges.sort_unstable_by_key(|range| range.start);
        }
        ExtentEdit::load_all(self.inode, sectorsize, ranges)
    }

    fn compression_property(&self, files: &Files) -> Result<Option<Compression>> {
        let value = files.inodes.xattr(self.inode.id, property::COMPRESSION)?;
        Ok(property::CompressionProperty::algorithm(value.as_deref()))
    }
}
