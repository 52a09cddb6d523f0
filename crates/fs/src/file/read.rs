//! Reading file data. Every sector with a checksum is verified, and read from another mirror if it does not
//! match.
//!
//! A read is planned with the file locked shared. Buffered and inline data is copied at once; for the rest
//! the plan holds addresses and checksums. The plan then runs without the lock. The epoch is held throughout,
//! so that extents in the plan are not reallocated.
//!
//! Whole sectors are read straight into the caller's buffer. Only sectors that the request cuts go through a
//! temporary buffer. Ranges without an extent read as zeros.

use std::ops::Range;
use std::sync::Arc;

use ubtrfs_format::compress::{self, Compression};
use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::{FileKind, InodeFlags};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::csum_tree::{RangeCsums, data_csums};
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::{FileId, lock};
use ubtrfs_tree::Epoch;

use super::Files;
use super::change::read_file;
use super::extents::{CompressedExtent, ExtentSource, FileExtents, FileRange};
use crate::error::{CorruptItem, Error, Result};
use crate::inode::Attr;

/// A part of the request that must be read from the devices.
struct Part {
    /// The range in the caller's buffer.
    place: Range<usize>,
    /// File offset of its first byte.
    offset: u64,
    stored: StoredPiece,
}

enum StoredPiece {
    /// Uncompressed, from any address on. The checksums cover every sector that it touches.
    Plain {
        logical: Logical,
        csums: Option<RangeCsums>,
    },
    /// The part begins `skip` bytes into the decompressed extent.
    Compressed {
        extent: CompressedExtent,
        skip: u64,
        csums: Option<RangeCsums>,
    },
}

/// A reader of one file. Extents that are looked up after its creation are not reused while it exists.
pub(super) struct Reader<'v> {
    _epoch: Arc<Epoch>,
    files: &'v Files,
    tree: &'v Tree,
    file: FileId,
    has_csums: bool,
    parts: Vec<Part>,
}

impl Files {
    /// Fills `buf` from `offset`. Reads fewer bytes only at the end of the file.
    pub(crate) fn read(&self, id: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if self.roots.is_writable() && !id.is_empty_subvolume_dir() {
            return self.read_buffered(id, offset, buf);
        }
        let attr = self.inodes.stored_attr(id)?;
        match attr.kind {
            FileKind::Regular => self.read_data(id, &attr, offset, buf),
            FileKind::Directory => Err(Error::IsADirectory(id)),
            _ => Err(Error::NotAFile(id)),
        }
    }

    /// Reads the stored data of a regular file or symlink, without the buffer.
    pub(crate) fn read_data(
        &self,
        id: FileId,
        attr: &Attr,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let buf = within(attr.size, offset, buf);
        let tree = self.roots.tree_of(id)?;
        let mut reader = Reader::new(self, &tree, id, attr.flags);
        reader.plan(offset, 0..buf.len(), buf)?;
        reader.run(buf)?;
        Ok(buf.len())
    }

    /// Reads and verifies the stored bytes of an extent. `logical` is the address of the data at file offset
    /// `offset`.
    pub(crate) fn read_stored(
        &self,
        id: FileId,
        offset: u64,
        logical: Logical,
        buf: &mut [u8],
    ) -> Result<()> {
        let attr = self.inodes.stored_attr(id)?;
        let tree = self.roots.tree_of(id)?;
        let reader = Reader::new(self, &tree, id, attr.flags);
        let csums = reader.csums(logical, buf.len() as u64, offset)?;
        reader.read_plain(logical, offset, csums.as_ref(), buf)
    }

    fn read_buffered(&self, id: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let inode = self.inodes.get(id)?;
        let state = lock::read(&inode.lock)?;
        let item = read_file(&inode)?;
        let buf = within(state.buffer.size_over(item.size.get()), offset, buf);
        let end = state.buffer.size_on_disk(item.size.get());
        let mut reader = Reader::new(self, &inode.tree, id, item.flags());
        for gap in state.buffer.copy_to(offset, buf) {
            // The stored data may end before the gap. The rest of the gap reads as zeros.
            let stored_end = gap.end.min(end).max(gap.start);
            let place = |at: u64| (at - offset) as usize;
            reader.plan(gap.start, place(gap.start)..place(stored_end), buf)?;
            buf[place(stored_end)..place(gap.end)].fill(0);
        }
        // From here on only the reader's epoch protects the extents in the plan.
        drop(state);
        reader.run(buf)?;
        Ok(buf.len())
    }
}

/// Returns the part of `buf` that is within the file, for a read at `offset`.
fn within(size: u64, offset: u64, buf: &mut [u8]) -> &mut [u8] {
    let rest = size.saturating_sub(offset);
    let len = usize::try_from(rest).unwrap_or(usize::MAX).min(buf.len());
    &mut buf[..len]
}

