//! Volumes that are opened directly, or on partitions, md arrays and LVM volumes of their devices.

use std::path::{Path, PathBuf};

use ubtrfs_assemble::{Devices, Disks, OtherDisks};
use ubtrfs_device::{Access, DeviceName};

use crate::error::{Cause, Caused};

/// The choice of a volume.
pub(crate) struct Choice<'a> {
    pub(crate) names: &'a [DeviceName],
    /// The places of further devices and disks.
    pub(crate) scan: &'a [PathBuf],
    pub(crate) volume: Option<&'a str>,
    pub(crate) access: Access,
}

impl Choice<'_> {
    /// Opens the volume with `direct`, or on layers with `from_devices`.
    pub(crate) fn open<T>(
        &self,
        direct: impl FnOnce() -> Caused<T>,
        from_devices: impl FnOnce(Devices) -> Caused<T>,
    ) -> Caused<T> {
        let paths = self.names.iter().map(DeviceName::path);
        let Ok(paths) = paths.collect::<Result<Vec<&Path>, _>>() else {
            return direct();
        };
        let named: Vec<PathBuf> = paths.into_iter().map(Path::to_owned).collect();
        let disks = Disks {
            named: &named,
            others: OtherDisks::At(self.scan),
        };
        disks.open(self.volume, self.access, Cause::errno, direct, from_devices)
    }
}
