//! The contents of a device, with the commands that Linux needs for those that are not read here.

use std::io;

use ubtrfs_device::{BlockDevice, CopyChoice, DeviceSuperblocks, Signature, find_signature};
use ubtrfs_format::uuid::Uuid;

/// The contents of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A device of a btrfs volume.
    Btrfs {
        fsid: Uuid,
        label: String,
        devid: u64,
        num_devices: u64,
    },
    /// A member of an md array.
    Member,
    /// A physical volume of LVM.
    PhysicalVolume,
    Partitions,
    /// A known format that is not read here.
    Other(Foreign),
    /// Nothing known.
    Unknown,
}

impl Contents {
    /// Describes a format that is not read here, with a command for Linux. Returns `None` for other contents.
    pub fn remedy(&self) -> Option<String> {
        let Contents::Other(foreign) = self else {
            return None;
        };
        let hint = foreign.hint?;
        let (description, name) = (foreign.description, foreign.name);
        Some(format!(
            "{description} ({name}) is not read here; on Linux: {hint}"
        ))
    }
}

/// A format that is not read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Its name in blkid.
    pub name: &'static str,
    /// A description of the formats with a hint; otherwise the name.
    pub description: &'static str,
    /// The command that makes its contents available on Linux.
    pub hint: Option<&'static str>,
}

/// Formats below which a btrfs may be, by their names in blkid.
const HINTS: &[(&str, &str, &str)] = &[
    (
        "crypto_LUKS",
        "LUKS encryption",
        "cryptsetup open --readonly DEVICE NAME",
    ),
    (
        "BitLocker",
        "BitLocker encryption",
        "cryptsetup open --type bitlk --readonly DEVICE NAME",
    ),
    (
        "bcache",
        "a bcache device, whose cache may have newer data",
        "echo DEVICE > /sys/fs/bcache/register",
    ),
    (
        "zfs_member",
        "a member of a ZFS pool",
        "zpool import -o readonly=on POOL",
    ),
    (
        "linux_raid_member",
        "a member of an md array",
        "mdadm --assemble --readonly --scan",
    ),
    (
        "isw_raid_member",
        "a member of an Intel RAID",
        "mdadm --assemble --readonly --scan",
    ),
    (
        "ddf_raid_member",
        "a member of a DDF RAID",
        "mdadm --assemble --readonly --scan",
    ),
    (
        "DM_integrity",
        "dm-integrity",
        "integritysetup open DEVICE NAME",
    ),
    ("vdo", "a VDO volume", "vdo start --name NAME"),
    ("stratis", "a Stratis pool", "stratis pool start"),
    ("bcachefs", "bcachefs", "mount -o ro DEVICE DIRECTORY"),
];

impl Foreign {
    /// Describes a format by its name in blkid.
    pub(crate) fn of(name: &'static str) -> Foreign {
        let known = HINTS.iter().find(|(own, ..)| *own == name);
        let (description, hint) = match known {
            Some((_, description, hint)) => (*description, Some(*hint)),
            None => (name, None),
        };
        Foreign {
            name,
            description,
            hint,
        }
    }
}

/// Returns the contents of a device if it holds a valid btrfs superblock.
pub(crate) fn btrfs(device: &dyn BlockDevice) -> Option<Contents> {
    let superblocks = DeviceSuperblocks::read_but_flags(device);
    if !superblocks.first_has_magic() {
        return None;
    }
    let path = std::path::Path::new("");
    let superblock = superblocks.require(device, path, CopyChoice::First).ok()?;
    Some(Contents::Btrfs {
        fsid: superblock.fsid,
        label: String::from_utf8_lossy(superblock.label()).into_owned(),
        devid: superblock.dev_item.devid.get(),
        num_devices: superblock.num_devices.get(),
    })
}

/// Returns the format of a device that this crate does not read.
pub(crate) fn foreign(device: &dyn BlockDevice) -> io::Result<Option<Foreign>> {
    Ok(match find_signature(device)? {
        Some(Signature::FileSystem(name) | Signature::DiskImage(name)) => Some(Foreign::of(name)),
        Some(Signature::PartitionTable(_)) | None => None,
    })
}
