//! Devices that join or leave a volume, or get another size.
//!
//! Each change is one commit. Images are extended before it, and truncated after it. The superblocks of a device that
//! leaves are erased after it. So a power cut at any point leaves a whole volume.
//!
//! Not here: the items (`storage::space::device_set`), emptying a new device (`ubtrfs_device::empty_device`).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ubtrfs_device::chunk_layout::RESERVED_BYTES;
use ubtrfs_device::progress::Progress;
use ubtrfs_device::{BlockDevice, DeviceError, DeviceInfo, STRIPE_LEN, nonblocking};
use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_format::item::DevItem;
use ubtrfs_storage::space::{DeviceChange, new_device_item};
use ubtrfs_storage::{DeviceSetError, RelocationOptions, ReplaceCounts, TransactionManager};

use super::Volume;
use crate::error::Result;

/// The minimum size of a device: it has room for a superblock and a stripe.
const MIN_BYTES: u64 = RESERVED_BYTES + STRIPE_LEN;

impl Volume {
    /// Adds an empty device, and returns its devid. New chunks may be placed on it at once.
    ///
    /// Errors: a read-only volume; another change of the devices is in progress; the device is too small; as `sync`.
    pub fn add_device(&self, path: &Path, block: Arc<dyn BlockDevice>) -> Result<DevId> {
        let manager = self.device_changes()?;
        let _turn = manager.exclusive.begin()?;
        let len_bytes = block.len_bytes();
        if len_bytes < MIN_BYTES {
            return Err(DeviceSetError::TooSmall(len_bytes).into());
        }
        let item = new_device_item(self.roots.pool(), len_bytes);
        manager.change_devices(DeviceChange::Add {
            path: path.to_owned(),
            block,
            item,
        })?;
        let mut items = manager.space.device_items().into_iter();
        let added = items.find(|found| found.uuid == item.uuid);
        Ok(added.map_or(DevId(0), |item| DevId(item.devid.get())))
    }

    /// Sets the size of a device, rounded down to sectors. An image grows if needed. If the volume filled it, it is
    /// truncated to the new size.
    ///
    /// Block groups beyond a smaller size are moved first. `progress` receives the moved bytes, and can cancel between
    /// batches.
    ///
    /// Errors:
    /// - a read-only volume; another change of the devices is in progress;
    /// - no such device, or it is missing; a block device is smaller;
    /// - no space elsewhere for block groups that are in the way; as [`Volume::relocate`] and `sync`.
    pub fn resize_device(
        &self,
        devid: DevId,
        total_bytes: u64,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let manager = self.device_changes()?;
        let _turn = manager.exclusive.begin()?;
        let total_bytes = total_bytes - total_bytes % self.roots.sectorsize();
        if total_bytes < MIN_BYTES {
            return Err(DeviceSetError::TooSmall(total_bytes).into());
        }
        let item = self.own_item(manager, devid)?;
        let pool = self.roots.pool();
        let member = pool.present_device(devid);
        let member = member.ok_or(DeviceSetError::Missing(devid))?;
        let old = item.total_bytes.get();
        let len_bytes = member.block.len_bytes();
        let change = DeviceChange::Resize { devid, total_bytes };
        if total_bytes >= old {
            if len_bytes < total_bytes {
                extend(&*member.block, &member.path, devid, total_bytes)?;
            }
            return Ok(manager.change_devices(change)?);
        }
        vacate(manager, devid, total_bytes, progress)?;
        let changed = manager.change_devices(change);
        changed.inspect_err(|_| manager.space.open_device(devid))?;
        // Bytes behind the volume are not its own.
        if len_bytes < old + self.roots.sectorsize()
            && let Err(error) = member.block.resize(total_bytes)
        {
            let path = member.path.display();
            tracing::warn!(%path, %error, "the image keeps its length");
        }
        Ok(())
    }

    /// Removes a device. Its block groups are moved to the others first. `progress` receives the moved bytes, and can
    /// cancel between batches.
    ///
    /// Errors:
    /// - a read-only volume; another change of the devices is in progress;
    /// - no such device; the profiles need it;
    /// - no space elsewhere for its block groups; as [`Volume::relocate`] and `sync`.
    pub fn remove_device(&self, devid: DevId, progress: &mut dyn Progress) -> Result<()> {
        let manager = self.device_changes()?;
        let _turn = manager.exclusive.begin()?;
        self.check_profiles_without_one(manager)?;
        self.own_item(manager, devid)?;
        let pool = self.roots.pool();
        let member = pool.present_device(devid);
        let is_other = |device: &DeviceInfo| !device.is_missing() && device.devid != devid;
        if member.is_some() && !pool.devices().iter().any(is_other) {
            return Err(DeviceSetError::OnlyDevice.into());
        }
        vacate(manager, devid, 0, progress)?;
        let changed = manager.change_devices(DeviceChange::Remove { devid });
        changed.inspect_err(|_| manager.space.open_device(devid))?;
        // Only now: until the commit, the volume needs the device.
        if let Some(member) = member
            && let Err(error) = member.erase_superblocks()
        {
            let path = member.path.display();
            tracing::warn!(%path, %error, "the superblocks of the removed device could not be erased");
        }
        Ok(())
    }

