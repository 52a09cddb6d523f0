//! Discards of unused ranges.
//!
//! Invariants
//! - DISCARD-1: no discard touches the first MiB of a device, a superblock copy, or bytes past the volume's part of
//!   the device.
//! - DISCARD-2: discards are aligned to the device's granularity. Reads of discarded space need not return zeros.
//! - DISCARD-3: a device that rejects a discard as unsupported gets no more discards, apart from those in flight.
//!
//! Not here: the time at which a range may be discarded. The caller prevents other uses of it until the call returns.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_format::superblock::SUPERBLOCK_OFFSETS;

use super::{Pool, PoolDevice, PresentDevice};
use crate::access::Access;
use crate::block_device::DeviceDiscard;
use crate::chunk_layout::RESERVED_BYTES;
use crate::chunk_map::STRIPE_LEN;
use crate::clock;
use crate::discard_geometry::{DiscardGeometry, MIN_GRANULARITY};
use crate::error::DeviceError;
use crate::nonblocking;

/// Discards that devices have executed since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardCounts {
    pub requests: u64,
    pub bytes: u64,
    /// Time during which a call had discards in flight, including failed ones.
    pub ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct DiscardCounters {
    requests: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
}

/// Maximum number of discards in flight per device.
const IN_FLIGHT: usize = 64;

/// A range of a device, with the index of the caller's range that it belongs to.
#[derive(Debug)]
struct Part {
    number: usize,
    range: Range<u64>,
}

type PartsByDevice = BTreeMap<DevId, Vec<Part>>;

/// Discarded bytes for each range of a call.
type Outcomes = Vec<Result<u64, DeviceError>>;

impl Pool {
    /// Returns whether a present and writable device supports discards.
    pub fn can_discard(&self) -> bool {
        let table = self.devices.load();
        table
            .values()
            .any(|device| self.discard_geometry(device).is_some())
    }

    /// Returns whether a device of the block group at `logical` supports discards, as far as known.
    pub fn can_discard_at(&self, logical: Logical) -> bool {
        let Some(chunk) = self.chunk_map.find(logical) else {
            return false;
        };
        let mut devices = chunk.stripes().iter().map(|stripe| self.present(stripe));
        !chunk.has_parity()
            && devices.any(|device| device.is_some_and(|it| self.discard_geometry(&it).is_some()))
    }

    /// Returns whether a device supports discards, as far as known.
    pub fn can_discard_on(&self, devid: DevId) -> bool {
        let table = self.devices.load();
        let device = table.get(&devid);
        device.is_some_and(|device| self.discard_geometry(device).is_some())
    }

    /// Returns the largest discard granularity of all devices, at least 4 KiB.
    pub fn discard_granularity(&self) -> u64 {
        let table = self.devices.load();
        let units = table
            .values()
            .filter_map(|device| self.discard_geometry(device))
            .map(|limits| limits.granularity);
        units.max().unwrap_or(MIN_GRANULARITY)
    }

    /// Returns the counts of all discards so far.
    pub fn discard_counts(&self) -> DiscardCounts {
        DiscardCounts {
            requests: self.discards.requests.load(Ordering::Relaxed),
            bytes: self.discards.bytes.load(Ordering::Relaxed),
            ns: self.discards.ns.load(Ordering::Relaxed),
        }
    }

    /// Discards a logical range in all its copies and returns the total bytes of the device discards.
    ///
    /// Skips devices that are missing, read-only or without discards, and chunks with parity. A discard that fails
    /// because the file system is full counts as 0 bytes.
    ///
    /// # Errors
    /// No chunk at this address, or a device error. The other devices have discarded their part even so.
    pub fn discard(&self, logical: Logical, len: u64) -> Result<u64, DeviceError> {
        let range = logical.0..logical.0.saturating_add(len);
        let mut outcomes = self.discard_all(&[range]);
        outcomes.pop().unwrap_or(Ok(0))
    }

    /// Discards several logical ranges like [`Pool::discard`], at queue depth on each device.
    pub fn discard_all(&self, ranges: &[Range<u64>]) -> Outcomes {
        let mut parts = PartsByDevice::new();
        let parts_of = |(number, range): (usize, &Range<u64>)| {
            self.add_parts(number, range, &mut parts)?;
            Ok(0)
        };
        let mut outcomes = ranges.iter().enumerate().map(parts_of).collect();
        self.discard_parts(&parts, &mut outcomes);
        outcomes
    }

    /// Discards a range of one device, like [`Pool::discard`]. The range must not belong to a chunk.
    pub fn discard_physical(
        &self,
        devid: DevId,
        offset: u64,
        len: u64,
    ) -> Result<u64, DeviceError> {
        nonblocking::check()?;
        let part = Part {
            number: 0,
            range: offset..offset.saturating_add(len),
        };
        let mut outcomes = vec![Ok(0)];
        self.discard_parts(&BTreeMap::from([(devid, vec![part])]), &mut outcomes);
        outcomes.pop().unwrap_or(Ok(0))
    }

