//! Devices that join or leave a volume, or get another size.

use std::path::Path;
use std::sync::Arc;

use ubtrfs_device::progress::{Cancelled, Progress, Watch};
use ubtrfs_device::{BlockDevice, FileDevice, empty_device, find_signature};
use ubtrfs_format::ids::DevId;

use crate::error::{Cause, Caused, Naming, Result};
use crate::volume::Volume;

/// Options for a device that joins a volume. The default refuses a device with known contents, and discards it first.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewDevice {
    force: bool,
    keeps_blocks: bool,
}

impl NewDevice {
    /// Creates the default options.
    pub fn new() -> NewDevice {
        NewDevice::default()
    }

    /// Sets whether existing contents may be overwritten.
    #[must_use]
    pub fn force(mut self, force: bool) -> NewDevice {
        self.force = force;
        self
    }

    /// Sets whether the whole device is discarded first. An image then becomes sparse.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> NewDevice {
        self.keeps_blocks = !discard;
        self
    }
}

/// The outcome of [`Volume::replace_device`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// The bytes that were copied.
    pub copied_bytes: u64,
    /// The sectors and tree blocks without a good copy, which were copied as they are.
    pub uncorrectable: u64,
}

impl Volume {
    /// Adds a block device or an image file to the volume, durably, and returns its id. Its contents are lost. New
    /// block groups can use it at once.
    ///
    /// ```
    /// use ubtrfs::{NewDevice, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let folder = tempfile::tempdir().expect("there is room");
    /// # let [first, second] = ["1.img", "2.img"].map(|name| folder.path().join(name));
    /// let volume = Volume::create(&first, 300 << 20)?;
    /// std::fs::File::create(&second).and_then(|file| file.set_len(1 << 30)).expect("there is room");
    /// let id = volume.add_device(&second, &NewDevice::new())?;
    /// assert_eq!(volume.devices().len(), 2);
    /// volume.remove_device(id, &mut ())?;
    /// assert_eq!(volume.devices().len(), 1);
    /// volume.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - it contains a file system, a partition table or similar (`AlreadyExists`), unless [`NewDevice::force`] is true
    /// - it is in use, or another change of the devices is in progress (`ResourceBusy`), or it does not exist
    ///   (`NotFound`)
    /// - it is too small (`InvalidInput`) or zoned (`Unsupported`)
    /// - the errors of [`Volume::sync`]
    pub fn add_device(&self, path: impl AsRef<Path>, options: &NewDevice) -> Result<u64> {
        let path = path.as_ref();
        let opened = open_new(path, options);
        let device = opened.naming("add device", path)?;
        self.add_block_device(path, device, options)
    }

    /// Adds a device of the caller, like [`Volume::add_device`], whatever it contains. The path is for messages.
    ///
    /// # Errors
    ///
    /// As [`Volume::add_device`], except for its contents.
    pub fn add_block_device(
        &self,
        path: &Path,
        device: Arc<dyn BlockDevice>,
        options: &NewDevice,
    ) -> Result<u64> {
        let engine = self.engine();
        let add = || -> Caused<DevId> {
            engine.check_device_changes()?;
            let _entered = engine.enter();
            let len_bytes = device.len_bytes();
            empty_device(&*device, path, len_bytes, !options.keeps_blocks)?;
            Ok(engine.add_device(path, Arc::clone(&device))?)
        };
        Ok(add().naming("add device", path)?.0)
    }

    /// Sets the size that the volume uses of a device, durably. An image grows if needed, and is truncated to a smaller
    /// size if the volume filled it. Block groups beyond a smaller size are moved first.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let folder = tempfile::tempdir().expect("there is room");
    /// # let image = folder.path().join("volume.img");
    /// let volume = Volume::create(&image, 300 << 20)?;
    /// volume.resize_device(1, 1 << 30, &mut ())?;
    /// assert_eq!(volume.devices()[0].total_bytes, 1 << 30);
    /// volume.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - no such device (`NotFound`), or it is missing
    /// - a block device has another size (`FileTooLarge`), or the size is too small (`InvalidInput`)
    /// - no space below the new end for the block groups beyond it (`StorageFull`)
    /// - another change of the devices is in progress (`ResourceBusy`)
    /// - `progress` cancelled it (`Interrupted`)
    /// - the errors of [`Volume::sync`]
    pub fn resize_device(
        &self,
        id: u64,
        total_bytes: u64,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut resize = || -> Caused<()> {
            Watch::new(progress).advance(0)?;
            Ok(self
                .engine()
                .resize_device(DevId(id), total_bytes, progress)?)
        };
        resize().naming_alone("resize the volume")
    }