    /// Replaces a device, present or missing, by an empty one of at least its size. Other operations continue.
    ///
    /// `prefer_mirrors`: the device is read only where no other mirror is good. `keep_going` gets the number of bytes
    /// copied since its last call. If it returns false, the device stays.
    ///
    /// Errors:
    /// - a read-only volume; another change of the devices is in progress;
    /// - no such device, or the new one is smaller; it cannot be written;
    /// - `keep_going` ended it; as `sync`.
    pub fn replace_device(
        &self,
        devid: DevId,
        path: &Path,
        block: &Arc<dyn BlockDevice>,
        prefer_mirrors: bool,
        keep_going: &mut dyn FnMut(u64) -> bool,
    ) -> Result<ReplaceCounts> {
        let manager = self.device_changes()?;
        let _turn = manager.exclusive.begin()?;
        let wanted = self.own_item(manager, devid)?.total_bytes.get();
        let len_bytes = block.len_bytes();
        if len_bytes < wanted {
            return Err(DeviceSetError::TargetTooSmall { len_bytes, wanted }.into());
        }
        let pool = self.roots.pool();
        let member = pool.present_device(devid);
        pool.read_last(devid, prefer_mirrors);
        let replaced = manager.replace_device(devid, path, block, keep_going);
        let counts = replaced.inspect_err(|_| pool.read_last(devid, false))?;
        // Only now: until the commit, the volume needs the device.
        if let Some(member) = member
            && let Err(error) = member.erase_superblocks()
        {
            let path = member.path.display();
            tracing::warn!(%path, %error, "the superblocks of the replaced device could not be erased");
        }
        Ok(counts)
    }

    /// Returns the first missing device.
    ///
    /// Errors: the profiles need all devices, or none is missing.
    pub fn missing_device(&self) -> Result<DevId> {
        self.check_profiles_without_one(self.device_changes()?)?;
        let devices = self.roots.pool().devices().into_iter();
        let mut missing = devices.filter(DeviceInfo::is_missing);
        let first = missing.next().ok_or(DeviceSetError::NoneMissing)?;
        Ok(first.devid)
    }

    /// Fails unless the devices can be changed now.
    pub fn check_device_changes(&self) -> Result<()> {
        let _turn = self.device_changes()?.exclusive.begin()?;
        Ok(())
    }

    /// Begins a scrub, which devices must outlive. The guard ends it. Several scrubs can run at the same time.
    ///
    /// Errors: a change of the devices is in progress.
    pub fn begin_scrub(&self) -> Result<Option<impl Drop + '_>> {
        if !self.is_writable() {
            return Ok(None);
        }
        let manager = self.inodes.transactions()?;
        Ok(Some(manager.exclusive.begin_scrub()?))
    }

    fn device_changes(&self) -> Result<&Arc<TransactionManager>> {
        nonblocking::check()?;
        let manager = self.inodes.transactions()?;
        manager.check_alive()?;
        Ok(manager)
    }

    /// Returns the item of a device that is not of a seed.
    fn own_item(&self, manager: &TransactionManager, devid: DevId) -> Result<DevItem> {
        let mut items = manager.space.device_items().into_iter();
        let item = items.find(|item| item.devid.get() == devid.0);
        let item = item.ok_or(DeviceSetError::NoSuchDevice(devid))?;
        if item.fsid == *self.roots.superblock().metadata_fsid() {
            Ok(item)
        } else {
            Err(DeviceSetError::OfSeed(devid).into())
        }
    }

    /// Fails if a profile in use needs all devices.
    fn check_profiles_without_one(&self, manager: &TransactionManager) -> Result<()> {
        let left = manager.space.device_items().len().saturating_sub(1);
        let chunks = self.roots.pool().chunk_map().all();
        let profiles: BTreeSet<_> = chunks.iter().map(|chunk| chunk.profile()).collect();
        let needing = profiles
            .into_iter()
            .find(|profile| profile.min_devices() > left.max(1));
        match needing {
            Some(profile) => Err(DeviceSetError::BelowMinimum(profile).into()),
            None => Ok(()),
        }
    }
}

/// Closes the space of a device from `offset` on, and moves the block groups there away.
fn vacate(
    manager: &TransactionManager,
    devid: DevId,
    offset: u64,
    progress: &mut dyn Progress,
) -> Result<()> {
    let groups = manager.space.close_device(devid, offset)?;
    let vacated = move_groups(manager, groups, progress).and_then(|()| {
        let left = manager.space.groups_above(devid, offset);
        if left.is_empty() {
            return Ok(());
        }
        let groups = left;
        Err(DeviceSetError::InTheWay { devid, groups }.into())
    });
    if vacated.is_err() {
        manager.space.open_device(devid);
    }
    vacated
}

/// Moves the contents of block groups elsewhere and removes the groups, except for those without space elsewhere.
fn move_groups(
    manager: &TransactionManager,
    groups: Vec<Logical>,
    progress: &mut dyn Progress,
) -> Result<()> {
    let options = RelocationOptions {
        replaces_last: true,
        ..RelocationOptions::default()
    };
    // New groups are placed at the lowest free addresses, so the highest ones leave first, as in the kernel.
    for group in groups.into_iter().rev() {
        match manager.relocate_group(group, &options, progress) {
            Ok(_) => {}
            Err(error) if error.is_no_space() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Extends an image, or finds that a block device has grown.
fn extend(block: &dyn BlockDevice, path: &Path, devid: DevId, total_bytes: u64) -> Result<()> {
    match block.resize(total_bytes) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            let len_bytes = block.len_bytes();
            Err(DeviceSetError::BeyondDevice { devid, len_bytes }.into())
        }
        Err(source) => Err(DeviceError::WriteRaw {
            path: path.to_owned(),
            offset: total_bytes,
            len: 0,
            source,
        }
        .into()),
    }
}
