//! The allocation of space for data, in ascending order, and its writing.
//!
//! When the devices are full, nothing more is written, but space is still allocated, in order to compute the total
//! space needed.
//!
//! Not here: the file of the data (`filler`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::io::Errno;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::Logical;

use super::csum_log::CsumLog;
use super::encode::{Piece, Shared};
use super::scratch::Scratch;
use super::stripe_writer::StripeWriter;
use crate::chunk_growth::Spare;
use crate::chunks::{Place, VolumeChunks};
use crate::error::MkfsError;
use crate::options::Geometry;
use crate::place::Cursor;
use crate::targets::Targets;

/// Data that is contiguous on disk and in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedExtent {
    /// The index of the chunk. No extent crosses the end of a chunk.
    pub(super) chunk: usize,
    pub(super) file_offset: u64,
    pub(super) file_bytes: u64,
    pub(super) logical: Logical,
    pub(super) disk_bytes: u64,
    pub(super) compression: Compression,
}

/// Whether data is shared (reflinked) between the source files and the image.
#[derive(Debug)]
pub(super) enum Sharing {
    NotWanted,
    On {
        shared_bytes: u64,
    },
    /// The file systems do not support it.
    Refused(io::Error),
}

#[derive(Debug)]
pub(super) struct DataSpace<'a> {
    geometry: &'a Geometry,
    spare: Spare,
    scratch: &'a Scratch,
    /// The layout without data.
    start: VolumeChunks,
    layout: VolumeChunks,
    cursor: Cursor,
    /// The used ranges of each chunk.
    used: Vec<Vec<Range<u64>>>,
    writer: StripeWriter<'a>,
    csums: CsumLog,
    pub(super) sharing: Sharing,
    is_over: bool,
    may_grow: bool,
}

/// The result after all data is placed.
#[derive(Debug)]
pub(super) struct PlacedData {
    pub(super) used: Vec<Vec<Range<u64>>>,
    pub(super) csums: CsumLog,
    pub(super) end: Place,
}

