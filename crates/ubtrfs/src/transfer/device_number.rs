//! Device numbers in inodes, in the kernel's encoding: 12 bits of major above 20 of minor.

/// A device number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl DeviceNumber {
    /// Decodes the number of an inode.
    pub(crate) fn from_inode(rdev: u64) -> DeviceNumber {
        DeviceNumber {
            major: (rdev >> 20 & 0xfff) as u32,
            minor: (rdev & 0xf_ffff) as u32,
        }
    }

    /// Converts the number of `stat` on the host.
    pub(crate) fn of(device: rustix::fs::Dev) -> DeviceNumber {
        DeviceNumber {
            major: rustix::fs::major(device),
            minor: rustix::fs::minor(device),
        }
    }

    /// Encodes the number for an inode, which has no room for larger ones.
    pub(crate) fn to_inode(self) -> u64 {
        u64::from(self.major & 0xfff) << 20 | u64::from(self.minor & 0xf_ffff)
    }
}
