//! Reading file data: every sector with a checksum is verified, and read from another mirror if it
//! does not match.
//!
//! Whole sectors are read straight into the caller's buffer; only the sectors that the request cuts
//! are read aside. What the trees do not cover reads as zeros.

use std::sync::Arc;

use ubtrfs_format::compress::{self, Compression};
use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::{FileKind, InodeFlags};

use super::extents::{CompressedExtent, FileExtents, FileRange, Source};
use crate::error::{CorruptItem, Error, Result};
use crate::fs::{Attr, FileId};
use crate::volume::Volume;

/// One file as a read sees it.
struct Reader<'v> {
    volume: &'v Volume,
    file: FileId,
    has_csums: bool,
}

impl Volume {
    /// Fills `buf` from `offset`. Fewer bytes are read only at the end of the file.
    pub fn read(&self, id: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let attr = self.attr(id)?;
        match attr.kind {
            FileKind::Regular => self.read_data(id, &attr, offset, buf),
            FileKind::Directory => Err(Error::IsADirectory(id)),
            _ => Err(Error::NotAFile(id)),
        }
    }

    /// Reads a regular file or a symlink's target.
    pub(crate) fn read_data(
        &self,
        id: FileId,
        attr: &Attr,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let rest = attr.size.saturating_sub(offset);
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..len];
        let end = offset + len as u64;
        let tree = self.subvolume_tree(id.root)?;
        let reader = Reader {
            volume: self,
            file: id,
            has_csums: !attr.flags.contains(InodeFlags::NODATASUM),
        };
        let mut extents = FileExtents::from(self, &tree, id, offset)?;
        let mut done = offset;
        while done < end {
            let more = extents.next(&mut |range| {
                let from = range.start.max(offset).min(end);
                let to = range.end().clamp(offset, end);
                buf[(done - offset) as usize..(from - offset) as usize].fill(0);
                if from >= to {
                    done = from;
                    return Ok(());
                }
                let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
                reader.read_range(&range, from, part)?;
                done = to;
                Ok(())
            })?;
            if !more {
                buf[(done - offset) as usize..].fill(0);
                break;
            }
            // An extent wholly before the request leaves `done` alone; one behind it ends the loop.
        }
        Ok(len)
    }
}