impl<'a> DataSpace<'a> {
    /// Creates the space for data. `start` has no data chunk yet.
    pub(super) fn new(
        geometry: &'a Geometry,
        spare: Spare,
        start: VolumeChunks,
        targets: &'a Targets<'a>,
        may_grow: bool,
        scratch: &'a Scratch,
    ) -> DataSpace<'a> {
        DataSpace {
            geometry,
            spare,
            cursor: Cursor::new(geometry.data_types(), Place::default()),
            used: vec![Vec::new(); start.chunks.len()],
            scratch,
            layout: start.clone(),
            start,
            writer: StripeWriter::new(targets),
            csums: CsumLog::new(geometry, scratch),
            sharing: Sharing::NotWanted,
            is_over: false,
            may_grow,
        }
    }

    /// Returns whether the devices are full.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Writes a piece and passes its extents to `each`, in the order of the file.
    pub(super) fn place(
        &mut self,
        piece: &Piece,
        each: &mut dyn FnMut(PlacedExtent) -> Result<(), MkfsError>,
    ) -> Result<(), MkfsError> {
        let is_plain = piece.compression == Compression::None;
        let mut done = 0;
        while done < piece.disk_bytes {
            let left = piece.disk_bytes - done;
            // A compressed extent cannot be split.
            let least = if is_plain {
                u64::from(self.geometry.sectorsize)
            } else {
                left
            };
            let (place, len) = self.allocate(least, left)?;
            let logical = self.layout.logical(place);
            self.write(piece, done, place, len)?;
            if let Some(sums) = &piece.sums {
                let first = self.csums.sum_bytes(done);
                let sums = &sums[first..first + self.csums.sum_bytes(len)];
                let pushed = self.csums.push(logical, sums);
                pushed.map_err(MkfsError::Scratch)?;
            }
            each(PlacedExtent {
                chunk: place.chunk,
                file_offset: piece.offset + if is_plain { done } else { 0 },
                file_bytes: if is_plain { len } else { piece.file_bytes },
                logical,
                disk_bytes: len,
                compression: piece.compression,
            })?;
            done += len;
        }
        Ok(())
    }

    fn allocate(&mut self, least: u64, most: u64) -> Result<(Place, u64), MkfsError> {
        loop {
            if let Some((place, len)) = self.cursor.take(&self.layout, least, most) {
                let start = self.layout.logical(place).0;
                let used = &mut self.used[place.chunk];
                match used.last_mut() {
                    Some(last) if last.end == start => last.end += len,
                    _ => used.push(start..start + len),
                }
                return Ok((place, len));
            }
            match self.layout.add_data(self.geometry, self.spare) {
                // The devices are full: from here on, only count the space.
                Err(MkfsError::NoRoomForChunk { .. }) if !self.is_over => {
                    self.is_over = true;
                    self.writer.discard();
                    self.layout.lift_limits();
                }
                added => added?,
            }
            self.used.resize(self.layout.chunks.len(), Vec::new());
            if self.may_grow {
                self.lengthen(&self.layout)?;
            }
        }
    }

    /// Grows the devices to the size that a layout needs.
    fn lengthen(&self, layout: &VolumeChunks) -> Result<(), MkfsError> {
        let targets = self.writer.targets();
        targets.lengthen(|devid| layout.device(devid).next)
    }

    fn write(&mut self, piece: &Piece, from: u64, place: Place, len: u64) -> Result<(), MkfsError> {
        if self.is_over || piece.data.is_empty() {
            return Ok(());
        }
        let shared = match &piece.shared {
            Some(shared) => self.share(shared, from, place, len),
            None => 0,
        };
        let data = &piece.data[(from + shared) as usize..(from + len) as usize];
        if data.is_empty() {
            return Ok(());
        }
        let place = Place {
            offset: place.offset + shared,
            ..place
        };
        self.writer.put(&self.layout, place, data)
    }

    /// Shares as much as possible of `len` bytes and returns the number of shared bytes.
    fn share(&mut self, source: &Shared, from: u64, place: Place, len: u64) -> u64 {
        let len = len.min(source.len.saturating_sub(from));
        let Sharing::On { shared_bytes } = &mut self.sharing else {
            return 0;
        };
        if len == 0 {
            return 0;
        }
        let chunk = &self.layout.chunks[place.chunk].map;
        let targets = self.writer.targets();
        let (file, offset): (&File, u64) = (&source.file, source.offset + from);
        match targets.share(chunk, place.offset, len, file.as_fd(), offset) {
            Ok(()) => {
                *shared_bytes += len;
                len
            }
            Err(error) => {
                // Other errors concern only these bytes, for example if the file is too short.
                let is_final = [Errno::XDEV, Errno::OPNOTSUPP, Errno::NOTTY, Errno::NOSYS]
                    .iter()
                    .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
                if *shared_bytes == 0 && (is_final || error.kind() == io::ErrorKind::Unsupported) {
                    self.sharing = Sharing::Refused(error);
                }
                0
            }
        }
    }

    /// Reads back placed data.
    pub(super) fn read(&mut self, logical: Logical, buf: &mut [u8]) -> Result<(), MkfsError> {
        self.writer.flush(&self.layout)?;
        let chunk = &self.layout.chunks[self.layout.chunk_at(logical)].map;
        let offset = logical.0 - chunk.logical().0;
        self.writer.targets().read(chunk, offset, buf)
    }

    /// Discards all data, for a new start.
    pub(super) fn restart(&mut self) {
        self.writer.discard();
        self.layout = self.start.clone();
        self.cursor = Cursor::new(self.geometry.data_types(), Place::default());
        self.used = vec![Vec::new(); self.layout.chunks.len()];
        self.csums = CsumLog::new(self.geometry, self.scratch);
    }

    /// Ends the data. Tree blocks may be written to the returned layout.
    pub(super) fn finish(
        mut self,
    ) -> Result<(VolumeChunks, PlacedData, StripeWriter<'a>), MkfsError> {
        if self.layout.chunks.len() == self.start.chunks.len() && self.spare == Spare::Usual {
            self.layout.add_data(self.geometry, self.spare)?;
            self.used.resize(self.layout.chunks.len(), Vec::new());
        }
        self.writer.flush(&self.layout)?;
        self.csums.close().map_err(MkfsError::Scratch)?;
        let data = PlacedData {
            used: self.used,
            csums: self.csums,
            end: self.cursor.next(),
        };
        Ok((self.layout, data, self.writer))
    }
}
