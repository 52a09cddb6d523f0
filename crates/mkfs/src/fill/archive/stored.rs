//! Parts of members that are not kept in memory: attributes, link targets, maps of sparse files, inline contents, and
//! the positions of data.

use std::io;

use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::Logical;
use ubtrfs_spill::{Log, LogReader};

use super::node::Stored;
use super::put_aside;
use crate::archive::Part as SparsePart;
use crate::error::MkfsError;
use crate::fill::data_space::PlacedExtent;
use crate::fill::encode::Inline;
use crate::fill::error::FillError;
use crate::fill::filler::MAX_EXTENT_BYTES;
use crate::fill::scratch::Scratch;
use crate::fill::source::Xattr;

const EXTENT_FIELDS: usize = 6;
const EXTENT_BYTES: u64 = EXTENT_FIELDS as u64 * 8;

#[derive(Debug)]
pub(super) struct StoredLog {
    log: Log,
    extents: Log,
}

impl StoredLog {
    pub(super) fn new(scratch: &Scratch) -> StoredLog {
        StoredLog {
            log: scratch.log(),
            extents: scratch.log(),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<u64, FillError> {
        self.log.push(bytes).map_err(put_aside)
    }

    fn reader(&self, at: u64) -> LogReader<&Log> {
        self.log.reader(at..self.log.len_bytes())
    }

    /// Stores extended attributes and returns their offset. Returns None if there are none.
    pub(super) fn push_xattrs(&mut self, xattrs: &[Xattr]) -> Result<Option<u64>, FillError> {
        if xattrs.is_empty() {
            return Ok(None);
        }
        let mut bytes = (xattrs.len() as u32).to_le_bytes().to_vec();
        for (name, value) in xattrs {
            for part in [name, value] {
                bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
                bytes.extend_from_slice(part);
            }
        }
        self.push(&bytes).map(Some)
    }

    pub(super) fn xattrs(&self, at: u64) -> Result<Vec<Xattr>, FillError> {
        let mut reader = self.reader(at);
        let mut read = || {
            let count = u32::from_le_bytes(reader.array()?);
            let mut xattrs = Vec::with_capacity(count as usize);
            for _ in 0..count {
                xattrs.push((bytes(&mut reader)?, bytes(&mut reader)?));
            }
            Ok(xattrs)
        };
        read().map_err(put_aside)
    }

    pub(super) fn push_target(&mut self, target: &[u8]) -> Result<Stored, FillError> {
        let len = target.len() as u32;
        let at = self.push(target)?;
        Ok(Stored::Target { at, len })
    }

    pub(super) fn target(&self, at: u64, len: u32) -> Result<Vec<u8>, FillError> {
        let mut target = vec![0; len as usize];
        self.log.read_at(at, &mut target).map_err(put_aside)?;
        Ok(target)
    }

    /// Stores a sparse map, and returns its offset and the number of parts.
    pub(super) fn push_parts(&mut self, parts: &[SparsePart]) -> Result<(u64, u32), FillError> {
        let numbers = parts.iter().flat_map(|&(at, len)| [at, len]);
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        Ok((self.push(&bytes)?, parts.len() as u32))
    }

    pub(super) fn parts(&self, at: u64, count: u32) -> Result<Vec<SparsePart>, FillError> {
        let mut reader = self.reader(at);
        let mut number = || reader.array().map(u64::from_le_bytes);
        let mut parts = Vec::with_capacity(count as usize);
        for _ in 0..count {
            parts.push((number().map_err(put_aside)?, number().map_err(put_aside)?));
        }
        Ok(parts)
    }

    pub(super) fn inline(&self, at: u64) -> Result<Inline, FillError> {
        let mut reader = self.reader(at);
        let mut read = || {
            let [compression] = reader.array()?;
            Ok(Inline {
                compression: Compression::from_raw(compression).unwrap_or_default(),
                file_bytes: u64::from_le_bytes(reader.array()?),
                data: bytes(&mut reader)?,
            })
        };
        read().map_err(put_aside)
    }

    pub(super) fn extents(&self, first: u64, count: u32) -> Result<Vec<PlacedExtent>, FillError> {
        let start = first * EXTENT_BYTES;
        let end = start + u64::from(count) * EXTENT_BYTES;
        let mut reader = self.extents.reader(start..end);
        let mut extent = || {
            let bytes: [u8; EXTENT_BYTES as usize] = reader.array()?;
            let (fields, _) = bytes.as_chunks();
            let field = |number: usize| u64::from_le_bytes(fields[number]);
            Ok(PlacedExtent {
                chunk: field(0) as usize,
                file_offset: field(1),
                file_bytes: field(2),
                logical: Logical(field(3)),
                disk_bytes: field(4),
                compression: Compression::from_raw(field(5) as u8).unwrap_or_default(),
            })
        };
        let extents = (0..count).map(|_| extent());
        extents.collect::<io::Result<_>>().map_err(put_aside)
    }

    /// Returns the number of all extents, including extents of replaced members.
    pub(super) fn extent_count(&self) -> u64 {
        self.extents.len_bytes() / EXTENT_BYTES
    }

    /// Begins the contents of one file.
    pub(super) fn placing(&mut self) -> Placing<'_> {
        Placing {
            first: self.extent_count(),
            log: self,
            inline: None,
            run: None,
            count: 0,
        }
    }
}

fn bytes(reader: &mut LogReader<&Log>) -> io::Result<Vec<u8>> {
    let len = u32::from_le_bytes(reader.array()?);
    reader.bytes(len as usize)
}

/// The contents of a file that is being placed.
#[derive(Debug)]
pub(super) struct Placing<'a> {
    log: &'a mut StoredLog,
    inline: Option<u64>,
    first: u64,
    /// The last extent, which may be extended.
    run: Option<PlacedExtent>,
    count: u32,
}

impl Placing<'_> {
    pub(super) fn inline(&mut self, inline: &Inline) -> Result<(), FillError> {
        let mut bytes = vec![inline.compression.raw()];
        bytes.extend_from_slice(&inline.file_bytes.to_le_bytes());
        bytes.extend_from_slice(&(inline.data.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&inline.data);
        self.inline = Some(self.log.push(&bytes)?);
        Ok(())
    }

    pub(super) fn extent(&mut self, extent: PlacedExtent) -> Result<(), MkfsError> {
        if let Some(run) = &mut self.run
            && run.is_continued_by(&extent)
            && run.disk_bytes + extent.disk_bytes <= MAX_EXTENT_BYTES
        {
            run.disk_bytes += extent.disk_bytes;
            run.file_bytes += extent.file_bytes;
            return Ok(());
        }
        self.end_run()?;
        self.run = Some(extent);
        Ok(())
    }

    fn end_run(&mut self) -> Result<(), MkfsError> {
        let Some(run) = self.run.take() else {
            return Ok(());
        };
        let fields: [u64; EXTENT_FIELDS] = [
            run.chunk as u64,
            run.file_offset,
            run.file_bytes,
            run.logical.0,
            run.disk_bytes,
            run.compression.raw().into(),
        ];
        let bytes: Vec<u8> = fields.into_iter().flat_map(u64::to_le_bytes).collect();
        self.log.extents.push(&bytes).map_err(MkfsError::Scratch)?;
        self.count += 1;
        Ok(())
    }

    pub(super) fn finish(mut self, is_incompressible: bool) -> Result<Stored, FillError> {
        self.end_run()?;
        Ok(match self.inline {
            Some(at) => Stored::Inline { at },
            None => Stored::Placed {
                first: self.first,
                count: self.count,
                is_incompressible,
            },
        })
    }
}
