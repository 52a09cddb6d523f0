//! Encoding of a file's data for the disk: inline, compressed or plain, with checksums.
//!
//! Inline and compressed data follow the kernel's defaults. Files smaller than a sector and the inline limit are
//! inline. Each 128 KiB is compressed separately if it looks compressible. After one incompressible block, compression
//! of the file is not tried again.
//!
//! Not here: the place of the data (`data_space`), holes (known to the sources).

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ubtrfs_format::compress::{Compression, MAX_EXTENT_BYTES, compress, looks_compressible};
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::item::InodeFlags;

use super::error::FillError;
use super::marks::DENSE;
use crate::options::Geometry;

/// The kernel's default for the mount option `max_inline`.
const MAX_INLINE_BYTES: usize = 2048;
/// The unit in which a file is read, checksummed and passed on. It is a multiple of every sector size, and of the unit
/// of compression.
pub(super) const BLOCK_BYTES: usize = 1 << 20;
/// The largest file whose holes are written out. Kernels are smaller, and disk images would fill the volume.
const MAX_DENSE_BYTES: u64 = 1 << 30;

/// The encoding options of a volume's files.
#[derive(Clone, Debug)]
pub(super) struct Coding {
    sectorsize: usize,
    csum_type: CsumType,
    compression: Option<(Compression, i32)>,
    /// Whether only sizes matter, because the devices are full.
    skip: Arc<AtomicBool>,
}

/// The whole contents of a small file, compressed or not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inline {
    pub(super) compression: Compression,
    pub(super) file_bytes: u64,
    pub(super) data: Vec<u8>,
}

/// A part of a file. All lengths are whole sectors.
#[derive(Debug)]
pub(super) struct Piece {
    /// The offset in the file.
    pub(super) offset: u64,
    /// The length in the file.
    pub(super) file_bytes: u64,
    pub(super) compression: Compression,
    /// The bytes for the disk. Empty if contents do not matter.
    pub(super) data: Vec<u8>,
    pub(super) disk_bytes: u64,
    /// The checksums of `data`, unless the file has none.
    pub(super) sums: Option<Vec<u8>>,
    /// A source of the same bytes for sharing instead of writing.
    pub(super) shared: Option<Shared>,
}

/// Bytes of a file that equal the beginning of a piece.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    pub(super) len: u64,
}

#[derive(Debug)]
pub(super) enum Part {
    Inline(Inline),
    Piece(Piece),
}

impl Coding {
    pub(super) fn new(geometry: &Geometry, compression: Option<(Compression, i32)>) -> Coding {
        Coding {
            sectorsize: geometry.sectorsize as usize,
            csum_type: geometry.csum_type,
            compression,
            skip: Arc::default(),
        }
    }

    pub(super) fn skip_contents(&self) {
        self.skip.store(true, Ordering::Relaxed);
    }

    pub(super) fn skips_contents(&self) -> bool {
        self.skip.load(Ordering::Relaxed)
    }

    pub(super) fn encoder(&self, flags: InodeFlags) -> Encoder<'_> {
        let sums = !flags.contains(InodeFlags::NODATASUM);
        let plain = InodeFlags::NODATASUM | InodeFlags::NODATACOW | InodeFlags::NOCOMPRESS;
        Encoder {
            coding: self,
            has_sums: sums,
            compression: self.compression.filter(|_| !flags.intersects(plain)),
            is_incompressible: false,
            is_dense: flags.contains(DENSE),
        }
    }
}

/// A source of a file's data. Requests have ascending offsets.
pub(super) trait FileData {
    /// Finds the next range of data at or after an offset, within the file's size.
    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>, FillError>;

    /// Fills a buffer from an offset within the file.
    fn fill(&mut self, buf: &mut [u8], at: u64) -> Result<(), FillError>;
}

/// The encoder of one file.
#[derive(Debug)]
pub(super) struct Encoder<'a> {
    coding: &'a Coding,
    has_sums: bool,
    compression: Option<(Compression, i32)>,
    is_incompressible: bool,
    /// Whether holes are written out.
    is_dense: bool,
}

