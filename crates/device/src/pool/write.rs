//! Writes to all copies, flushes, and the order of superblock writes.
//!
//! Invariants
//! - WRITE-1: a write succeeds if every piece is on as many devices as its profile needs to survive. Failed copies
//!   are logged, and copies on missing devices are skipped.
//! - WRITE-2: no superblock is written before everything it refers to was flushed. At any time one copy of each
//!   device is valid and durable.
//! - WRITE-3: a flush succeeds if every chunk is whole without the devices on which it failed. Devices with a failed
//!   write since the last flush count as failed, too. A superblock write succeeds if one device has it. The copies
//!   after a device's first one may fail.
//!
//! Not here: profiles with parity, which are read-only; the contents of superblocks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_format::item::DevItem;
use ubtrfs_format::superblock::Superblock;

use super::device_errors::DeviceErrorKind;
use super::{Pool, PoolDevice};
use crate::block_device::{BlockDevice, DeviceWrite};
use crate::error::DeviceError;
use crate::nonblocking;
use crate::superblock::{Copies, write_superblock_copies};

/// One piece of a write, on one device.
struct PlannedWrite<'a> {
    logical: Logical,
    offset: u64,
    buf: &'a [u8],
    /// The number of copies of this piece that may fail, and the index of the piece.
    tolerated: usize,
    piece: usize,
}

/// The writes of one call, grouped by device.
#[derive(Default)]
struct Plan<'a> {
    by_device: BTreeMap<DevId, (Option<Arc<PoolDevice>>, Vec<PlannedWrite<'a>>)>,
    pieces: usize,
}

/// Whether failed copies may be tolerated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failures {
    Tolerated,
    Refused,
}

/// The devices that received a flush or a superblock.
#[derive(Debug)]
pub enum Reached {
    /// All present devices.
    All,
    /// Enough of them (WRITE-3), with the first error of the others.
    Enough(DeviceError),
}

impl Reached {
    /// Returns an error unless all present devices were reached.
    pub fn all(self) -> Result<(), DeviceError> {
        match self {
            Reached::All => Ok(()),
            Reached::Enough(error) => Err(error),
        }
    }

    fn of(error: Option<DeviceError>) -> Reached {
        error.map_or(Reached::All, Reached::Enough)
    }
}

/// The devices on which a request failed, and the first error.
#[derive(Debug, Default)]
struct FailedDevices {
    devids: BTreeSet<DevId>,
    first: Option<DeviceError>,
}

impl FailedDevices {
    fn add(&mut self, devid: DevId, error: DeviceError) {
        self.devids.insert(devid);
        self.first.get_or_insert(error);
    }
}

impl Pool {
    /// Writes each buffer at its logical address, to all copies, in any order. The data is durable after the next
    /// [`Pool::flush`].
    ///
    /// Errors: no chunk at the address, a profile with parity, or more failed copies than the profile tolerates.
    pub fn write(&self, writes: &[(Logical, &[u8])]) -> Result<(), DeviceError> {
        // REPLACE-2: before the plan, which names the replacements.
        let _writing = self.writes.read();
        self.write_planned(self.plan_writes(writes)?, Failures::Tolerated)
    }

    /// Writes like [`Pool::write`], but a failed copy on a present device is an error. The other copies are written
    /// nevertheless.
    pub fn write_all_copies(&self, writes: &[(Logical, &[u8])]) -> Result<(), DeviceError> {
        let _writing = self.writes.read();
        self.write_planned(self.plan_writes(writes)?, Failures::Refused)
    }

    /// Writes data without checksums like [`Pool::write_all_copies`], because old and new copies would be
    /// indistinguishable. A failed flush is an error then, too (MISSED-2).
    pub fn write_unsummed(&self, writes: &[(Logical, &[u8])]) -> Result<(), DeviceError> {
        let _writing = self.writes.read();
        let plan = self.plan_writes(writes)?;
        let devices = plan
            .by_device
            .values()
            .filter_map(|(device, _)| device.clone());
        let devices: Vec<Arc<PoolDevice>> = devices.collect();
        let note = || {
            devices
                .iter()
                .for_each(|device| device.errors.note_unsummed())
        };
        // Before the write, for a concurrent flush that fails; after it, for the flush that covers it.
        note();
        let written = self.write_planned(plan, Failures::Refused);
        note();
        written
    }

