//! The error counts of devices, as saved in the device tree.

use std::collections::BTreeMap;

use ubtrfs_device::{Access, ErrorCounts};
use ubtrfs_format::ids::{DevId, RootId, objectid};
use ubtrfs_format::item::DevStatsItem;
use ubtrfs_format::key::{Key, KeyType};

use super::Roots;
use crate::error::Result;

impl Roots {
    /// Loads the saved error counts into the pool, which also shows the devices that missed writes. A read-only volume
    /// is opened without the counts if the device tree cannot be read.
    pub fn load_device_errors(&self) -> Result<()> {
        let is_read_only = self.pool.access() == Access::Read;
        let saved = match self.saved_device_errors() {
            Err(error) if is_read_only => {
                tracing::warn!(%error, "the error counts of devices cannot be read");
                BTreeMap::new()
            }
            saved => saved?,
        };
        self.pool.add_saved_errors(&saved);
        Ok(())
    }

    fn saved_device_errors(&self) -> Result<BTreeMap<DevId, ErrorCounts>> {
        let tree = self.tree(RootId::DEV_TREE)?;
        let mut saved = BTreeMap::new();
        for device in self.pool.devices() {
            if let Some(item) = tree.view.get(&device_errors_key(device.devid))? {
                let counts = DevStatsItem::of(&item).values.map(|value| value.get());
                saved.insert(device.devid, counts);
            }
        }
        Ok(saved)
    }
}

/// Returns the key of a device's DEV_STATS item in the device tree.
pub(crate) fn device_errors_key(devid: DevId) -> Key {
    Key::new(objectid::DEV_STATS, KeyType::DEV_STATS, devid.0)
}
