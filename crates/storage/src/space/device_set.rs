//! The devices of a volume: their items, and their free space for new chunks.
//!
//! A change of the set (a device added or removed, another size) is a change here, within a commit.
//!
//! Invariants
//! - DEVICE-SET-1: only a commit changes the items, together with the items in the chunk tree. Free space is ahead of
//!   them: a new chunk takes it at once, and a removed chunk returns it when its commit is durable.
//! - DEVICE-SET-2: the pool has the same items, because each superblock copy contains the item of its device.
//! - DEVICE-SET-3: the totals in the superblock are sums over the items. The kernel refuses a volume whose total is
//!   below that sum.
//!
//! Locks: part of `chunks`. Not here: handles, errors and missing devices (`Pool`).

use std::collections::BTreeMap;
use std::ops::Range;

use ubtrfs_device::chunk_layout::{
    ChunkItems, ChunkLayout, ChunkLimits, DeviceHoles, DeviceSpace, forecast,
};
use ubtrfs_device::{DeviceError, Pool};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, Physical, objectid};
use ubtrfs_format::item::{DevItem, Stripe};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::Superblock;
use zerocopy::IntoBytes;

use crate::error::DeviceSetError;

#[cfg(test)]
mod tests;

/// A device extent in use: device, start and length.
pub(crate) type UsedExtent = (DevId, Physical, u64);

/// A change of the chunks of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkChange {
    Added,
    Removed,
}

/// The devices of a volume.
#[derive(Debug)]
pub(crate) struct DeviceSet {
    /// All devices, including missing ones and seeds.
    items: BTreeMap<DevId, DevItem>,
    /// The present devices of the volume itself, by devid. Layouts refer to them by index.
    holes: Vec<DeviceHoles>,
}

impl DeviceSet {
    /// Creates the set from the items that the pool has read from the chunk tree, and all device extents.
    pub(crate) fn new(pool: &Pool, extents: &[UsedExtent]) -> DeviceSet {
        let items = pool.dev_items().into_iter();
        let items: BTreeMap<DevId, DevItem> =
            items.map(|item| (DevId(item.devid.get()), item)).collect();
        let fsid = pool.superblock().metadata_fsid();
        let usable = items
            .iter()
            .filter(|(devid, item)| item.fsid == *fsid && pool.device(**devid).is_some());
        let holes = usable.map(|(&devid, item)| {
            let own = extents.iter().filter(|extent| extent.0 == devid);
            DeviceHoles::new(DeviceSpace {
                devid,
                uuid: item.uuid,
                total_bytes: item.total_bytes.get(),
                extents: own.map(|&(_, physical, len)| (physical, len)).collect(),
            })
        });
        DeviceSet {
            holes: holes.collect(),
            items,
        }
    }

    /// Returns the devices on which chunks can be placed.
    pub(super) fn usable(&self) -> Vec<DevId> {
        self.holes.iter().map(|device| device.devid).collect()
    }

