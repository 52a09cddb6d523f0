//! RAID4, RAID5 and RAID6: rows of data chunks with one or two parities.
//!
//! Chunks of missing members are rebuilt from the others. A request that covers whole rows reads each of the others
//! once: the data chunks of the request itself are reused.
//!
//! Invariants
//! - PARITY-1: the memory for rebuilding is bounded by `BATCH_BYTES`, whatever the size of a request.

use std::io;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, DeviceRead, nonblocking, rebuild};

use crate::copies::{SECTOR_BYTES, within};
use crate::fan_out::{NotThere, Part, read_parts};
use crate::mapping::Mapping;
use crate::parity_layout::{ParityLayout, Row};

/// Maximum size of a part of a chunk that is read or rebuilt at once.
const MAX_PART_BYTES: u64 = 256 << 10;
/// Maximum number of bytes for which reads are in progress in one batch.
const BATCH_BYTES: usize = 16 << 20;

/// An array with parity.
#[derive(Debug)]
pub(crate) struct ParityArray {
    pub(crate) members: Vec<Option<Arc<dyn BlockDevice>>>,
    pub(crate) layout: ParityLayout,
    pub(crate) chunk_bytes: u64,
    pub(crate) rows: u64,
}

/// A piece of a request.
#[derive(Debug)]
struct Wanted<'a> {
    request: usize,
    offset: u64,
    buf: &'a mut [u8],
}

/// The place of a part, which is within one chunk.
#[derive(Clone, Debug)]
struct Place {
    row: u64,
    /// Index of the data chunk in its row.
    data: usize,
    /// Offset within the chunk.
    within: u64,
    len: usize,
}

/// A part of a missing member.
#[derive(Debug)]
struct Lost {
    wanted: usize,
    /// Offset of the part in the array.
    at: u64,
    place: Place,
    row: Row,
    /// The bytes of each slot that is read for it. None for those that are lost, not needed, or in the request.
    read: Vec<Option<Vec<u8>>>,
}

/// A part that could not be read.
#[derive(Debug)]
struct Damaged {
    /// The index of the request, or after all requests the index of the lost part.
    request: usize,
    at: u64,
    len: usize,
    error: io::Error,
}

impl Mapping for ParityArray {
    fn len_bytes(&self) -> u64 {
        self.rows * self.chunk_bytes * self.layout.data() as u64
    }

    fn read(&self, reads: &mut [&mut DeviceRead<'_>]) {
        let mut failed: Vec<(usize, io::Error)> = Vec::new();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (request, read) in reads.iter_mut().enumerate() {
            let mut offset = read.offset;
            for buf in read.buf.chunks_mut(self.window_bytes()) {
                // PARITY-1
                let needed = self.needed_bytes(buf.len());
                if bytes + needed > BATCH_BYTES && !batch.is_empty() {
                    self.read_batch(&mut batch, &mut failed);
                    batch.clear();
                    bytes = 0;
                }
                bytes += needed;
                let len = buf.len() as u64;
                batch.push(Wanted {
                    request,
                    offset,
                    buf,
                });
                offset += len;
            }
        }
        self.read_batch(&mut batch, &mut failed);
        drop(batch);
        for (request, error) in failed {
            reads[request].result = Err(error);
        }
    }
}

impl ParityArray {
    fn is_whole(&self) -> bool {
        self.members.iter().all(Option::is_some)
    }

    /// Returns the size of the parts of a request that are executed at once.
    fn window_bytes(&self) -> usize {
        const WINDOW_BYTES: usize = BATCH_BYTES / 4;
        if self.is_whole() || self.row_bytes() <= WINDOW_BYTES as u64 {
            WINDOW_BYTES
        } else {
            // A part of a missing chunk needs as much of every other member.
            (WINDOW_BYTES / self.members.len()).max(SECTOR_BYTES)
        }
    }

    /// Estimates the number of bytes that are read for a part of a request.
    fn needed_bytes(&self, len: usize) -> usize {
        // Larger requests cover most chunks of their rows.
        if self.is_whole() || len as u64 >= self.row_bytes() {
            len * 2
        } else {
            len * self.members.len()
        }
    }

    fn row_bytes(&self) -> u64 {
        self.chunk_bytes * self.layout.data() as u64
    }

    fn place(&self, offset: u64, buf_len: usize) -> Place {
        let (chunk, within_chunk) = (offset / self.chunk_bytes, offset % self.chunk_bytes);
        let data = self.layout.data() as u64;
        // Without this bound, the rows of a wide array would need too much memory.
        let max = MAX_PART_BYTES.min(BATCH_BYTES as u64 / 2 / self.members.len() as u64);
        let max = max.max(SECTOR_BYTES as u64);
        Place {
            row: chunk / data,
            data: (chunk % data) as usize,
            within: within_chunk,
            len: within((self.chunk_bytes - within_chunk).min(max), buf_len),
        }
    }

