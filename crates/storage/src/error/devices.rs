//! Reasons why the set of devices of a volume cannot be changed.

use rustix::io::Errno;
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, Logical};

/// The number of block groups that a message names.
const NAMED_GROUPS: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum DeviceSetError {
    #[error("no device {0}")]
    NoSuchDevice(DevId),
    #[error("device {0} is missing")]
    Missing(DevId),
    #[error("device {0} is of a seed volume, which is only read")]
    OfSeed(DevId),
    #[error("no missing devices found to remove")]
    NoneMissing,
    #[error("unable to remove the only writeable device")]
    OnlyDevice,
    /// Fewer devices could not have chunks of the profile.
    #[error("{}", below_text(*.0))]
    BelowMinimum(Profile),
    /// There is no space elsewhere for them.
    #[error("{}", in_the_way(*.devid, .groups))]
    InTheWay { devid: DevId, groups: Vec<Logical> },
    #[error("the new size {0} is too small")]
    TooSmall(u64),
    #[error("no enough free space")]
    BeyondDevice { devid: DevId, len_bytes: u64 },
    #[error("the device has {len_bytes} bytes, the one to replace {wanted}")]
    TargetTooSmall { len_bytes: u64, wanted: u64 },
    #[error("the replacement was ended")]
    Ended,
    /// Another change of the devices or a scrub is in progress.
    #[error("add/delete/balance/replace/resize/scrub operation in progress")]
    InProgress,
}

impl DeviceSetError {
    /// Returns the errno that Linux has for the same failure.
    pub fn errno(&self) -> Errno {
        match self {
            DeviceSetError::NoSuchDevice(_)
            | DeviceSetError::Missing(_)
            | DeviceSetError::NoneMissing => Errno::NOENT,
            DeviceSetError::OfSeed(_) => Errno::ROFS,
            DeviceSetError::OnlyDevice
            | DeviceSetError::BelowMinimum(_)
            | DeviceSetError::TargetTooSmall { .. }
            | DeviceSetError::TooSmall(_) => Errno::INVAL,
            DeviceSetError::Ended => Errno::INTR,
            DeviceSetError::InTheWay { .. } => Errno::NOSPC,
            DeviceSetError::BeyondDevice { .. } => Errno::FBIG,
            DeviceSetError::InProgress => Errno::BUSY,
        }
    }
}

/// Returns the text of btrfs-progs.
fn below_text(profile: Profile) -> String {
    let devices = match profile {
        Profile::Raid10 => "four/two",
        Profile::Raid6 | Profile::Raid1c3 => "three",
        Profile::Raid1c4 => "four",
        _ => "two",
    };
    let name = profile.name().to_lowercase();
    format!("unable to go below {devices} devices on {name}")
}

fn in_the_way(devid: DevId, groups: &[Logical]) -> String {
    let named = groups.iter().take(NAMED_GROUPS).map(ToString::to_string);
    let named: Vec<String> = named.collect();
    let more = match groups.len().saturating_sub(NAMED_GROUPS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.join(", ");
    format!("no space elsewhere for block groups of device {devid}: {named}{more}")
}
