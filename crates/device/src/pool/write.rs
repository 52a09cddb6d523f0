//! Writing to every copy, flushing, and superblocks in their order.
//!
//! Invariants
//! - WRITE-1: a range counts as written if every piece of it is on as many devices as its profile needs to survive.
//!   A copy that failed is reported, and one on a missing device is left out.
//! - WRITE-2: no superblock is written before everything that it leads to was flushed. Of a device's copies one is
//!   valid and durable at any time.
//!
//! Not here: profiles with parity, which are read only; what a superblock says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_format::item::DevItem;
use ubtrfs_format::superblock::Superblock;

use super::{Pool, PoolDevice};
use crate::block_device::DeviceWrite;
use crate::error::DeviceError;
use crate::nonblocking;
use crate::superblock::{Copies, write_superblock_copies};

/// One piece of a write on one device.
struct PlannedWrite<'a> {
    logical: Logical,
    offset: u64,
    buf: &'a [u8],
    /// How many of this piece's copies may fail, and which piece it is.
    tolerated: usize,
    piece: usize,
}

/// The writes of one call by device.
#[derive(Default)]
struct Plan<'a> {
    by_device: BTreeMap<DevId, (Option<Arc<PoolDevice>>, Vec<PlannedWrite<'a>>)>,
    pieces: usize,
}

/// Whether a write succeeds of which copies fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failures {
    Tolerated,
    Refused,
}

impl Pool {
    /// Writes each buffer at its logical address, to all copies, in no order. Durable after the next
    /// [`Pool::flush`].
    ///
    /// Errors: no chunk there, a profile with parity, more failed copies than the profile tolerates.
    pub fn write(&self, writes: &[(Logical, &[u8])]) -> Result<(), DeviceError> {
        self.write_planned(writes, Failures::Tolerated)
    }

    /// Writes like [`Pool::write`], but a copy that fails on a device that is there is an error.
    pub fn write_all_copies(&self, writes: &[(Logical, &[u8])]) -> Result<(), DeviceError> {
        self.write_planned(writes, Failures::Refused)
    }

    fn write_planned(
        &self,
        writes: &[(Logical, &[u8])],
        wanted: Failures,
    ) -> Result<(), DeviceError> {
        nonblocking::check()?;
        let mut plan = Plan::default();
        for &(logical, buf) in writes {
            self.plan_write(logical, buf, &mut plan)?;
        }
        let mut failures: BTreeMap<usize, usize> = BTreeMap::new();
        for (devid, (device, planned)) in plan.by_device {
            let Some(device) = device else {
                for write in &planned {
                    count_failure(&mut failures, write, || DeviceError::NoCopy {
                        logical: write.logical,
                    })?;
                }
                continue;
            };
            let mut requests: Vec<DeviceWrite<'_>> = planned
                .iter()
                .map(|write| DeviceWrite::new(write.offset, write.buf))
                .collect();
            if let Some(block) = device.block() {
                block.write_batch(&mut requests);
            }
            for (request, write) in requests.into_iter().zip(&planned) {
                let Err(source) = request.result else {
                    self.count_written(write.buf.len() as u64);
                    continue;
                };
                tracing::error!(%devid, offset = write.offset, logical = %write.logical, error = %source, "write failed");
                let failed = || DeviceError::WriteRaw {
                    path: device.path().map(ToOwned::to_owned).unwrap_or_default(),
                    offset: write.offset,
                    len: write.buf.len() as u64,
                    source,
                };
                if wanted == Failures::Refused {
                    return Err(failed());
                }
                count_failure(&mut failures, write, failed)?;
            }
        }
        Ok(())
    }

