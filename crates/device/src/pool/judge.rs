//! Judging the devices of a pool: whether they are what the chunk tree says, and still are before a commit.
//!
//! Invariants
//! - JUDGE-1: nothing is written to a volume whose superblock or device items say something else than its devices.
//! - JUDGE-2: a commit begins only if copy 0 of each device is still the volume's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, flags};

use super::{DeviceTable, Pool, PoolDevice};
use crate::access::Access;
use crate::chunk_map::MappedChunk;
use crate::chunk_problem::ChunkProblem;
use crate::error::{DeviceError, SuperblockChange};

impl Pool {
    /// Judges the devices once the chunk tree was read: none may be missing or truncated, unless `degraded` allows
    /// it. Writing needs more, even so. Every device that is there must be whole. No chunk may have lost more than
    /// its profile tolerates. The superblock must know of all bytes of its devices.
    pub fn check_devices(&self) -> Result<(), DeviceError> {
        self.drop_unnamed();
        for device in self.devices.load().values() {
            if let Err(error) = device.check(self.is_dump()) {
                // Not even the superblocks of a shrunk device would be where they belong.
                let is_accepted = if device.present.is_some() {
                    self.accepts_truncated() && self.access == Access::Read
                } else {
                    self.degraded
                };
                if !is_accepted {
                    return Err(error);
                }
                tracing::warn!(%error, "degraded");
            }
        }
        for chunk in self.chunk_map.all().iter() {
            self.check_places(chunk)?;
            let lost = chunk.stripes().iter().filter(|s| self.present(s).is_none());
            let missing = lost.clone().count();
            if missing == 0 {
                continue;
            }
            if !self.degraded
                && let Some(stripe) = lost.clone().next()
            {
                return Err(stripe.missing());
            }
            if self.access == Access::Write && missing > chunk.profile().tolerated_failures() {
                return Err(DeviceError::Unwritable {
                    logical: chunk.logical(),
                    profile: chunk.profile(),
                    missing,
                });
            }
        }
        self.check_fsids()?;
        self.check_total_bytes()
    }

    /// Refuses a device item that names another file system than its device does. The kernel takes it for the item of a
    /// seed, finds no such device, and does not mount the volume.
    fn check_fsids(&self) -> Result<(), DeviceError> {
        for device in self.devices.load().values() {
            let (Some(present), Some(item)) = (&device.present, device.item) else {
                continue;
            };
            let own = *present.superblock.metadata_fsid();
            if item.fsid == own {
                continue;
            }
            let error = DeviceError::DeviceFsid {
                devid: device.devid,
                item: item.fsid,
                device: own,
            };
            // JUDGE-1
            if self.access == Access::Write {
                return Err(error);
            }
            tracing::warn!(devid = %device.devid, item = %item.fsid, device = %own, "device item of another file system");
        }
        Ok(())
    }

    /// Drops the devices that only their own superblocks call members (POOL-3).
    fn drop_unnamed(&self) {
        let table = self.devices.load();
        let (named, extra): (DeviceTable, DeviceTable) = table
            .iter()
            .map(|(devid, device)| (*devid, Arc::clone(device)))
            .partition(|(_, device)| device.is_named);
        if extra.is_empty() {
            return;
        }
        for device in extra.values() {
            let path = device
                .path()
                .map(std::path::Path::display)
                .map(tracing::field::display);
            tracing::warn!(path, devid = %device.devid, "is no device of the volume: left alone");
        }
        self.devices.store(Arc::new(named));
    }

    /// Refuses a volume whose superblock knows of fewer bytes than its devices have, as the kernel does at a mount.
    fn check_total_bytes(&self) -> Result<(), DeviceError> {
        let table = self.devices.load();
        let present = table.values().filter(|device| device.present.is_some());
        let items = present.filter_map(|device| device.item);
        let own = items.filter(|item| item.fsid == *self.superblock.metadata_fsid());
        let devices_bytes = own.fold(0u64, |sum, item| sum.saturating_add(item.total_bytes.get()));
        let total_bytes = self.superblock.total_bytes.get();
        if total_bytes >= devices_bytes || self.is_dump() {
            return Ok(());
        }
        // JUDGE-1
        if self.access == Access::Write {
            return Err(DeviceError::TotalBytes {
                total_bytes,
                devices_bytes,
            });
        }
        tracing::warn!(
            total_bytes,
            devices_bytes,
            "the superblock knows of fewer bytes than the devices have"
        );
        Ok(())
    }

    /// Checks that every stripe ends within its device. The chunk map bounds what reads may ask for only if this holds.
    fn check_places(&self, chunk: &MappedChunk) -> Result<(), DeviceError> {
        if self.accepts_truncated() || self.is_dump() {
            return Ok(());
        }
        for (index, stripe) in chunk.stripes().iter().enumerate() {
            let Some(device) = self.present(stripe) else {
                continue;
            };
            let len_bytes = device.block().map_or(0, |block| block.len_bytes());
            let physical = stripe.physical.0;
            if physical.saturating_add(chunk.stripe_bytes()) > len_bytes {
                return Err(DeviceError::Chunk {
                    logical: chunk.logical(),
                    problem: ChunkProblem::StripePlace { index, physical },
                });
            }
        }
        Ok(())
    }

    /// Returns whether a device may be shorter than its item says. Blocks behind its end cannot be read.
    fn accepts_truncated(&self) -> bool {
        self.degraded || self.ignores_truncation
    }

    /// Returns whether the volume is a metadata dump, which keeps the sizes of the volume that it was taken from.
    fn is_dump(&self) -> bool {
        self.superblock.flags.get() & (flags::METADUMP | flags::METADUMP_V2) != 0
    }

    /// Checks that no other program has written to copy 0 of a device (JUDGE-2). A program that ignores locks may
    /// have made something else of the device, or committed to the volume.
    ///
    /// A copy that cannot be read is no error here.
    pub fn check_unchanged(&self) -> Result<(), DeviceError> {
        let known = self.generation.load(Ordering::Acquire);
        for device in self.devices.load().values() {
            let (Some(block), Some(path), Some(item)) =
                (device.block(), device.path(), device.item)
            else {
                continue;
            };
            if item.fsid != *self.superblock.metadata_fsid() {
                continue;
            }
            let mut bytes = [0; SUPERBLOCK_SIZE];
            if block.read_at(&mut bytes, SUPERBLOCK_OFFSETS[0]).is_err() {
                continue;
            }
            let Some(found) = Superblock::from_block(&bytes) else {
                continue;
            };
            let is_own = found.magic == MAGIC
                && found.fsid == self.superblock.fsid
                && found.dev_item.uuid == item.uuid;
            let generation = found.generation.get();
            let change = match is_own {
                false => SuperblockChange::Replaced,
                true if generation > known => SuperblockChange::Newer {
                    found: generation,
                    known,
                },
                true => continue,
            };
            let path = path.to_owned();
            return Err(DeviceError::Changed { path, change });
        }
        Ok(())
    }
}

impl PoolDevice {
    fn check(&self, is_dump: bool) -> Result<(), DeviceError> {
        let Some(present) = &self.present else {
            return Err(DeviceError::Missing {
                devid: self.devid,
                uuid: self.uuid,
            });
        };
        let total_bytes = self.item.map_or(0, |item| item.total_bytes.get());
        let len_bytes = present.block.len_bytes();
        if total_bytes > len_bytes && !is_dump {
            return Err(DeviceError::Truncated {
                path: present.path.clone(),
                devid: self.devid,
                len_bytes,
                total_bytes,
            });
        }
        Ok(())
    }
}