impl Encoder<'_> {
    pub(super) fn sectorsize(&self) -> u64 {
        self.coding.sectorsize as u64
    }

    /// Returns whether a compression attempt failed.
    pub(super) fn is_incompressible(&self) -> bool {
        self.is_incompressible
    }

    /// Encodes the whole contents of a file.
    pub(super) fn file(
        &mut self,
        size: u64,
        file: &mut dyn FileData,
        emit: &mut dyn FnMut(Part) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        let sector = self.coding.sectorsize as u64;
        if size == 0 {
            return Ok(());
        }
        // A file smaller than a sector may be inline, including its holes.
        if size < sector {
            let mut data = vec![0; size as usize];
            file.fill(&mut data, 0)?;
            return emit(self.small(data)?);
        }
        let end_of_file = size.next_multiple_of(sector);
        let is_dense = self.is_dense && size <= MAX_DENSE_BYTES;
        let mut done = 0;
        while let Some(data) = if is_dense {
            (done < end_of_file).then_some(done..size)
        } else {
            file.next_data(done)?
        } {
            // SOURCE-2
            let end = data.end.next_multiple_of(sector).min(end_of_file);
            let mut at = (data.start - data.start % sector).max(done);
            while at < end {
                let len = (end - at).min(BLOCK_BYTES as u64);
                if self.coding.skips_contents() {
                    emit(self.skipped(at, len))?;
                } else {
                    let mut data = vec![0; len as usize];
                    let in_file = len.min(size - at) as usize;
                    file.fill(&mut data[..in_file], at)?;
                    self.block(at, data, emit)?;
                }
                at += len;
            }
            done = end;
        }
        Ok(())
    }

    /// Encodes the contents of a small, non-empty file, inline if possible.
    fn small(&mut self, mut data: Vec<u8>) -> Result<Part, FillError> {
        if let Some((compression, level)) = self.compression
            && looks_compressible(&data)
        {
            let mut packed = Vec::new();
            let sectorsize = self.coding.sectorsize;
            let saves = compress(compression, level, &data, &mut packed, sectorsize, true)?;
            if saves && packed.len() <= MAX_INLINE_BYTES {
                return Ok(Part::Inline(Inline {
                    compression,
                    file_bytes: data.len() as u64,
                    data: packed,
                }));
            }
        }
        if data.len() <= MAX_INLINE_BYTES {
            return Ok(Part::Inline(Inline {
                compression: Compression::None,
                file_bytes: data.len() as u64,
                data,
            }));
        }
        data.resize(self.coding.sectorsize, 0);
        Ok(Part::Piece(self.plain(0, data)))
    }

    /// Encodes whole sectors of a file, at most [`BLOCK_BYTES`], in ascending order.
    fn block(
        &mut self,
        offset: u64,
        data: Vec<u8>,
        emit: &mut dyn FnMut(Part) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        let mut plain_from = 0;
        if self.compression.is_some() {
            for (number, chunk) in data.chunks(MAX_EXTENT_BYTES).enumerate() {
                let at = number * MAX_EXTENT_BYTES;
                let Some(piece) = self.try_compress(offset + at as u64, chunk)? else {
                    continue;
                };
                // Emit the incompressible data before this piece first: pieces must ascend.
                if plain_from < at {
                    let plain = data[plain_from..at].to_vec();
                    emit(Part::Piece(self.plain(offset + plain_from as u64, plain)))?;
                }
                plain_from = at + chunk.len();
                emit(Part::Piece(piece))?;
            }
        }
        match plain_from {
            0 => emit(Part::Piece(self.plain(offset, data))),
            at if at < data.len() => {
                let plain = data[at..].to_vec();
                emit(Part::Piece(self.plain(offset + at as u64, plain)))
            }
            _ => Ok(()),
        }
    }

    /// Returns a placeholder for data that is not read.
    fn skipped(&self, offset: u64, len: u64) -> Part {
        let sectors = len as usize / self.coding.sectorsize;
        let sum_bytes = sectors * self.coding.csum_type.size_bytes();
        Part::Piece(Piece {
            offset,
            file_bytes: len,
            compression: Compression::None,
            data: Vec::new(),
            disk_bytes: len,
            sums: self.has_sums.then(|| vec![0; sum_bytes]),
            shared: None,
        })
    }

    /// Returns a piece that was encoded earlier, for a file with the same flags.
    pub(super) fn again(
        &self,
        offset: u64,
        file_bytes: u64,
        compression: Compression,
        data: Vec<u8>,
    ) -> Part {
        Part::Piece(Piece {
            offset,
            file_bytes,
            compression,
            disk_bytes: data.len() as u64,
            sums: self.sums(&data),
            data,
            shared: None,
        })
    }

    /// Sets the result of an earlier encoding of the file.
    pub(super) fn set_incompressible(&mut self, is_incompressible: bool) {
        self.is_incompressible = is_incompressible;
    }

    fn try_compress(&mut self, offset: u64, chunk: &[u8]) -> Result<Option<Piece>, FillError> {
        let sectorsize = self.coding.sectorsize;
        let Some((compression, level)) = self.compression else {
            return Ok(None);
        };
        // A single sector cannot shrink on disk.
        if chunk.len() <= sectorsize || !looks_compressible(chunk) {
            return Ok(None);
        }
        let mut data = Vec::new();
        if !compress(compression, level, chunk, &mut data, sectorsize, false)? {
            self.compression = None;
            self.is_incompressible = true;
            return Ok(None);
        }
        Ok(Some(Piece {
            offset,
            file_bytes: chunk.len() as u64,
            compression,
            disk_bytes: data.len() as u64,
            sums: self.sums(&data),
            data,
            shared: None,
        }))
    }

    fn plain(&self, offset: u64, data: Vec<u8>) -> Piece {
        Piece {
            offset,
            file_bytes: data.len() as u64,
            compression: Compression::None,
            disk_bytes: data.len() as u64,
            sums: self.sums(&data),
            data,
            shared: None,
        }
    }

    fn sums(&self, data: &[u8]) -> Option<Vec<u8>> {
        self.has_sums.then(|| {
            let mut sums = Vec::new();
            let sectorsize = self.coding.sectorsize;
            self.coding
                .csum_type
                .compute_sectors(data, sectorsize, &mut sums);
            sums
        })
    }
}
