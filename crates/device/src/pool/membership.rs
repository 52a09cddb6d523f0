//! Changes of the set of devices: a device that joins, leaves, or takes the place of another.
//!
//! Invariants
//! - MEMBER-1: a commit calls these functions after its check of the devices and before its superblock. So a new device
//!   gets no superblock of an earlier commit, and a device that leaves gets none of this commit.
//! - MEMBER-2: a device that joins has its first superblock durably before the other devices name it. So a power cut
//!   never leaves a volume with a missing device.
//!
//! Not here: the items in the chunk tree (`storage`), emptying a new device (`new_device`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_format::ids::DevId;
use ubtrfs_format::item::DevItem;

use super::{DeviceTable, Pool, PoolDevice, PresentDevice};
use crate::block_device::BlockDevice;
use crate::error::DeviceError;
use crate::superblock::erase_magic;

impl Pool {
    /// Adds a device that the running commit inserts into the chunk tree (MEMBER-1).
    pub fn attach(&self, path: &Path, block: &Arc<dyn BlockDevice>, item: &DevItem) {
        let mut superblock = self.superblock.as_ref().clone();
        superblock.dev_item = *item;
        let present = PresentDevice {
            path: path.to_owned(),
            block: Arc::clone(block),
            superblock: Arc::new(superblock),
            refuses_discards: Arc::default(),
            has_superblock: Arc::default(),
        };
        let devid = DevId(item.devid.get());
        let device = PoolDevice {
            devid,
            uuid: item.uuid,
            item: Some(*item),
            is_named: true,
            present: Some(present),
            errors: Arc::default(),
            replacement: None,
        };
        self.change_table(|table| {
            table.insert(devid, Arc::new(device));
        });
    }

    /// Removes a device that the running commit deletes from the chunk tree (MEMBER-1). No chunk may have a stripe on
    /// it.
    pub fn detach(&self, devid: DevId) {
        self.change_table(|table| {
            table.remove(&devid);
        });
    }

    pub(super) fn change_table(&self, change: impl FnOnce(&mut DeviceTable)) {
        // The lock of the seeds orders all changes of the table.
        let _seeds = self.seeds.lock();
        let mut table = DeviceTable::clone(&self.devices.load());
        change(&mut table);
        self.devices.store(Arc::new(table));
    }

    /// Returns a device that is present, with its path. It remains usable after it has left the volume.
    pub fn present_device(&self, devid: DevId) -> Option<MemberDevice> {
        let table = self.devices.load();
        let present = table.get(&devid)?.present.as_ref()?;
        Some(MemberDevice {
            path: present.path.clone(),
            block: Arc::clone(&present.block),
        })
    }
}

/// A device of a volume, or one that has just left it.
#[derive(Clone, Debug)]
pub struct MemberDevice {
    pub path: PathBuf,
    pub block: Arc<dyn BlockDevice>,
}

impl MemberDevice {
    /// Erases the magic number of all superblock copies, durably. Nothing else is written, as in the kernel.
    pub fn erase_superblocks(&self) -> Result<(), DeviceError> {
        erase_magic(&*self.block, &self.path)
    }
}