    fn plan_writes<'a>(&self, writes: &[(Logical, &'a [u8])]) -> Result<Plan<'a>, DeviceError> {
        nonblocking::check()?;
        let mut plan = Plan::default();
        for &(logical, buf) in writes {
            self.plan_write(logical, buf, &mut plan)?;
        }
        Ok(plan)
    }

    fn write_planned(&self, plan: Plan<'_>, wanted: Failures) -> Result<(), DeviceError> {
        let mut refused = None;
        let mut failures: BTreeMap<usize, usize> = BTreeMap::new();
        for (devid, (device, planned)) in plan.by_device {
            // The copies on a missing device count as failed, which is tolerated even with `Failures::Refused`.
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
            if let Some(replacement) = &device.replacement {
                let writes = planned.iter();
                let mut repeated: Vec<_> = writes
                    .map(|write| DeviceWrite::new(write.offset, write.buf))
                    .collect();
                replacement.write(&mut repeated);
            }
            let Some(block) = device.block() else {
                for write in &planned {
                    count_failure(&mut failures, write, || DeviceError::NoCopy {
                        logical: write.logical,
                    })?;
                }
                continue;
            };
            block.write_batch(&mut requests);
            for (request, write) in requests.into_iter().zip(&planned) {
                let Err(source) = request.result else {
                    self.count_written(write.buf.len() as u64);
                    continue;
                };
                // The next flush counts this device as failed (WRITE-3).
                device.errors.note_failed_write();
                if device.errors.count(DeviceErrorKind::Write) {
                    tracing::error!(%devid, offset = write.offset, logical = %write.logical, error = %source, "write failed");
                }
                let failed = || DeviceError::WriteRaw {
                    path: device.path().map(ToOwned::to_owned).unwrap_or_default(),
                    offset: write.offset,
                    len: write.buf.len() as u64,
                    source,
                };
                if wanted == Failures::Refused {
                    refused.get_or_insert_with(failed);
                } else {
                    count_failure(&mut failures, write, failed)?;
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    pub(super) fn count_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the total bytes written to devices since the pool was opened: data and blocks in all copies,
    /// superblocks, and zeros in holes.
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
                    let device = table
                        .get(&piece.devid)
                        .filter(|device| device.uuid == stripe.dev_uuid && device.takes_writes());
                    let part = &rest[from..from + piece.len as usize];
                    from += part.len();
                    // All copies of a piece have the same number, so that their failures are counted together.
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

    /// Allocates the space of a range in sparse images, in all copies, for later writes. The range must be unused.
    /// Errors are ignored, because the later writes will report them.
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

    /// Makes all completed writes durable on all present devices (WRITE-3).
    ///
    /// A device on which it failed may have lost writes since the last flush.
    pub fn flush(&self) -> Result<Reached, DeviceError> {
        let failed = self.flush_devices()?;
        Ok(Reached::of(failed.first))
    }

    /// Flushes all devices. Returns the failed ones if that is tolerated.
    fn flush_devices(&self) -> Result<FailedDevices, DeviceError> {
        nonblocking::check()?;
        let mut failed = FailedDevices::default();
        let mut lost_unsummed = false;
        let mut lost = BTreeSet::new();
        for (&devid, device) in self.devices.load().iter() {
            // This flush may lose other copies of the data of a failed write.
            if device.errors.take_failed_write() {
                lost.insert(devid);
            }
            if let Some(replacement) = &device.replacement
                && !self.options.skips_flushes
                && let Err(error) = replacement.block.flush()
            {
                replacement.fail(&error);
            }
            let (Some(block), Some(path)) = (device.block(), device.path()) else {
                continue;
            };
            let had_unsummed = device.errors.begin_flush();
            let flushed = if self.options.skips_flushes {
                Ok(())
            } else {
                block.flush()
            };
            let Err(source) = flushed else {
                continue;
            };
            // MISSED-2
            lost_unsummed |= had_unsummed || device.errors.has_unsummed();
            let is_told = device.errors.count(DeviceErrorKind::Flush);
            let error = DeviceError::Flush {
                path: path.to_owned(),
                source,
            };
            if is_told {
                tracing::error!(%devid, %error, "flush failed");
            }
            failed.add(devid, error);
        }
        lost.extend(&failed.devids);
        let is_tolerated = || !lost_unsummed && self.tolerates_loss_of(&lost);
        match failed.first {
            // WRITE-3
            Some(error) if !is_tolerated() => Err(error),
            first => {
                let lost = failed.devids.len() as u64;
                self.failed_flushes.fetch_add(lost, Ordering::AcqRel);
                Ok(FailedDevices { first, ..failed })
            }
        }
    }

    /// Writes the superblock to every device (WRITE-2): `superblock` with the device's own item. Returns after the
    /// first copies are durable.
    ///
    /// Everything it refers to must have been flushed.
    pub fn commit_superblock(&self, superblock: &Superblock) -> Result<Reached, DeviceError> {
        let reached = self.write_first_superblocks(superblock, || Ok::<_, DeviceError>(()))?;
        self.write_other_superblocks(superblock)?;
        Ok(reached)
    }

    /// Writes the first superblock copy of every device, for a commit or a log sync. Returns when it is durable on at
    /// least one device (WRITE-3). Calls `between` after each device except the last.
    ///
    /// Everything it refers to must have been flushed.
    ///
    /// # Errors
    /// Errors of `between`, which stop the writes; no device accepted the superblock; or the flush failed.
    pub fn write_first_superblocks<E: From<DeviceError>>(
        &self,
        superblock: &Superblock,
        between: impl FnMut() -> Result<(), E>,
    ) -> Result<Reached, E> {
        nonblocking::check().map_err(DeviceError::from)?;
        // From here on, copies with this generation are our own (DEVICE-CHECKS-2), even if not all of them are written.
        let generation = superblock.generation.get();
        self.generation.fetch_max(generation, Ordering::AcqRel);
        let joined = self.write_joining(superblock)?;
        // COPIES-1
        let mut failed = self.write_copies(superblock, Copies::First, &joined, between)?;
        if let Some(error) = self.unless_one_has(superblock, &mut failed) {
            return Err(error.into());
        }
        let mut unflushed = self.flush_devices()?;
        failed.devids.append(&mut unflushed.devids);
        failed.first = failed.first.or(unflushed.first);
        match self.unless_one_has(superblock, &mut failed) {
            Some(error) => Err(error.into()),
            None => Ok(Reached::of(failed.first)),
        }
    }

    /// Writes the superblock to the devices that join the volume, durably (MEMBER-2). Returns these devices.
    fn write_joining(&self, superblock: &Superblock) -> Result<BTreeSet<DevId>, DeviceError> {
        let mut joined = BTreeSet::new();
        for device in self.devices.load().values() {
            let (Some(item), Some(place)) = (device.item, device.joining()) else {
                continue;
            };
            // A flush since the change of the devices may have failed.
            if device.replacement.is_some() {
                self.replacement_of(device.devid)?;
            }
            let own = Superblock {
                dev_item: item,
                ..superblock.clone()
            };
            let (block, path) = (&**place.block, place.path);
            let written = write_superblock_copies(block, path, &own, Copies::First);
            self.count_written(written.len_bytes);
            if let Some(error) = written.error {
                return Err(error);
            }
            if !self.options.skips_flushes {
                block.flush().map_err(|source| DeviceError::Flush {
                    path: path.to_owned(),
                    source,
                })?;
            }
            place.has_superblock.store(true, Ordering::Release);
            joined.insert(device.devid);
        }
        Ok(joined)
    }

    /// Returns the error if the superblock failed on all of its target devices.
    fn unless_one_has(
        &self,
        superblock: &Superblock,
        failed: &mut FailedDevices,
    ) -> Option<DeviceError> {
        let table = self.devices.load();
        let mut targets = table.values().filter(|device| device.is_target(superblock));
        if targets.all(|device| failed.devids.contains(&device.devid)) {
            failed.first.take()
        } else {
            None
        }
    }

    /// Writes the other copies of [`Pool::write_first_superblocks`]. The next flush makes them durable. Errors are
    /// only logged.
    pub fn write_other_superblocks(&self, superblock: &Superblock) -> Result<(), DeviceError> {
        nonblocking::check()?;
        let written = BTreeSet::new();
        self.write_copies(superblock, Copies::Others, &written, || {
            Ok::<_, DeviceError>(())
        })?;
        Ok(())
    }

    fn write_copies<E: From<DeviceError>>(
        &self,
        superblock: &Superblock,
        copies: Copies,
        written: &BTreeSet<DevId>,
        mut between: impl FnMut() -> Result<(), E>,
    ) -> Result<FailedDevices, E> {
        let mut is_first = true;
        let mut failed = FailedDevices::default();
        for device in self.devices.load().values() {
            let (Some(place), Some(item)) = (device.superblock_place(), device.item) else {
                continue;
            };
            let (block, path) = (place.block, place.path);
            if !device.is_own(superblock) || written.contains(&device.devid) {
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
            let written = write_superblock_copies(&**block, path, &own, copies);
            self.count_written(written.len_bytes);
            // WRITE-3
            if let Some(error) = written.error {
                if device.errors.count(DeviceErrorKind::Write) {
                    tracing::error!(devid = %device.devid, %error, "superblock copy not written");
                }
                failed.add(device.devid, error);
            }
        }
        Ok(failed)
    }

    /// Returns the device items, for callers that modify them.
    pub fn dev_items(&self) -> Vec<DevItem> {
        let table = self.devices.load();
        table.values().filter_map(|device| device.item).collect()
    }
}

impl PoolDevice {
    /// Returns whether superblocks of the volume are written to the device or its replacement. Foreign devices and seeds
    /// are not modified.
    fn is_target(&self, superblock: &Superblock) -> bool {
        self.superblock_place().is_some() && self.is_own(superblock)
    }

    /// Returns the place of the device's superblocks: itself, or a replacement that is complete.
    fn superblock_place(&self) -> Option<SuperblockPlace<'_>> {
        if let Some(replacement) = &self.replacement
            && replacement.takes_superblocks()
        {
            return Some(SuperblockPlace {
                block: &replacement.block,
                path: &replacement.path,
                has_superblock: &replacement.has_superblock,
            });
        }
        let present = self.present.as_ref()?;
        Some(SuperblockPlace {
            block: &present.block,
            path: &present.path,
            has_superblock: &present.has_superblock,
        })
    }

    /// Returns the place of the first superblock of a device that joins the volume.
    fn joining(&self) -> Option<SuperblockPlace<'_>> {
        let place = self.superblock_place()?;
        (!place.has_superblock.load(Ordering::Acquire)).then_some(place)
    }
}

/// Where the superblocks of a device are written.
struct SuperblockPlace<'a> {
    block: &'a Arc<dyn BlockDevice>,
    path: &'a Path,
    has_superblock: &'a AtomicBool,
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
