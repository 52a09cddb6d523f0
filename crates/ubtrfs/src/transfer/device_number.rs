//! Device numbers in inodes: the kernel's own number, 12 bits of major above 20 of minor.

/// The number of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl DeviceNumber {
    /// Reads the number from an inode.
    pub(crate) fn from_inode(rdev: u64) -> DeviceNumber {
        DeviceNumber {
            major: (rdev >> 20 & 0xfff) as u32,
            minor: (rdev & 0xf_ffff) as u32,
        }
    }

    /// Takes the number that `stat` on this machine tells.
    pub(crate) fn of(device: rustix::fs::Dev) -> DeviceNumber {
        DeviceNumber {
            major: rustix::fs::major(device),
            minor: rustix::fs::minor(device),
        }
    }

    /// Gives the number as an inode holds it, which has no room for larger ones.
    pub(crate) fn to_inode(self) -> u64 {
        u64::from(self.major & 0xfff) << 20 | u64::from(self.minor & 0xf_ffff)
    }
}
