//! The target devices of a new volume.

use std::io;
use std::os::fd::BorrowedFd;

use ubtrfs_device::{BlockDevice, DeviceWrite, MappedChunk, find_signatures};
use ubtrfs_format::ids::{DevId, Physical};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};

use super::chunks::PlannedDevice;
use super::error::MkfsError;

/// Length of the range zeroed at the start of a device, where most formats have their signature, and at its end.
const WIPED_BYTES: u64 = 2 << 20;

/// A planned write to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedWrite {
    pub devid: DevId,
    pub physical: Physical,
    pub bytes: Vec<u8>,
}

/// The devices of a layout, by id.
#[derive(Debug)]
pub(super) struct Targets<'d> {
    devices: Vec<Target<'d>>,
}

#[derive(Debug)]
struct Target<'d> {
    devid: DevId,
    device: &'d dyn BlockDevice,
    /// The part of the device used by the volume, before it grows.
    used_bytes: u64,
}

impl<'d> Targets<'d> {
    pub(super) fn new(
        planned: &[PlannedDevice],
        devices: &[&'d dyn BlockDevice],
    ) -> Result<Targets<'d>, MkfsError> {
        if devices.len() != planned.len() {
            return Err(MkfsError::DeviceCount {
                devices: devices.len(),
                planned: planned.len(),
            });
        }
        let mut targets = Vec::with_capacity(devices.len());
        for (&device, planned) in devices.iter().zip(planned) {
            if device.len_bytes() < planned.total_bytes {
                return Err(MkfsError::DeviceShrank {
                    devid: planned.devid,
                    found: device.len_bytes(),
                    planned: planned.total_bytes,
                });
            }
            targets.push(Target {
                devid: planned.devid,
                device,
                used_bytes: planned.total_bytes,
            });
        }
        Ok(Targets { devices: targets })
    }

    /// Wipes the old contents: first the superblocks, durably, then the rest, with an optional `discard`.
    pub(super) fn wipe(&self, discard: bool) -> Result<(), MkfsError> {
        for target in &self.devices {
            target.wipe_superblocks()?;
        }
        self.flush()?;
        for target in &self.devices {
            target.wipe_contents(discard)?;
        }
        self.flush()
    }

    pub(super) fn put(&self, write: &PlannedWrite) -> Result<(), MkfsError> {
        self.target(write.devid)
            .write_at(write.physical, &write.bytes)
    }

