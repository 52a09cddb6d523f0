//! The attributes of a file that users set, and that copies and archives preserve.
//!
//! Not here: attributes that belong to an inode of one volume, such as its number, size and flags (`InodeItem`).

use super::FileTime;

/// The attributes of a file that copies preserve, without extended attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreservedAttributes {
    /// Format and permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Zero unless the file is a device.
    pub device: DeviceNumber,
    pub times: Times,
}

/// The times of a file that other file systems also have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub access: FileTime,
    pub modification: FileTime,
    pub change: FileTime,
}

/// The number of a device file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

impl Times {
    /// Creates three equal times.
    pub fn all(time: FileTime) -> Times {
        Times {
            access: time,
            modification: time,
            change: time,
        }
    }
}

impl DeviceNumber {
    /// Decodes the number of an inode: 12 bits of major number above 20 of minor number.
    pub fn from_inode(rdev: u64) -> DeviceNumber {
        DeviceNumber {
            major: (rdev >> 20 & 0xfff) as u32,
            minor: (rdev & 0xf_ffff) as u32,
        }
    }

    /// Encodes the number for an inode, which has no room for larger ones.
    pub fn to_inode(self) -> u64 {
        u64::from(self.major & 0xfff) << 20 | u64::from(self.minor & 0xf_ffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_hold_the_largest_device_number() {
        let largest = DeviceNumber {
            major: 4095,
            minor: 1_048_575,
        };
        assert_eq!(largest.to_inode(), 0xffff_ffff);
        for device in [largest, DeviceNumber { major: 8, minor: 1 }] {
            assert_eq!(DeviceNumber::from_inode(device.to_inode()), device);
        }
    }
}