    fn count_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns how many bytes devices took since the pool was opened: data and blocks in all copies, superblocks, zeros
    /// in holes.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    fn plan_write<'a>(
        &self,
        logical: Logical,
        buf: &'a [u8],
        plan: &mut Plan<'a>,
    ) -> Result<(), DeviceError> {
        let table = self.devices.load();
        let mut at = logical.0;
        let mut rest = buf;
        while !rest.is_empty() {
            let chunk = self.chunk_map.get(Logical(at))?;
            if chunk.has_parity() {
                return Err(DeviceError::ParityWrite {
                    logical: chunk.logical(),
                });
            }
            let within = at - chunk.logical().0;
            let len = (chunk.len_bytes() - within).min(rest.len() as u64);
            let tolerated = chunk.profile().tolerated_failures();
            for mirror in 1..=chunk.mirrors() {
                let mut from = 0usize;
                for (number, piece) in chunk.pieces(within, len, mirror).enumerate() {
                    let stripe = &chunk.stripes()[piece.stripe];
                    let device = table.get(&piece.devid).filter(|device| {
                        device.uuid == stripe.dev_uuid && device.present.is_some()
                    });
                    let part = &rest[from..from + piece.len as usize];
                    from += part.len();
                    let planned = PlannedWrite {
                        logical: piece.logical,
                        offset: piece.physical.0,
                        buf: part,
                        tolerated,
                        piece: plan.pieces + number,
                    };
                    let (_, writes) = plan
                        .by_device
                        .entry(piece.devid)
                        .or_insert_with(|| (device.cloned(), Vec::new()));
                    writes.push(planned);
                }
            }
            plan.pieces += chunk.pieces(within, len, 1).count();
            rest = &rest[len as usize..];
            at += len;
        }
        Ok(())
    }

    /// Gives a range space below images, in all its copies, for writes that come later. The range is not in use, and
    /// what fails is left to those writes.
    pub fn fill_holes(&self, logical: Logical, len: u64) {
        let Ok(chunk) = self.chunk_map.get(logical) else {
            return;
        };
        if chunk.has_parity() {
            return;
        }
        let within = logical.0 - chunk.logical().0;
        let len = len.min(chunk.len_bytes() - within);
        for mirror in 1..=chunk.mirrors() {
            for piece in chunk.pieces(within, len, mirror) {
                let Some(device) = self.present(&chunk.stripes()[piece.stripe]) else {
                    continue;
                };
                let Some(block) = device.block() else {
                    continue;
                };
                match block.fill_holes(piece.physical.0, piece.len) {
                    Ok(bytes) => self.count_written(bytes),
                    Err(error) => tracing::debug!(%logical, len, %error, "holes stay"),
                }
            }
        }
    }

    /// Makes every write that has returned durable, on all devices.
    pub fn flush(&self) -> Result<(), DeviceError> {
        nonblocking::check()?;
        for device in self.devices.load().values() {
            if let (Some(block), Some(path)) = (device.block(), device.path()) {
                block.flush().map_err(|source| DeviceError::Flush {
                    path: path.to_owned(),
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// Writes the superblock of every device (WRITE-2): `superblock` with the device's own item. Returns
    /// when the first copies are durable.
    ///
    /// Everything that it leads to must have been flushed.
    pub fn commit_superblock(&self, superblock: &Superblock) -> Result<(), DeviceError> {
        self.write_first_superblocks(superblock, || Ok::<_, DeviceError>(()))?;
        self.write_other_superblocks(superblock)
    }

    /// Writes the first copy of every device's superblock: of a commit, or of a log. Returns when it is durable. Calls
    /// `between` after each device but the last.
    ///
    /// Everything that it leads to must have been flushed.
    ///
    /// # Errors
    /// Those of `between` and of the devices. Nothing is written after the first one.
    pub fn write_first_superblocks<E: From<DeviceError>>(
        &self,
        superblock: &Superblock,
        between: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        nonblocking::check().map_err(DeviceError::from)?;
        // From here on copies of this generation are our own (JUDGE-2), even if not all get written.
        let generation = superblock.generation.get();
        self.generation.fetch_max(generation, Ordering::AcqRel);
        // COPIES-1
        self.write_copies(superblock, Copies::First, between)?;
        Ok(self.flush()?)
    }

    /// Writes the other copies like the first ones of [`Pool::write_first_superblocks`]. The next flush makes them durable.
    pub fn write_other_superblocks(&self, superblock: &Superblock) -> Result<(), DeviceError> {
        nonblocking::check()?;
        self.write_copies(superblock, Copies::Others, || Ok(()))
    }

    fn write_copies<E: From<DeviceError>>(
        &self,
        superblock: &Superblock,
        copies: Copies,
        mut between: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut is_first = true;
        for device in self.devices.load().values() {
            let (Some(block), Some(path), Some(item)) =
                (device.block(), device.path(), device.item)
            else {
                continue;
            };
            if !device.is_named || item.fsid != *superblock.metadata_fsid() {
                // A stranger's device, or a seed's, stays as it is.
                continue;
            }
            if !is_first {
                between()?;
            }
            is_first = false;
            let own = Superblock {
                dev_item: item,
                ..superblock.clone()
            };
            self.count_written(write_superblock_copies(&**block, path, &own, copies)?);
        }
        Ok(())
    }

    /// Returns the device items, for callers that change them.
    pub fn dev_items(&self) -> Vec<DevItem> {
        let table = self.devices.load();
        table.values().filter_map(|device| device.item).collect()
    }
}

fn count_failure(
    failures: &mut BTreeMap<usize, usize>,
    write: &PlannedWrite<'_>,
    error: impl FnOnce() -> DeviceError,
) -> Result<(), DeviceError> {
    let failed = failures.entry(write.piece).or_default();
    *failed += 1;
    // WRITE-1
    if *failed > write.tolerated {
        return Err(error());
    }
    Ok(())
}