    fn read_batch(&self, batch: &mut [Wanted<'_>], failed: &mut Vec<(usize, io::Error)>) {
        let ranges: Vec<(u64, u64)> = batch
            .iter()
            .map(|wanted| (wanted.offset, wanted.offset + wanted.buf.len() as u64))
            .collect();
        let mut parts = Vec::new();
        let mut lost = Vec::new();
        for (index, wanted) in batch.iter_mut().enumerate() {
            let mut at = wanted.offset;
            let mut rest = &mut *wanted.buf;
            while !rest.is_empty() {
                let place = self.place(at, rest.len());
                let (buf, after) = rest.split_at_mut(place.len);
                rest = after;
                let row = self.layout.row(place.row);
                let device = row.data[place.data];
                if self.members[device].is_some() {
                    parts.push(Part {
                        device,
                        offset: self.member_offset(&place),
                        buf,
                        request: index,
                        at,
                        result: Ok(()),
                    });
                } else {
                    let read = self.plan(&place, &row, ranges[index]);
                    lost.push(Lost {
                        wanted: index,
                        at,
                        place: place.clone(),
                        row,
                        read,
                    });
                }
                at += place.len as u64;
            }
        }
        for (number, lost) in lost.iter_mut().enumerate() {
            let offset = self.member_offset(&lost.place);
            for (&device, buf) in lost.row.slots.iter().zip(&mut lost.read) {
                if let Some(buf) = buf {
                    parts.push(Part {
                        device,
                        offset,
                        buf,
                        request: ranges.len() + number,
                        at: 0,
                        result: Ok(()),
                    });
                }
            }
        }
        read_parts(&self.members, &mut parts);
        let mut damaged = Vec::new();
        for part in parts {
            if let Err(error) = part.result {
                damaged.push(Damaged {
                    request: part.request,
                    at: part.at,
                    len: part.buf.len(),
                    error,
                });
            }
        }
        self.rebuild_lost(batch, lost, &damaged, failed);
        for part in damaged {
            if let Some(wanted) = batch.get_mut(part.request) {
                let start = (part.at - wanted.offset) as usize;
                let buf = &mut wanted.buf[start..start + part.len];
                if let Err(error) = self.read_hard(part.at, buf, part.error) {
                    failed.push((wanted.request, error));
                }
            }
        }
    }

    /// Returns buffers for the slots that must be read for a lost part of the request `range`.
    fn plan(&self, place: &Place, row: &Row, range: (u64, u64)) -> Vec<Option<Vec<u8>>> {
        let is_missing = |member: &usize| self.members[*member].is_none();
        let needs_q = row.slots.iter().filter(|member| is_missing(member)).count() > 1;
        let slots = row.slots.iter().enumerate();
        slots
            .map(|(slot, member)| {
                let is_q = slot > self.layout.data();
                let is_read = !is_missing(member)
                    && (needs_q || !is_q)
                    && self.within_request(place, row, *member, range).is_none();
                is_read.then(|| vec![0; place.len])
            })
            .collect()
    }

    /// Returns the offset of the same part of another member's chunk if the request `range` has all of it as data.
    fn within_request(
        &self,
        place: &Place,
        row: &Row,
        member: usize,
        range: (u64, u64),
    ) -> Option<u64> {
        let data = row.data.iter().position(|&other| other == member)?;
        let chunk = place.row * self.layout.data() as u64 + data as u64;
        let start = chunk * self.chunk_bytes + place.within;
        let is_within = start >= range.0 && start + place.len as u64 <= range.1;
        is_within.then_some(start)
    }

    /// Rebuilds the parts of missing members in the requests.
    fn rebuild_lost(
        &self,
        batch: &mut [Wanted<'_>],
        lost: Vec<Lost>,
        damaged: &[Damaged],
        failed: &mut Vec<(usize, io::Error)>,
    ) {
        let requests = batch.len();
        for (number, lost) in lost.into_iter().enumerate() {
            let wanted = &mut batch[lost.wanted];
            let start = (lost.at - wanted.offset) as usize;
            let range = start..start + lost.place.len;
            // A damaged part of the request may be one that is reused.
            let is_used = |part: &Damaged| [requests + number, lost.wanted].contains(&part.request);
            let rebuilt = match damaged.iter().find(|part| is_used(part)) {
                Some(part) => {
                    let error = io::Error::new(part.error.kind(), part.error.to_string());
                    self.read_hard(lost.at, &mut wanted.buf[range], error)
                }
                None => {
                    let bytes = self.rebuild(lost, wanted);
                    bytes.map(|bytes| wanted.buf[range].copy_from_slice(&bytes))
                }
            };
            if let Err(error) = rebuilt {
                failed.push((wanted.request, error));
            }
        }
    }

    /// Computes the bytes of a lost part from other members, and from data of the request.
    fn rebuild(&self, lost: Lost, wanted: &Wanted<'_>) -> io::Result<Vec<u8>> {
        let Lost {
            place, row, read, ..
        } = lost;
        let range = (wanted.offset, wanted.offset + wanted.buf.len() as u64);
        let reused = |member: usize| {
            self.members[member].as_ref()?;
            let at = self.within_request(&place, &row, member, range)?;
            let at = (at - wanted.offset) as usize;
            Some(wanted.buf[at..at + place.len].to_vec())
        };
        let slots = row.slots.iter().zip(read);
        let slots = slots.map(|(&member, read)| read.or_else(|| reused(member)));
        self.solve(slots.collect(), &row, row.data[place.data])
    }

    /// Computes the bytes of `member` from the known slots of a row.
    fn solve(&self, slots: Vec<Option<Vec<u8>>>, row: &Row, member: usize) -> io::Result<Vec<u8>> {
        let len = slots.iter().flatten().map(Vec::len).next().unwrap_or(0);
        let mut lost: Vec<usize> = (0..slots.len())
            .filter(|&slot| slots[slot].is_none())
            .collect();
        let mut members: Vec<Vec<u8>> = slots
            .into_iter()
            .map(|bytes| bytes.unwrap_or_else(|| vec![0; len]))
            .collect();
        let mut parities = self.layout.parities();
        let q = self.layout.data() + 1;
        if let [_, last] = *lost
            && last == q
        {
            // P alone is enough.
            members.truncate(q);
            lost.pop();
            parities = 1;
        }
        rebuild(&mut members, parities, &lost).map_err(|_| NotThere)?;
        let slot = row.slots.iter().position(|&other| other == member);
        Ok(members.swap_remove(slot.ok_or(NotThere)?))
    }

    /// Reads a part that is within one chunk, after a read has failed with `error`: as a whole, then by sectors.
    fn read_hard(&self, at: u64, buf: &mut [u8], error: io::Error) -> io::Result<()> {
        // A member that would block is not lost.
        if error.kind() == io::ErrorKind::WouldBlock || nonblocking::is_set() {
            return Err(error);
        }
        if self.read_from_any(at, buf).is_ok() {
            return Ok(());
        }
        for (index, sector) in buf.chunks_mut(SECTOR_BYTES).enumerate() {
            let at = at + (index * SECTOR_BYTES) as u64;
            if self.read_from_any(at, sector).is_err() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reads a part from its member, or from all others that can be read.
    fn read_from_any(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let place = self.place(at, buf.len());
        let row = self.layout.row(place.row);
        let offset = self.member_offset(&place);
        let read = |member: usize, buf: &mut [u8]| match &self.members[member] {
            Some(device) => device.read_at(buf, offset),
            None => Err(NotThere.into()),
        };
        let member = row.data[place.data];
        if read(member, buf).is_ok() {
            return Ok(());
        }
        let mut slots = Vec::with_capacity(row.slots.len());
        for &other in &row.slots {
            let mut bytes = vec![0; buf.len()];
            let is_read = other != member && read(other, &mut bytes).is_ok();
            slots.push(is_read.then_some(bytes));
        }
        buf.copy_from_slice(&self.solve(slots, &row, member)?);
        Ok(())
    }

    /// Returns the offset of a part on any member.
    fn member_offset(&self, place: &Place) -> u64 {
        place.row * self.chunk_bytes + place.within
    }
}

#[cfg(test)]
mod tests {
    use ubtrfs_device::MemDevice;

    use super::*;
    use crate::mapping::ReadOnly;

    // PARITY-1
    #[test]
    fn wide_degraded_arrays_are_read_in_small_windows() {
        let device = || Some(Arc::new(MemDevice::new(4 << 20)) as Arc<dyn BlockDevice>);
        let mut members: Vec<_> = (0..1000).map(|_| device()).collect();
        members[1] = None;
        let array = ParityArray {
            layout: ParityLayout::decode(6, 2, members.len()).expect("a known layout"),
            members,
            chunk_bytes: 1 << 20,
            rows: 4,
        };
        assert!(array.window_bytes() * array.members.len() <= BATCH_BYTES);
        let mut bytes = vec![1; 2 << 20];
        ReadOnly(array).read_at(&mut bytes, 0).expect("readable");
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}
