//! Layers whose bytes are on one or more devices unchanged: partitions, concatenations, stripes and mirrors.
//!
//! A part that cannot be read from its first copy is read from the others. If all copies of a part fail, each sector
//! is read from the first copy that has it.

use std::io;

use ubtrfs_device::DeviceRead;

use crate::fan_out::{Devices, NotThere, Part, read_parts};
use crate::mapping::Mapping;

/// The unit for reads of damaged parts.
pub(crate) const SECTOR_BYTES: usize = 4096;

/// The location of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The index of the device.
    pub(crate) device: usize,
    pub(crate) offset: u64,
    /// Number of bytes that are contiguous there, at least 1.
    pub(crate) len: u64,
}

/// The map from offsets to places.
pub(crate) trait CopyMap: Send + Sync + std::fmt::Debug {
    fn len_bytes(&self) -> u64;

    fn devices(&self) -> &Devices;

    /// Returns the number of copies of every byte.
    fn copies(&self) -> usize;

    /// Returns the place of a copy, for an offset within the device.
    fn place(&self, offset: u64, copy: usize) -> Place;
}

impl<M: CopyMap> Mapping for M {
    fn len_bytes(&self) -> u64 {
        CopyMap::len_bytes(self)
    }

    fn read(&self, reads: &mut [&mut DeviceRead<'_>]) {
        let mut parts = Vec::with_capacity(reads.len());
        for (request, read) in reads.iter_mut().enumerate() {
            let mut at = read.offset;
            let mut rest = &mut *read.buf;
            while !rest.is_empty() {
                let place = self.first_present(at);
                let (buf, after) = rest.split_at_mut(within(place.len, rest.len()));
                rest = after;
                let part = Part {
                    device: place.device,
                    offset: place.offset,
                    request,
                    at,
                    result: Ok(()),
                    buf,
                };
                at += part.buf.len() as u64;
                parts.push(part);
            }
        }
        read_parts(self.devices(), &mut parts);
        let mut failed = Vec::new();
        for part in parts {
            if let Err(error) = part.result
                && let Err(error) = self.read_any(part.at, part.buf, error)
            {
                failed.push((part.request, error));
            }
        }
        for (request, error) in failed {
            reads[request].result = Err(error);
        }
    }
}

/// The private steps of a read.
trait Reading: CopyMap {
    /// Returns the place of the first copy on a device that is present, or of the first copy if all are missing.
    fn first_present(&self, at: u64) -> Place {
        let places = (0..self.copies()).map(|copy| self.place(at, copy));
        let mut present = places.filter(|place| self.devices()[place.device].is_some());
        present.next().unwrap_or_else(|| self.place(at, 0))
    }

    /// Reads a part from any copies, after a read has failed with `error`.
    fn read_any(&self, at: u64, buf: &mut [u8], error: io::Error) -> io::Result<()> {
        if error.kind() == io::ErrorKind::WouldBlock || self.copies() == 1 {
            return Err(error);
        }
        let mut copies = 0..self.copies();
        if copies.any(|copy| self.read_copy(at, buf, copy).is_ok()) {
            return Ok(());
        }
        for sector in 0..buf.len().div_ceil(SECTOR_BYTES) {
            let start = sector * SECTOR_BYTES;
            let end = buf.len().min(start + SECTOR_BYTES);
            let sector = &mut buf[start..end];
            let mut copies = 0..self.copies();
            if !copies.any(|copy| self.read_copy(at + start as u64, sector, copy).is_ok()) {
                return Err(error);
            }
        }
        Ok(())
    }

    fn read_copy(&self, mut at: u64, mut rest: &mut [u8], copy: usize) -> io::Result<()> {
        while !rest.is_empty() {
            let place = self.place(at, copy);
            let (buf, after) = rest.split_at_mut(within(place.len, rest.len()));
            let device = self.devices()[place.device].as_ref().ok_or(NotThere)?;
            device.read_at(buf, place.offset)?;
            at += buf.len() as u64;
            rest = after;
        }
        Ok(())
    }
}

impl<M: CopyMap> Reading for M {}

/// Returns the smaller of two lengths.
pub(crate) fn within(len: u64, buf_len: usize) -> usize {
    usize::try_from(len).map_or(buf_len, |len| len.min(buf_len))
}