    /// Removes a device from the volume, durably, and erases its superblocks. Its block groups are moved to the other
    /// devices first.
    /// [`Volume::add_device`] has an example.
    ///
    /// # Errors
    ///
    /// - no such device (`NotFound`)
    /// - the profiles of the volume need it, or it is the only one (`InvalidInput`)
    /// - no space for its block groups on the other devices (`StorageFull`)
    /// - another change of the devices is in progress (`ResourceBusy`)
    /// - `progress` cancelled it (`Interrupted`)
    /// - the errors of [`Volume::sync`]
    pub fn remove_device(&self, id: u64, progress: &mut dyn Progress) -> Result<()> {
        let mut remove = || -> Caused<()> {
            Watch::new(progress).advance(0)?;
            Ok(self.engine().remove_device(DevId(id), progress)?)
        };
        remove().naming_alone("remove a device")
    }

    /// Replaces a device, present or missing, by a block device or image file of at least its size. All data is copied and
    /// verified, and bad sectors are read from other mirrors. Other operations continue. Afterwards the superblocks of
    /// the old device are erased. The new one keeps the size of the old one until [`Volume::resize_device`].
    ///
    /// ```
    /// use ubtrfs::{NewDevice, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// # let folder = tempfile::tempdir().expect("there is room");
    /// # let [old, new] = ["old.img", "new.img"].map(|name| folder.path().join(name));
    /// let volume = Volume::create(&old, 300 << 20)?;
    /// std::fs::File::create(&new).and_then(|file| file.set_len(1 << 30)).expect("there is room");
    /// let replaced = volume.replace_device(1, &new, &NewDevice::new(), false, &mut ())?;
    /// assert_eq!(replaced.uncorrectable, 0);
    /// volume.close()?;
    /// assert_eq!(Volume::open(&new)?.devices().len(), 1);
    /// assert!(Volume::open(&old).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// `prefer_mirrors`: the old device is read only where no other mirror is good.
    ///
    /// # Errors
    ///
    /// - no such device (`NotFound`); the new one is smaller (`InvalidInput`)
    /// - the errors of [`Volume::add_device`]
    /// - `progress` cancelled it (`Interrupted`), and the old device stays
    pub fn replace_device(
        &self,
        id: u64,
        path: impl AsRef<Path>,
        options: &NewDevice,
        prefer_mirrors: bool,
        progress: &mut dyn Progress,
    ) -> Result<Replaced> {
        let path = path.as_ref();
        let device = open_new(path, options).naming("replace a device by", path)?;
        self.replace_by_block_device(id, path, &device, options, prefer_mirrors, progress)
    }

    /// Replaces a device by one of the caller, like [`Volume::replace_device`], whatever it contains. The path is for
    /// messages.
    ///
    /// # Errors
    ///
    /// As [`Volume::replace_device`], except for its contents.
    pub fn replace_by_block_device(
        &self,
        id: u64,
        path: &Path,
        device: &Arc<dyn BlockDevice>,
        options: &NewDevice,
        prefer_mirrors: bool,
        progress: &mut dyn Progress,
    ) -> Result<Replaced> {
        let engine = self.engine();
        let mut watch = Watch::new(progress);
        let mut replace = || -> Caused<Replaced> {
            engine.check_device_changes()?;
            watch.advance(0)?;
            empty_device(&**device, path, device.len_bytes(), !options.keeps_blocks)?;
            let mut goes_on = |bytes| watch.advance(bytes).is_ok();
            let replaced =
                engine.replace_device(DevId(id), path, device, prefer_mirrors, &mut goes_on);
            if watch.is_cancelled() {
                return Err(Cancelled.into());
            }
            let counts = replaced?;
            Ok(Replaced {
                copied_bytes: counts.copied_bytes,
                uncorrectable: counts.uncorrectable,
            })
        };
        replace().naming("replace a device by", path)
    }

    /// Returns the id of the first missing device, for [`Volume::remove_device`].
    ///
    /// # Errors
    ///
    /// - the volume is read-only
    /// - no device is missing (`NotFound`)
    /// - the profiles of the volume need all devices (`InvalidInput`)
    pub fn missing_device_id(&self) -> Result<u64> {
        let missing = self.engine().missing_device();
        Ok(missing.naming_alone("find a missing device")?.0)
    }
}

/// Opens a device that is to join a volume. It stays locked from here on, so that the device that was checked is the
/// one that is overwritten.
fn open_new(path: &Path, options: &NewDevice) -> Caused<Arc<dyn BlockDevice>> {
    let device = FileDevice::open(path, ubtrfs_device::Access::Write)?;
    if device.is_host_managed() {
        return Err(Cause::Zoned);
    }
    if !options.force
        && let Some(found) = find_signature(&device).naming("read", path)?
    {
        return Err(Cause::Occupied {
            path: path.to_path_buf(),
            found: found.to_string(),
        });
    }
    Ok(Arc::new(device))
}