    /// Returns the size of the devices on which chunks can be placed.
    pub(super) fn usable_bytes(&self) -> u64 {
        let bytes = self.holes.iter().map(|device| device.total_bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the unallocated space of a device.
    pub(super) fn holes(&self, devid: DevId) -> impl Iterator<Item = Range<u64>> {
        let mut devices = self.holes.iter();
        let device = devices.find(move |device| device.devid == devid);
        device.into_iter().flat_map(DeviceHoles::holes)
    }

    /// Takes the space of a new chunk. Returns None if there is not enough.
    pub(super) fn take(&mut self, profile: Profile, limits: &ChunkLimits) -> Option<ChunkLayout> {
        let layout = ChunkLayout::choose(&self.holes, profile, limits)?;
        layout.take(&mut self.holes);
        Some(layout)
    }

    /// Returns the space of a layout that became no chunk.
    pub(super) fn release(&mut self, layout: &ChunkLayout) {
        layout.release(&mut self.holes);
    }

    /// Returns the device range of a removed chunk's stripe. The space of missing devices is not tracked.
    pub(super) fn free(&mut self, devid: DevId, start: u64, len: u64) {
        if let Some(device) = self.holes.iter_mut().find(|device| device.devid == devid) {
            device.release(start, len);
        }
    }

    /// Closes the space of a device from `offset` on, for new chunks.
    pub(super) fn close_from(&mut self, devid: DevId, offset: u64) {
        if let Some(device) = self.holes_of(devid) {
            device.close_from(offset);
        }
    }

    /// Reverts [`DeviceSet::close_from`].
    pub(super) fn open(&mut self, devid: DevId) {
        if let Some(device) = self.holes_of(devid) {
            device.open();
        }
    }

    fn holes_of(&mut self, devid: DevId) -> Option<&mut DeviceHoles> {
        self.holes.iter_mut().find(|device| device.devid == devid)
    }

    /// Adds an empty device with the next devid, and returns its item.
    pub(super) fn add(&mut self, item: &DevItem) -> DevItem {
        let last = self.items.keys().next_back();
        let devid = DevId(last.map_or(0, |last| last.0) + 1);
        let item = DevItem {
            devid: devid.0.into(),
            ..*item
        };
        self.items.insert(devid, item);
        // The largest devid: the list stays sorted.
        self.holes.push(DeviceHoles::new(DeviceSpace {
            devid,
            uuid: item.uuid,
            total_bytes: item.total_bytes.get(),
            extents: Vec::new(),
        }));
        item
    }

    /// Makes a device usable that was missing. `extents` are its extents in use.
    pub(super) fn note_present(&mut self, devid: DevId, extents: &[UsedExtent]) {
        let Some(item) = self.items.get(&devid) else {
            return;
        };
        if self.holes.iter().any(|device| device.devid == devid) {
            return;
        }
        let at = self.holes.partition_point(|device| device.devid < devid);
        let used = extents.iter().map(|&(_, physical, len)| (physical, len));
        self.holes.insert(
            at,
            DeviceHoles::new(DeviceSpace {
                devid,
                uuid: item.uuid,
                total_bytes: item.total_bytes.get(),
                extents: used.collect(),
            }),
        );
    }

    /// Sets the size of a device, and returns its item.
    pub(super) fn resize(
        &mut self,
        devid: DevId,
        total_bytes: u64,
    ) -> Result<DevItem, DeviceSetError> {
        let item = self.items.get_mut(&devid);
        let item = item.ok_or(DeviceSetError::NoSuchDevice(devid))?;
        item.total_bytes = total_bytes.into();
        let item = *item;
        if let Some(device) = self.holes_of(devid) {
            device.resize(total_bytes);
        }
        Ok(item)
    }

    /// Removes a device without chunks.
    pub(super) fn remove(&mut self, devid: DevId) {
        self.items.remove(&devid);
        self.holes.retain(|device| device.devid != devid);
    }

    pub(super) fn items(&self) -> Vec<DevItem> {
        self.items.values().copied().collect()
    }

    /// Returns the stripes of a layout, as in a chunk item.
    pub(super) fn stripes(&self, layout: &ChunkLayout) -> Vec<Stripe> {
        let stripes = layout.stripes.iter().map(|&(device, start)| Stripe {
            devid: self.holes[device].devid.0.into(),
            offset: start.into(),
            dev_uuid: self.holes[device].uuid,
        });
        stripes.collect()
    }

    /// Returns how many bytes of new chunks still fit.
    pub(super) fn forecast(&self, profile: Profile, limits: &ChunkLimits) -> u64 {
        forecast(&self.holes, profile, limits)
    }

    /// Adds or subtracts a chunk in the used bytes of its devices. Returns the changed items for the chunk tree, by
    /// key.
    pub(super) fn change_used(
        &mut self,
        pool: &Pool,
        chunk: &ChunkItems,
        change: ChunkChange,
    ) -> Result<Vec<(Key, Vec<u8>)>, DeviceError> {
        let mut changed = BTreeMap::new();
        for &(devid, bytes) in &chunk.device_bytes {
            let Some(item) = self.items.get_mut(&devid) else {
                continue;
            };
            // DEVICE-SET-1: not in `take` and `free`, which are ahead of the commit.
            let used = item.bytes_used.get();
            item.bytes_used = match change {
                ChunkChange::Added => used.saturating_add(bytes).into(),
                ChunkChange::Removed => used.saturating_sub(bytes).into(),
            };
            // DEVICE-SET-2
            pool.add_dev_item(item)?;
            let key = Key::new(objectid::DEV_ITEMS, KeyType::DEV_ITEM, devid.0);
            changed.insert(key, item.as_bytes().to_vec());
        }
        Ok(changed.into_iter().collect())
    }

    /// Sets the number and the total size of the devices in a superblock (DEVICE-SET-3).
    pub(super) fn write_totals(&self, sb: &mut Superblock) {
        let bytes = self.items.values().map(|item| item.total_bytes.get());
        sb.total_bytes = bytes.fold(0, u64::saturating_add).into();
        sb.num_devices = (self.items.len() as u64).into();
    }
}
