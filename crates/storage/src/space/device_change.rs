//! A change of the set of devices, which a commit makes.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, Pool};
use ubtrfs_format::ids::{DevId, objectid};
use ubtrfs_format::item::{DevItem, DevReplaceItem};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::IntoBytes;

use super::{Space, SpaceError};

/// A change of the set of devices.
#[derive(Clone, Debug)]
pub enum DeviceChange {
    /// An empty device joins. Its item has no devid yet.
    Add {
        path: PathBuf,
        block: Arc<dyn BlockDevice>,
        item: DevItem,
    },
    /// A device gets another size. Space that is cut off must be closed ([`Space::close_device`]), and unused.
    Resize { devid: DevId, total_bytes: u64 },
    /// A device without chunks leaves.
    Remove { devid: DevId },
    /// The replacement of a device is complete, and takes its place.
    Replace { devid: DevId, item: DevReplaceItem },
}

/// A changed item of the chunk tree. None deletes it.
pub(crate) type ChangedItem = (Key, Option<Vec<u8>>);

impl Space {
    /// Makes a change of the devices in the set and in the pool, for the running commit (MEMBER-1). Returns the changed
    /// item of the chunk tree, if any.
    pub(crate) fn change_devices(
        &self,
        change: &DeviceChange,
    ) -> Result<Option<ChangedItem>, SpaceError> {
        let mut chunks = self.chunks.lock();
        let devices = &mut chunks.devices;
        let changed = match change {
            DeviceChange::Add { path, block, item } => {
                let item = devices.add(item);
                self.pool.attach(path, block, &item);
                put(&item)
            }
            DeviceChange::Resize { devid, total_bytes } => {
                let item = devices.resize(*devid, *total_bytes)?;
                self.pool.add_dev_item(&item)?;
                put(&item)
            }
            DeviceChange::Remove { devid } => {
                devices.remove(*devid);
                self.pool.detach(*devid);
                (key_of(*devid), None)
            }
            DeviceChange::Replace { devid, .. } => {
                self.pool.prefer_replacement(*devid)?;
                return Ok(None);
            }
        };
        self.update_forecasts(&chunks);
        Ok(Some(changed))
    }

    /// Returns the device items as of the last commit or later.
    pub fn device_items(&self) -> Vec<DevItem> {
        self.chunks.lock().devices.items()
    }
}

fn put(item: &DevItem) -> ChangedItem {
    let key = key_of(DevId(item.devid.get()));
    (key, Some(item.as_bytes().to_vec()))
}

fn key_of(devid: DevId) -> Key {
    Key::new(objectid::DEV_ITEMS, KeyType::DEV_ITEM, devid.0)
}

/// Returns the item of a new device of `pool`, without a devid.
pub fn new_device_item(pool: &Pool, total_bytes: u64) -> DevItem {
    let superblock = pool.superblock();
    let sectorsize = superblock.sectorsize.get();
    DevItem {
        devid: 0.into(),
        total_bytes: (total_bytes - total_bytes % u64::from(sectorsize)).into(),
        bytes_used: 0.into(),
        io_align: sectorsize.into(),
        io_width: sectorsize.into(),
        sector_size: sectorsize.into(),
        type_: 0.into(),
        generation: 0.into(),
        start_offset: 0.into(),
        dev_group: 0.into(),
        seek_speed: 0,
        bandwidth: 0,
        uuid: ubtrfs_device::random_uuid(),
        fsid: *superblock.metadata_fsid(),
    }
}