impl<'v> Reader<'v> {
    pub(super) fn new(
        files: &'v Files,
        tree: &'v Tree,
        file: FileId,
        flags: InodeFlags,
    ) -> Reader<'v> {
        Reader {
            _epoch: files.roots.node_store().epoch(),
            files,
            tree,
            file,
            has_csums: !flags.contains(InodeFlags::NODATASUM) && !files.rescue.ignore_data_csums,
            parts: Vec::new(),
        }
    }

    /// Plans to fill `place` of `buf` from file offset `offset`, and fills the parts that need no device at
    /// once. The caller makes sure that the file's extents do not change.
    pub(super) fn plan(&mut self, offset: u64, place: Range<usize>, buf: &mut [u8]) -> Result<()> {
        if place.is_empty() {
            return Ok(());
        }
        let end = offset + place.len() as u64;
        let at = |offset_in_file: u64| place.start + (offset_in_file - offset) as usize;
        let mut done = offset;
        let mut extents = FileExtents::from(self.files, self.tree, self.file, offset)?;
        while done < end {
            let more = extents.next(&mut |range| {
                let from = range.start.max(offset).min(end);
                let to = range.end().clamp(offset, end);
                buf[at(done)..at(from.max(done))].fill(0);
                if from >= to {
                    done = done.max(from);
                    return Ok(());
                }
                self.plan_range(&range, from, at(from)..at(to), buf)?;
                done = to;
                Ok(())
            })?;
            if !more {
                buf[at(done)..at(end)].fill(0);
                break;
            }
            // An extent before the request leaves `done` as it is; an extent behind it ends the loop.
        }
        Ok(())
    }

    /// Plans the read of the part of `range` from file offset `from` on, into `place` of `buf`.
    fn plan_range(
        &mut self,
        range: &FileRange<'_>,
        from: u64,
        place: Range<usize>,
        buf: &mut [u8],
    ) -> Result<()> {
        let skip = from - range.start;
        let stored = match range.source {
            ExtentSource::Zeros => {
                buf[place].fill(0);
                return Ok(());
            }
            ExtentSource::Inline { data, compression } => {
                return self.read_inline(range, data, compression, skip, &mut buf[place]);
            }
            ExtentSource::Plain { logical } => {
                let logical = logical
                    .checked_add(skip)
                    .ok_or_else(|| self.out_of_range(range.start))?;
                let csums = self.csums(logical, place.len() as u64, from)?;
                StoredPiece::Plain { logical, csums }
            }
            ExtentSource::Compressed(extent, offset) => {
                let skip = offset + skip;
                if let Some(plain) = self.files.decompressed.get(&extent, self.has_csums) {
                    copy_padded(&plain, skip, &mut buf[place]);
                    return Ok(());
                }
                let csums = self.csums(extent.logical, extent.disk_bytes, from)?;
                StoredPiece::Compressed {
                    extent,
                    skip,
                    csums,
                }
            }
        };
        self.parts.push(Part {
            place,
            offset: from,
            stored,
        });
        Ok(())
    }

    fn read_inline(
        &self,
        range: &FileRange<'_>,
        data: &[u8],
        compression: Compression,
        skip: u64,
        out: &mut [u8],
    ) -> Result<()> {
        if compression == Compression::None {
            copy_padded(data, skip, out);
            return Ok(());
        }
        let mut plain = vec![0; range.len as usize];
        let sectorsize = self.files.roots.sectorsize() as usize;
        compress::decompress(compression, data, &mut plain, sectorsize, true)
            .map_err(|source| self.undecodable(range.start, source))?;
        copy_padded(&plain, skip, out);
        Ok(())
    }

    /// Reads the planned parts from the devices.
    pub(super) fn run(self, buf: &mut [u8]) -> Result<()> {
        for part in &self.parts {
            let out = &mut buf[part.place.clone()];
            match &part.stored {
                StoredPiece::Plain { logical, csums } => {
                    self.read_plain(*logical, part.offset, csums.as_ref(), out)?;
                }
                StoredPiece::Compressed {
                    extent,
                    skip,
                    csums,
                } => {
                    let plain = self.decompressed(*extent, part.offset, csums.as_ref())?;
                    copy_padded(&plain, *skip, out);
                }
            }
        }
        Ok(())
    }

    /// Returns the checksums of all sectors that `len` bytes at `logical` touch, if the file has checksums.
    ///
    /// Errors: a checksum is missing.
    fn csums(&self, logical: Logical, len: u64, offset: u64) -> Result<Option<RangeCsums>> {
        if !self.has_csums {
            return Ok(None);
        }
        let sectorsize = self.files.roots.sectorsize();
        let head = logical.0 % sectorsize;
        let first = Logical(logical.0 - head);
        let sectors = (head + len).div_ceil(sectorsize);
        let csums = match data_csums(&self.files.roots, first, sectors as usize) {
            Err(error)
                if self
                    .files
                    .rescue
                    .tolerates_missing_tree(error.is_would_block()) =>
            {
                tracing::debug!(%error, "data is given unverified");
                return Ok(None);
            }
            csums => csums?,
        };
        if let Some(missing) = csums.first_missing() {
            let skip = missing as u64 * sectorsize;
            return Err(Error::CsumMissing {
                file: self.file,
                offset: (offset + skip).saturating_sub(head),
                logical: Logical(first.0 + skip),
            });
        }
        Ok(Some(csums))
    }

    fn out_of_range(&self, start: u64) -> Error {
        Error::Corrupt {
            tree: self.file.root,
            key: Key::new(self.file.ino.0, KeyType::EXTENT_DATA, start),
            what: CorruptItem::ExtentRange,
        }
    }

    fn undecodable(&self, offset: u64, source: compress::CodecError) -> Error {
        Error::Decompress {
            file: self.file,
            offset,
            source,
        }
    }

    /// Reads uncompressed bytes from any logical address. `offset` is the file offset, for errors.
    fn read_plain(
        &self,
        logical: Logical,
        offset: u64,
        csums: Option<&RangeCsums>,
        out: &mut [u8],
    ) -> Result<()> {
        let sectorsize = self.files.roots.sectorsize();
        let head = logical.0 % sectorsize;
        let first_len = match head {
            0 => 0,
            head => out.len().min((sectorsize - head) as usize),
        };
        let (first, rest) = out.split_at_mut(first_len);
        let mut sectors = 0;
        if !first.is_empty() {
            let mut sector = vec![0; sectorsize as usize];
            let start = Logical(logical.0 - head);
            self.read_sectors(start, offset.saturating_sub(head), csums, 0, &mut sector)?;
            first.copy_from_slice(&sector[head as usize..][..first.len()]);
            sectors = 1;
        }
        let logical = Logical(logical.0 + first.len() as u64);
        let offset = offset + first.len() as u64;
        let whole = rest.len() - rest.len() % sectorsize as usize;
        let (whole, tail) = rest.split_at_mut(whole);
        self.read_sectors(logical, offset, csums, sectors, whole)?;
        sectors += whole.len() / sectorsize as usize;
        if !tail.is_empty() {
            let mut sector = vec![0; sectorsize as usize];
            let at = whole.len() as u64;
            let start = Logical(logical.0 + at);
            self.read_sectors(start, offset + at, csums, sectors, &mut sector)?;
            let len = tail.len();
            tail.copy_from_slice(&sector[..len]);
        }
        Ok(())
    }

    /// Reads whole sectors. `first_sum` is the index of the first sector's checksum.
    fn read_sectors(
        &self,
        logical: Logical,
        offset: u64,
        csums: Option<&RangeCsums>,
        first_sum: usize,
        out: &mut [u8],
    ) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let sectorsize = self.files.roots.sectorsize() as usize;
        let pool = self.files.roots.pool();
        let read = match csums {
            Some(csums) => {
                let mut good = |index, sector: &[u8]| csums.matches(first_sum + index, sector);
                // MIRROR-REPAIR-3: the reader's epoch precedes the look-up of the extent.
                pool.read_repairing(logical, out, sectorsize, &mut good)
            }
            None => pool.read_checked(logical, out, sectorsize, &mut |_, _| true),
        };
        read.map_err(|source| Error::DataRead {
            file: self.file,
            offset: offset + source.logical.0.saturating_sub(logical.0),
            source,
        })
    }

    /// Returns the whole decompressed extent.
    fn decompressed(
        &self,
        extent: CompressedExtent,
        offset: u64,
        csums: Option<&RangeCsums>,
    ) -> Result<Arc<[u8]>> {
        // An earlier part of the same request may have decompressed it.
        if let Some(plain) = self.files.decompressed.get(&extent, self.has_csums) {
            return Ok(plain);
        }
        let mut stored = vec![0; extent.disk_bytes as usize];
        self.read_plain(extent.logical, offset, csums, &mut stored)?;
        let mut plain: Arc<[u8]> = std::iter::repeat_n(0, extent.ram_bytes as usize).collect();
        let out = Arc::get_mut(&mut plain).expect("not shared yet");
        let kind = Compression::from_raw(extent.compression).unwrap_or_default();
        let sectorsize = self.files.roots.sectorsize() as usize;
        compress::decompress(kind, &stored, out, sectorsize, false)
            .map_err(|source| self.undecodable(offset, source))?;
        self.files
            .decompressed
            .insert(extent, self.has_csums, Arc::clone(&plain));
        Ok(plain)
    }
}

/// Copies `data` from `skip` on, padded with zeros.
fn copy_padded(data: &[u8], skip: u64, out: &mut [u8]) {
    let rest = usize::try_from(skip)
        .ok()
        .and_then(|skip| data.get(skip..))
        .unwrap_or(&[]);
    let len = rest.len().min(out.len());
    out[..len].copy_from_slice(&rest[..len]);
    out[len..].fill(0);
}
