//! New volumes in memory, as from mkfs.

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::item::Timespec;
use ubtrfs_mkfs::{Identity, MkfsOptions, Plan};

/// Creates an empty volume on one device. Panics on invalid options.
pub fn new_volume(options: &MkfsOptions, device_bytes: u64) -> MemDevice {
    new_volume_on(options, &[device_bytes]).remove(0)
}

/// Creates an empty volume on one device for each size. Panics on invalid options.
pub fn new_volume_on(options: &MkfsOptions, device_bytes: &[u64]) -> Vec<MemDevice> {
    let created = Timespec {
        sec: 1_700_000_000.into(),
        nsec: 0.into(),
    };
    let identity = Identity::random(device_bytes.len(), created);
    let plan = Plan::new(options, &identity, device_bytes).expect("options that fit the devices");
    let devices: Vec<MemDevice> = device_bytes
        .iter()
        .map(|&len| MemDevice::new(len))
        .collect();
    let targets: Vec<&dyn BlockDevice> = devices.iter().map(|device| device as _).collect();
    plan.write(&targets, false).expect("memory to write to");
    devices
}
