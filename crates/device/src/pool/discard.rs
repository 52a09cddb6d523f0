//! Discards: telling devices which bytes are not needed.
//!
//! Invariants
//! - DISCARD-1: no discard touches the first MiB of a device, a copy of the superblock, or bytes behind what the
//!   volume has of the device.
//! - DISCARD-2: a discard is cut to whole units of the device. Nobody may expect zeros in what was discarded.
//! - DISCARD-3: a device that answers that it takes no discards is not asked again.
//!
//! Not here: when a range may be discarded. Its caller keeps others from using it until the call returns.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_format::superblock::SUPERBLOCK_OFFSETS;

use super::{Pool, PoolDevice, PresentDevice};
use crate::access::Access;
use crate::chunk_layout::RESERVED_BYTES;
use crate::chunk_map::STRIPE_LEN;
use crate::clock;
use crate::discard_geometry::{DiscardGeometry, MIN_GRANULARITY};
use crate::error::DeviceError;
use crate::nonblocking;

/// Discards that devices have done since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardCounts {
    pub requests: u64,
    pub bytes: u64,
    /// Time in all requests, failed ones included.
    pub ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct DiscardCounters {
    requests: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
}

impl DiscardCounters {
    fn add(&self, done_bytes: Option<u64>, took: Duration) {
        self.ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        if let Some(bytes) = done_bytes {
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// The ranges that one call discards, by device, ascending.
type RangesByDevice = BTreeMap<DevId, Vec<Range<u64>>>;

impl Pool {
    /// Says whether a present, writable device takes discards.
    pub fn can_discard(&self) -> bool {
        let table = self.devices.load();
        table
            .values()
            .any(|device| self.discard_geometry(device).is_some())
    }

    /// Says whether a device that has a part of the block group at `logical` takes discards, as far as is known.
    pub fn can_discard_at(&self, logical: Logical) -> bool {
        let Some(chunk) = self.chunk_map.find(logical) else {
            return false;
        };
        let mut devices = chunk.stripes().iter().map(|stripe| self.present(stripe));
        !chunk.has_parity()
            && devices.any(|device| device.is_some_and(|it| self.discard_geometry(&it).is_some()))
    }

    /// Says whether a device takes discards, as far as is known.
    pub fn can_discard_on(&self, devid: DevId) -> bool {
        let table = self.devices.load();
        let device = table.get(&devid);
        device.is_some_and(|device| self.discard_geometry(device).is_some())
    }

    /// The largest unit of discards of all devices that take them, at least 4 KiB.
    pub fn discard_granularity(&self) -> u64 {
        let table = self.devices.load();
        let units = table
            .values()
            .filter_map(|device| self.discard_geometry(device))
            .map(|limits| limits.granularity);
        units.max().unwrap_or(MIN_GRANULARITY)
    }

    /// Discards of all kinds so far.
    pub fn discard_counts(&self) -> DiscardCounts {
        DiscardCounts {
            requests: self.discards.requests.load(Ordering::Relaxed),
            bytes: self.discards.bytes.load(Ordering::Relaxed),
            ns: self.discards.ns.load(Ordering::Relaxed),
        }
    }

    /// Discards a logical range in all its copies and returns the bytes that devices were told of, in sum.
    ///
    /// Devices that are missing, read only or without discards are left out, and so are chunks with parity. A
    /// discard for which a file system finds no space counts nothing.
    ///
    /// # Errors
    /// No chunk there. A device that failed; the others have discarded their part.
    pub fn discard(&self, logical: Logical, len: u64) -> Result<u64, DeviceError> {
        nonblocking::check()?;
        let mut ranges = RangesByDevice::new();
        let mut at = logical.0;
        let mut rest = len;
        while rest > 0 {
            let chunk = self.chunk_map.get(Logical(at))?;
            let within = at - chunk.logical().0;
            let len = (chunk.len_bytes() - within).min(rest);
            // Chunks with parity are never written, so that nothing in them gets free.
            let mirrors = if chunk.has_parity() {
                0
            } else {
                chunk.mirrors()
            };
            for mirror in 1..=mirrors {
                for piece in chunk.pieces(within, len, mirror) {
                    let stripe = &chunk.stripes()[piece.stripe];
                    if self.present(stripe).is_some() {
                        let start = piece.physical.0;
                        push(&mut ranges, piece.devid, start..start + piece.len);
                    }
                }
            }
            rest -= len;
            at += len;
        }
        self.discard_ranges(ranges)
    }

    /// Discards a range of one device, like [`Pool::discard`]. It must belong to no chunk.
    pub fn discard_physical(
        &self,
        devid: DevId,
        offset: u64,
        len: u64,
    ) -> Result<u64, DeviceError> {
        nonblocking::check()?;
        let range = offset..offset.saturating_add(len);
        self.discard_ranges(BTreeMap::from([(devid, vec![range])]))
    }

    fn discard_ranges(&self, ranges: RangesByDevice) -> Result<u64, DeviceError> {
        let table = self.devices.load();
        let mut discarded = 0;
        let mut failure = None;
        for (devid, ranges) in ranges {
            let Some(device) = table.get(&devid) else {
                continue;
            };
            for range in ranges {
                match self.discard_range(device, range) {
                    Ok(bytes) => discarded += bytes,
                    Err(error) => {
                        tracing::error!(%devid, %error, "discard failed");
                        failure.get_or_insert(error);
                        break;
                    }
                }
            }
        }
        failure.map_or(Ok(discarded), Err)
    }

    /// The geometry of a device that may be written and takes discards.
    fn discard_geometry(&self, device: &PoolDevice) -> Option<DiscardGeometry> {
        let present = device.present.as_ref()?;
        let own = device.item?.fsid == *self.superblock.metadata_fsid();
        let is_writable = self.access == Access::Write && device.is_named && own;
        if !is_writable || present.refuses_discards.load(Ordering::Relaxed) {
            return None;
        }
        present.block.discard_geometry()
    }

    fn discard_range(
        &self,
        device: &PoolDevice,
        mut range: Range<u64>,
    ) -> Result<u64, DeviceError> {
        let (Some(limits), Some(present), Some(item)) =
            (self.discard_geometry(device), &device.present, &device.item)
        else {
            return Ok(0);
        };
        // DISCARD-1
        let end = present.block.len_bytes().min(item.total_bytes.get());
        range.end = range.end.min(end);
        let mut discarded = 0;
        for part in without_superblocks(range) {
            // DISCARD-2
            for request in requests(part, limits) {
                discarded += self.ask(present, request)?;
            }
        }
        Ok(discarded)
    }

    fn ask(&self, present: &PresentDevice, request: Range<u64>) -> Result<u64, DeviceError> {
        // DISCARD-3
        if present.refuses_discards.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let len = request.end - request.start;
        let begin = clock::now();
        let answer = present.block.discard(request.start, len);
        let done = answer.is_ok().then_some(len);
        self.discards.add(done, begin.elapsed());
        match answer {
            Ok(()) => Ok(len),
            Err(error) if is_refusal(&error) => {
                if !present.refuses_discards.swap(true, Ordering::Relaxed) {
                    tracing::warn!(path = %present.path.display(), "device takes no discards");
                }
                Ok(0)
            }
            // Some file systems need space to split an extent.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSPC) => Ok(0),
            Err(source) => Err(DeviceError::Discard {
                path: present.path.clone(),
                offset: request.start,
                len,
                source,
            }),
        }
    }
}

/// Adds a range, joined with the last one of the device that has a place in it.
fn push(ranges: &mut RangesByDevice, devid: DevId, range: Range<u64>) {
    let ranges = ranges.entry(devid).or_default();
    // The columns of a chunk take turns, so that the one to join is among the last.
    let joined = ranges
        .iter_mut()
        .rev()
        .find(|other| other.end == range.start);
    match joined {
        Some(other) => other.end = range.end,
        None => ranges.push(range),
    }
}

/// The parts of a range that hold no superblock copy and lie behind the reserved beginning.
fn without_superblocks(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut from = range.start.max(RESERVED_BYTES);
    let copies = SUPERBLOCK_OFFSETS.map(|offset| offset..offset + STRIPE_LEN);
    let end = range.end..range.end;
    copies.into_iter().chain([end]).filter_map(move |copy| {
        let part = from..copy.start.min(range.end);
        from = from.max(copy.end);
        (part.start < part.end).then_some(part)
    })
}

/// Cuts a range to whole units, and into requests that a device takes.
fn requests(range: Range<u64>, limits: DiscardGeometry) -> impl Iterator<Item = Range<u64>> {
    let unit = limits.granularity;
    let end = range.end - range.end % unit;
    let mut at = range.start.checked_next_multiple_of(unit).unwrap_or(end);
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let request = at..end.min(at.saturating_add(limits.max_bytes));
            at = request.end;
            request
        })
    })
}

/// Tells a device that takes no discards from one that failed.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || matches!(
            Errno::from_io_error(error),
            Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY)
        )
}