    /// Writes bytes of a chunk to all copies.
    pub(super) fn write(
        &self,
        chunk: &MappedChunk,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), MkfsError> {
        for target in &self.devices {
            let mut writes = Vec::new();
            for mirror in 1..=chunk.mirrors() {
                for piece in chunk.pieces(offset, bytes.len() as u64, mirror) {
                    if piece.devid == target.devid {
                        let from = (piece.logical.0 - chunk.logical().0 - offset) as usize;
                        let bytes = &bytes[from..from + piece.len as usize];
                        writes.push(DeviceWrite::new(piece.physical.0, bytes));
                    }
                }
            }
            target.device.write_batch(&mut writes);
            for write in writes {
                write.result.map_err(|source| MkfsError::Write {
                    devid: target.devid,
                    physical: Physical(write.offset),
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// Reads bytes of a chunk from the first copy.
    pub(super) fn read(
        &self,
        chunk: &MappedChunk,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), MkfsError> {
        for piece in chunk.pieces(offset, buf.len() as u64, 1) {
            let from = (piece.logical.0 - chunk.logical().0 - offset) as usize;
            let buf = &mut buf[from..from + piece.len as usize];
            let device = self.target(piece.devid).device;
            let read = device.read_at(buf, piece.physical.0);
            read.map_err(|source| MkfsError::Read {
                devid: piece.devid,
                physical: piece.physical,
                source,
            })?;
        }
        Ok(())
    }

    /// Shares the blocks of a file with all copies of a range of a chunk.
    pub(super) fn share(
        &self,
        chunk: &MappedChunk,
        offset: u64,
        len: u64,
        source: BorrowedFd<'_>,
        source_offset: u64,
    ) -> io::Result<()> {
        for mirror in 1..=chunk.mirrors() {
            for piece in chunk.pieces(offset, len, mirror) {
                let device = self.target(piece.devid).device;
                let from = source_offset + (piece.logical.0 - chunk.logical().0 - offset);
                device.clone_range(source, from, piece.len, piece.physical.0)?;
            }
        }
        Ok(())
    }

    /// Grows images to the requested length. Longer ones keep their size.
    pub(super) fn lengthen(&self, wanted: impl Fn(DevId) -> u64) -> Result<(), MkfsError> {
        for target in &self.devices {
            let len_bytes = wanted(target.devid);
            if len_bytes > target.device.len_bytes() {
                target.resize(len_bytes)?;
            }
        }
        Ok(())
    }

    /// Truncates images to the requested length. Block devices keep their size.
    pub(super) fn cut(&self, wanted: impl Fn(DevId) -> u64) -> Result<(), MkfsError> {
        for target in &self.devices {
            match target.resize(wanted(target.devid)) {
                Err(MkfsError::Resize { source, .. })
                    if source.kind() == io::ErrorKind::Unsupported => {}
                resized => resized?,
            }
        }
        Ok(())
    }

    pub(super) fn flush(&self) -> Result<(), MkfsError> {
        for Target { devid, device, .. } in &self.devices {
            let devid = *devid;
            let flushed = device.flush();
            flushed.map_err(|source| MkfsError::Flush { devid, source })?;
        }
        Ok(())
    }

    fn target(&self, devid: DevId) -> &Target<'d> {
        let mut targets = self.devices.iter();
        let found = targets.find(|target| target.devid == devid);
        found.expect("a layout names its own devices")
    }
}

impl Target<'_> {
    fn write_at(&self, physical: Physical, bytes: &[u8]) -> Result<(), MkfsError> {
        let written = self.device.write_at(bytes, physical.0);
        written.map_err(|source| MkfsError::Write {
            devid: self.devid,
            physical,
            source,
        })
    }

    fn resize(&self, len_bytes: u64) -> Result<(), MkfsError> {
        let resized = self.device.resize(len_bytes);
        resized.map_err(|source| MkfsError::Resize {
            devid: self.devid,
            len_bytes,
            source,
        })
    }

    fn wipe_superblocks(&self) -> Result<(), MkfsError> {
        for offset in SUPERBLOCK_OFFSETS {
            self.zero(offset, SUPERBLOCK_SIZE as u64)?;
        }
        Ok(())
    }

    /// Removes the signatures of other formats from the device.
    fn wipe_contents(&self, discard: bool) -> Result<(), MkfsError> {
        if discard {
            // Only a hint: ranges that cannot be discarded are kept until they are overwritten.
            let _ = self.device.discard(0, self.used_bytes);
        }
        self.zero(0, WIPED_BYTES)?;
        // The space after a volume smaller than its device is not zeroed.
        let end = self.device.len_bytes().saturating_sub(WIPED_BYTES);
        if self.used_bytes > end {
            self.zero(end, WIPED_BYTES)?;
        }
        self.wipe_signatures()
    }

    /// Wipes the signatures of other formats on the whole device, including the space after a smaller volume.
    fn wipe_signatures(&self) -> Result<(), MkfsError> {
        let found = find_signatures(self.device).map_err(|source| MkfsError::Read {
            devid: self.devid,
            physical: Physical(0),
            source,
        })?;
        for mark in found.into_iter().flat_map(|found| found.marks) {
            self.zero(mark.start, mark.end - mark.start)?;
        }
        Ok(())
    }

    /// Zeroes a range, as far as the device has it.
    fn zero(&self, from: u64, len: u64) -> Result<(), MkfsError> {
        let len = len.min(self.device.len_bytes().saturating_sub(from));
        match len {
            0 => Ok(()),
            _ => self.write_at(Physical(from), &vec![0; len as usize]),
        }
    }
}
