//! The devices of a volume with their sizes, by devid, as listings show them.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ubtrfs_engine::Volume;
use ubtrfs_format::ids::DevId;

use crate::quoting::Escaped;

#[derive(Clone, Debug)]
pub(crate) struct DeviceSizes {
    pub(crate) devid: DevId,
    path: Option<PathBuf>,
    /// What the volume uses of it.
    pub(crate) size: u64,
    /// What it has; 0 if it is missing.
    pub(crate) device_size: u64,
}

impl DeviceSizes {
    pub(crate) fn of(volume: &Volume) -> Vec<DeviceSizes> {
        let mut devices: Vec<DeviceSizes> = volume
            .pool()
            .devices()
            .into_iter()
            .map(|device| DeviceSizes {
                devid: device.devid,
                size: device.item.map_or(0, |item| item.total_bytes.get()),
                device_size: device.len_bytes.unwrap_or(0),
                path: device.path,
            })
            .collect();
        devices.sort_by_key(|device| device.devid);
        devices
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.device_size == 0
    }

    /// What the device has beyond what the volume uses.
    pub(crate) fn slack(&self) -> i64 {
        match self.device_size {
            0 => 0,
            device_size => device_size.wrapping_sub(self.size) as i64,
        }
    }

    /// The path, or "missing".
    pub(crate) fn shown(&self) -> String {
        match &self.path {
            Some(path) => Escaped(path.as_os_str().as_bytes()).to_string(),
            None => "missing".to_owned(),
        }
    }
}