    fn add_parts(
        &self,
        number: usize,
        logical: &Range<u64>,
        parts: &mut PartsByDevice,
    ) -> Result<(), DeviceError> {
        nonblocking::check()?;
        let mut at = logical.start;
        while at < logical.end {
            let chunk = self.chunk_map.get(Logical(at))?;
            let within = at - chunk.logical().0;
            let len = (chunk.len_bytes() - within).min(logical.end - at);
            // Chunks with parity are never written, so that no space in them is freed.
            let mirrors = if chunk.has_parity() {
                0
            } else {
                chunk.mirrors()
            };
            for mirror in 1..=mirrors {
                for piece in chunk.pieces(within, len, mirror) {
                    let stripe = &chunk.stripes()[piece.stripe];
                    if self.present(stripe).is_some() {
                        let range = piece.physical.0..piece.physical.0 + piece.len;
                        push(
                            parts.entry(piece.devid).or_default(),
                            Part { number, range },
                        );
                    }
                }
            }
            at += len;
        }
        Ok(())
    }

    fn discard_parts(&self, parts: &PartsByDevice, outcomes: &mut Outcomes) {
        let table = self.devices.load();
        for (&devid, parts) in parts {
            let Some(device) = table.get(&devid) else {
                continue;
            };
            if let Err((number, error)) = self.discard_on(device, parts, outcomes) {
                // A loop device is busy while its pages are being written. The range is not discarded then.
                if is_busy(&error) {
                    tracing::debug!(%devid, %error, "discard failed");
                } else {
                    tracing::error!(%devid, %error, "discard failed");
                }
                if outcomes[number].is_ok() {
                    outcomes[number] = Err(error);
                }
            }
        }
    }

    /// Returns the geometry of a device that is writable and supports discards.
    fn discard_geometry(&self, device: &PoolDevice) -> Option<DiscardGeometry> {
        let present = device.present.as_ref()?;
        let own = device.item?.fsid == *self.superblock.metadata_fsid();
        let is_writable = self.options.access == Access::Write && device.is_named && own;
        if !is_writable || present.refuses_discards.load(Ordering::Relaxed) {
            return None;
        }
        present.block.discard_geometry()
    }

    /// Discards the parts on one device. Stops at the first failure and returns it with the index of its range.
    fn discard_on(
        &self,
        device: &PoolDevice,
        parts: &[Part],
        outcomes: &mut Outcomes,
    ) -> Result<(), (usize, DeviceError)> {
        let (Some(limits), Some(present), Some(item)) =
            (self.discard_geometry(device), &device.present, &device.item)
        else {
            return Ok(());
        };
        // DISCARD-1
        let end = present.block.len_bytes().min(item.total_bytes.get());
        let mut discards = parts.iter().flat_map(|part| {
            let range = part.range.start..part.range.end.min(end);
            // DISCARD-2
            let requests = without_superblocks(range).flat_map(move |it| requests(it, limits));
            requests.map(|it| (part.number, DeviceDiscard::new(it.start, it.end - it.start)))
        });
        loop {
            let batch = discards.by_ref().take(IN_FLIGHT);
            let (numbers, mut batch): (Vec<usize>, Vec<DeviceDiscard>) = batch.unzip();
            // DISCARD-3
            if batch.is_empty() || present.refuses_discards.load(Ordering::Relaxed) {
                return Ok(());
            }
            let begin = clock::now();
            present.block.discard_batch(&mut batch);
            let took = (clock::now() - begin).as_nanos() as u64;
            self.discards.ns.fetch_add(took, Ordering::Relaxed);
            let mut failure = None;
            for (number, discard) in numbers.into_iter().zip(batch) {
                match self.count_discard(present, discard) {
                    Ok(bytes) => {
                        if let Ok(discarded) = &mut outcomes[number] {
                            *discarded += bytes;
                        }
                    }
                    Err(error) => _ = failure.get_or_insert((number, error)),
                }
            }
            failure.map_or(Ok(()), Err)?;
        }
    }

    /// Returns the number of bytes that the device discarded.
    fn count_discard(
        &self,
        present: &PresentDevice,
        discard: DeviceDiscard,
    ) -> Result<u64, DeviceError> {
        let DeviceDiscard {
            offset,
            len,
            result,
        } = discard;
        match result {
            Ok(()) => {
                self.discards.requests.fetch_add(1, Ordering::Relaxed);
                self.discards.bytes.fetch_add(len, Ordering::Relaxed);
                Ok(len)
            }
            Err(error) if is_refusal(&error) => {
                if !present.refuses_discards.swap(true, Ordering::Relaxed) {
                    tracing::warn!(path = %present.path.display(), "device takes no discards");
                }
                Ok(0)
            }
            // Some file systems need free space to split an extent.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSPC) => Ok(0),
            Err(source) => Err(DeviceError::Discard {
                path: present.path.clone(),
                offset,
                len,
                source,
            }),
        }
    }
}

fn is_busy(error: &DeviceError) -> bool {
    match error {
        DeviceError::Discard { source, .. } => Errno::from_io_error(source) == Some(Errno::BUSY),
        _ => false,
    }
}

/// Adds a part, merged with an adjacent earlier one of the same range.
fn push(parts: &mut Vec<Part>, part: Part) {
    // The columns of a chunk alternate, so that the adjacent part is among the last ones.
    let joined = parts
        .iter_mut()
        .rev()
        .take_while(|other| other.number == part.number)
        .find(|other| other.range.end == part.range.start);
    match joined {
        Some(other) => other.range.end = part.range.end,
        None => parts.push(part),
    }
}

/// Returns the subranges without superblock copies and without the reserved area at the start.
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

/// Aligns a range to the granularity and splits it into requests of the maximum size.
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

/// Returns whether an error means that discards are unsupported, as opposed to a failure.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || matches!(
            Errno::from_io_error(error),
            Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY)
        )
}
