//! Device numbers of the host.

use ubtrfs_fs::DeviceNumber;

/// Converts the number of `stat` on the host.
pub(crate) fn device_of_host(device: rustix::fs::Dev) -> DeviceNumber {
    DeviceNumber {
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
    }
}

/// Converts the number of an inode to the number of `stat`.
pub(crate) fn host_device(rdev: u64) -> rustix::fs::Dev {
    let device = DeviceNumber::from_inode(rdev);
    rustix::fs::makedev(device.major, device.minor)
}
