//! Data of files in an archive, read in order, with the holes of sparse files.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ubtrfs_format::compress::Compression;

use ubtrfs_spill::Log;

use crate::archive::ArchiveError;
use crate::archive::Part as SparsePart;
use crate::archive::TarStream;
use crate::error::MkfsError;
use crate::fill::data_space::PlacedExtent;
use crate::fill::encode::{BLOCK_BYTES, Encoder, FileData, Part};
use crate::fill::error::FillError;
use crate::fill::source::Deferred;

/// Reads the next bytes of a member's data.
pub(super) type ReadNext<'a> = dyn FnMut(&mut [u8]) -> Result<(), FillError> + 'a;

/// The remaining data of a file.
#[derive(Debug)]
pub(super) struct MemberData {
    size: u64,
    parts: Vec<SparsePart>,
    /// The current part, and the number of bytes read from it.
    next: usize,
    within: u64,
}

impl MemberData {
    pub(super) fn new(size: u64, parts: Option<Vec<SparsePart>>) -> MemberData {
        MemberData {
            size,
            parts: parts.unwrap_or_else(|| vec![(0, size)]),
            next: 0,
            within: 0,
        }
    }

    pub(super) fn encode(
        &mut self,
        read: &mut ReadNext<'_>,
        encoder: &mut Encoder<'_>,
        emit: &mut dyn FnMut(Part) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        let size = self.size;
        encoder.file(size, &mut Reading { data: self, read }, emit)
    }
}

struct Reading<'a, 'r> {
    data: &'a mut MemberData,
    read: &'a mut ReadNext<'r>,
}

impl FileData for Reading<'_, '_> {
    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>, FillError> {
        let parts = &self.data.parts[self.data.next..];
        let next = parts.iter().find(|(at, len)| at + len > from);
        Ok(next.map(|&(at, len)| at.max(from)..at + len))
    }

    fn fill(&mut self, buf: &mut [u8], at: u64) -> Result<(), FillError> {
        let end = at + buf.len() as u64;
        buf.fill(0);
        while let Some(&(start, len)) = self.data.parts.get(self.data.next) {
            let from = start + self.data.within;
            if from >= end {
                break;
            }
            let until = (start + len).min(end);
            let (first, last) = ((from - at) as usize, (until - at) as usize);
            (self.read)(&mut buf[first..last])?;
            self.data.within += until - from;
            if self.data.within == len {
                self.data.next += 1;
                self.data.within = 0;
            }
        }
        Ok(())
    }
}

/// Reads a member's data from the stream, in order.
pub(super) fn read_stream(
    stream: &mut TarStream<'_>,
    offset: u64,
) -> impl FnMut(&mut [u8]) -> Result<(), FillError> {
    move |buf| Ok(stream.read_exact(buf, offset)?)
}

/// Data of a member in a seekable archive.
#[derive(Debug)]
pub(super) struct DeferredMember {
    pub(super) file: Arc<File>,
    /// The offset of its data.
    pub(super) at: u64,
    pub(super) data: MemberData,
}

impl Deferred for DeferredMember {
    fn read(
        mut self: Box<Self>,
        encoder: &mut Encoder<'_>,
        emit: &mut dyn FnMut(Part) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        let mut offset = self.at;
        let file = Arc::clone(&self.file);
        let mut read = |buf: &mut [u8]| {
            let read = file.read_exact_at(buf, offset);
            read.map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => ArchiveError::Truncated { offset },
                _ => ArchiveError::Read { offset, source },
            })?;
            offset += buf.len() as u64;
            Ok(())
        };
        self.data.encode(&mut read, encoder, emit)
    }
}

/// Data that was encoded and placed, and then moved to a temporary file.
#[derive(Debug)]
pub(super) struct PutAside {
    pub(super) spool: Arc<Log>,
    /// The offset of its first extent.
    pub(super) at: u64,
    pub(super) extents: Vec<PlacedExtent>,
    pub(super) is_incompressible: bool,
}

impl Deferred for PutAside {
    fn read(
        self: Box<Self>,
        encoder: &mut Encoder<'_>,
        emit: &mut dyn FnMut(Part) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        let mut at = self.at;
        for extent in &self.extents {
            let mut done = 0;
            while done < extent.disk_bytes {
                // A compressed extent is one piece, which is smaller than a block.
                let len = (extent.disk_bytes - done).min(BLOCK_BYTES as u64);
                let mut data = vec![0; len as usize];
                let read = self.spool.read_at(at, &mut data);
                read.map_err(MkfsError::Scratch)?;
                let (offset, file_bytes) = match extent.compression {
                    Compression::None => (extent.file_offset + done, len),
                    _ => (extent.file_offset, extent.file_bytes),
                };
                emit(encoder.again(offset, file_bytes, extent.compression, data))?;
                at += len;
                done += len;
            }
        }
        encoder.set_incompressible(self.is_incompressible);
        Ok(())
    }
}