impl Reader<'_> {
    /// Fills `out` with what lies at file offset `from`, all of it within `range`.
    fn read_range(&self, range: &FileRange<'_>, from: u64, out: &mut [u8]) -> Result<()> {
        let skip = from - range.start;
        match range.source {
            Source::Zeros => out.fill(0),
            Source::Inline {
                data,
                compression: Compression::None,
            } => copy_padded(data, skip, out),
            Source::Inline { data, compression } => {
                let mut plain = vec![0; range.len as usize];
                let sectorsize = self.volume.sectorsize() as usize;
                compress::decompress(compression, data, &mut plain, sectorsize, true).map_err(
                    |source| Error::Decompress {
                        file: self.file,
                        offset: from,
                        source,
                    },
                )?;
                copy_padded(&plain, skip, out);
            }
            Source::Plain { logical } => {
                let logical = logical
                    .checked_add(skip)
                    .ok_or_else(|| self.out_of_range(range.start))?;
                self.read_plain(logical, from, out)?;
            }
            Source::Compressed(extent, offset) => {
                let plain = self.decompressed(extent, from)?;
                copy_padded(&plain, offset + skip, out);
            }
        }
        Ok(())
    }

    fn out_of_range(&self, start: u64) -> Error {
        use ubtrfs_format::key::{Key, KeyType};
        Error::Corrupt {
            tree: self.file.root,
            key: Key::new(self.file.ino.0, KeyType::EXTENT_DATA, start),
            what: CorruptItem::ExtentRange,
        }
    }

    /// Reads uncompressed bytes from any logical address; `offset` is the file offset, for errors.
    fn read_plain(&self, logical: Logical, offset: u64, out: &mut [u8]) -> Result<()> {
        let sectorsize = self.volume.sectorsize();
        let head = logical.0 % sectorsize;
        let aligned = head == 0 && (out.len() as u64).is_multiple_of(sectorsize);
        if aligned {
            return self.read_sectors(logical, offset, out);
        }
        let end_in_first = sectorsize - head;
        let (first, rest) = if head == 0 {
            out.split_at_mut(0)
        } else {
            let len = out.len().min(end_in_first as usize);
            out.split_at_mut(len)
        };
        if !first.is_empty() {
            let mut sector = vec![0; sectorsize as usize];
            self.read_sectors(
                Logical(logical.0 - head),
                offset.saturating_sub(head),
                &mut sector,
            )?;
            first.copy_from_slice(&sector[head as usize..][..first.len()]);
        }
        let logical = Logical(logical.0 + first.len() as u64);
        let offset = offset + first.len() as u64;
        let whole = rest.len() - rest.len() % sectorsize as usize;
        let (whole, tail) = rest.split_at_mut(whole);
        self.read_sectors(logical, offset, whole)?;
        if !tail.is_empty() {
            let mut sector = vec![0; sectorsize as usize];
            let at = whole.len() as u64;
            self.read_sectors(Logical(logical.0 + at), offset + at, &mut sector)?;
            let len = tail.len();
            tail.copy_from_slice(&sector[..len]);
        }
        Ok(())
    }

    /// Reads whole sectors, verified if the file has checksums.
    fn read_sectors(&self, logical: Logical, offset: u64, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let sectorsize = self.volume.sectorsize() as usize;
        let csums = if self.has_csums {
            let csums = self.volume.data_csums(logical, out.len() / sectorsize)?;
            if let Some(missing) = csums.first_missing() {
                let skip = (missing * sectorsize) as u64;
                return Err(Error::CsumMissing {
                    file: self.file,
                    offset: offset + skip,
                    logical: Logical(logical.0 + skip),
                });
            }
            Some(csums)
        } else {
            None
        };
        self.volume
            .pool()
            .read_checked(logical, out, sectorsize, &mut |index, sector| {
                csums
                    .as_ref()
                    .is_none_or(|csums| csums.matches(index, sector))
            })
            .map_err(|source| Error::DataRead {
                file: self.file,
                offset: offset + source.logical.0.saturating_sub(logical.0),
                source,
            })
    }

    /// All bytes of a compressed extent.
    fn decompressed(&self, extent: CompressedExtent, offset: u64) -> Result<Arc<[u8]>> {
        if let Some(plain) = self.volume.decompressed.get(&extent, self.has_csums) {
            return Ok(plain);
        }
        let mut stored = vec![0; extent.disk_bytes as usize];
        self.read_plain(extent.logical, offset, &mut stored)?;
        let mut plain: Arc<[u8]> = std::iter::repeat_n(0, extent.ram_bytes as usize).collect();
        let out = Arc::get_mut(&mut plain).expect("not shared yet");
        let kind = Compression::from_raw(extent.compression).unwrap_or_default();
        let sectorsize = self.volume.sectorsize() as usize;
        compress::decompress(kind, &stored, out, sectorsize, false).map_err(|source| {
            Error::Decompress {
                file: self.file,
                offset,
                source,
            }
        })?;
        self.volume
            .decompressed
            .insert(extent, self.has_csums, Arc::clone(&plain));
        Ok(plain)
    }
}

/// Copies `data` from `skip` on; what `data` lacks is zeros.
fn copy_padded(data: &[u8], skip: u64, out: &mut [u8]) {
    let rest = usize::try_from(skip)
        .ok()
        .and_then(|skip| data.get(skip..))
        .unwrap_or(&[]);
    let len = rest.len().min(out.len());
    out[..len].copy_from_slice(&rest[..len]);
    out[len..].fill(0);
}
