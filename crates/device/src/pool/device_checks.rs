//! Checks of a pool's devices: consistency with the chunk tree, and changes by others before a commit.
//!
//! Invariants
//! - DEVICE-CHECKS-1: nothing is written to a volume whose superblock or device items contradict its devices.
//! - DEVICE-CHECKS-2: a commit begins only if copy 0 of each device still belongs to the volume.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, flags};

use super::{DeviceTable, Pool, PoolDevice};
use crate::access::Access;
use crate::chunk_map::MappedChunk;
use crate::chunk_problem::ChunkProblem;
use crate::error::{DeviceError, SuperblockChange};

impl Pool {
    /// Checks the devices after the chunk tree was read: none may be missing or truncated, unless `degraded` allows
    /// it. Writing has further requirements, even if degraded. Every present device must have its full size. No chunk
    /// may have lost more stripes than its profile tolerates. The superblock's total must cover all devices.
    pub fn check_devices(&self) -> Result<(), DeviceError> {
        self.drop_unnamed();
        for device in self.devices.load().values() {
            if let Err(error) = device.check(self.is_dump()) {
                // On a shrunk device, not even the superblock copies would be at their offsets.
                let is_accepted = if device.present.is_some() {
                    self.accepts_truncated() && self.options.access == Access::Read
                } else {
                    self.options.degraded
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
            if !self.options.degraded
                && let Some(stripe) = lost.clone().next()
            {
                return Err(stripe.missing());
            }
            if self.options.access == Access::Write
                && missing > chunk.profile().tolerated_failures()
            {
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

    /// Rejects a device item with another fsid than its device. The kernel takes it for a seed's item, finds no such
    /// device, and does not mount the volume.
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
            // DEVICE-CHECKS-1
            if self.options.access == Access::Write {
                return Err(error);
            }
            tracing::warn!(devid = %device.devid, item = %item.fsid, device = %own, "device item of another file system");
        }
        Ok(())
    }

    /// Drops the devices that have no item in the chunk tree (POOL-3).
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

    /// Rejects a volume whose superblock total is less than the sum of its devices, as the kernel does on mount.
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
        // DEVICE-CHECKS-1
        if self.options.access == Access::Write {
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

    /// Checks that every stripe ends within its device. Only then do the addresses in the chunk map bound all reads.
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

    /// Returns whether a device may be shorter than its item claims. Blocks past its end are unreadable.
    fn accepts_truncated(&self) -> bool {
        self.options.degraded || self.options.ignores_truncation
    }

    /// Returns whether the volume is a metadata dump, which keeps the sizes of the original volume.
    fn is_dump(&self) -> bool {
        self.superblock.flags.get() & (flags::METADUMP | flags::METADUMP_V2) != 0
    }

    /// Checks that no other program has written to copy 0 of a device (DEVICE-CHECKS-2). A program that ignores locks may
    /// have reused the device or committed to the volume.
    ///
    /// Unreadable copies are ignored here.
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
            let change = if !is_own {
                SuperblockChange::Replaced
            } else if generation > known {
                SuperblockChange::Newer {
                    found: generation,
                    known,
                }
            } else {
                continue;
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
