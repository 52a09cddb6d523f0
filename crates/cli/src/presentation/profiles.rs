//! Kinds and profiles of block groups: their names, order and usage.

use std::fmt;

use ubtrfs::{BlockGroupKind, BlockGroupSpace, DeviceAllocation, Profile};

use crate::presentation::console::Console;

/// Profiles in the order of usage reports.
const PROFILES: [Profile; 9] = [
    Profile::Single,
    Profile::Raid0,
    Profile::Raid1,
    Profile::Dup,
    Profile::Raid10,
    Profile::Raid5,
    Profile::Raid6,
    Profile::Raid1c3,
    Profile::Raid1c4,
];
/// Kinds in the order of usage reports.
const KINDS: [BlockGroupKind; 4] = [
    BlockGroupKind::Data,
    BlockGroupKind::Metadata,
    BlockGroupKind::Mixed,
    BlockGroupKind::System,
];

/// A kind and profile of block groups. None for unknown ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupType {
    pub(crate) kind: Option<BlockGroupKind>,
    pub(crate) profile: Option<Profile>,
}

impl GroupType {
    /// Returns the name of the kind, such as "Data".
    pub(crate) fn kind_name(self) -> &'static str {
        self.kind.map_or("unknown", BlockGroupKind::name)
    }

    /// Returns the name of the profile, such as "RAID1".
    pub(crate) fn profile_name(self) -> &'static str {
        profile_name(self.profile)
    }

    pub(crate) fn holds_data(self) -> bool {
        matches!(
            self.kind,
            Some(BlockGroupKind::Data | BlockGroupKind::Mixed)
        )
    }

    pub(crate) fn holds_metadata(self) -> bool {
        matches!(
            self.kind,
            Some(BlockGroupKind::Metadata | BlockGroupKind::Mixed)
        )
    }

    /// Returns the sort key of usage reports. Unknown types come first.
    pub(crate) fn usage_rank(self) -> (Option<usize>, Option<usize>) {
        let kind = KINDS.iter().position(|&kind| Some(kind) == self.kind);
        let profile = PROFILES
            .iter()
            .position(|&profile| Some(profile) == self.profile);
        (kind, profile)
    }
}

/// "Data,RAID1"
impl fmt::Display for GroupType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.kind_name(), self.profile_name())
    }
}

/// All block groups of one type, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupUsage {
    pub(crate) group: GroupType,
    pub(crate) total: u64,
    pub(crate) used: u64,
}

impl From<&BlockGroupSpace> for GroupUsage {
    fn from(space: &BlockGroupSpace) -> GroupUsage {
        GroupUsage {
            group: GroupType {
                kind: Some(space.kind),
                profile: space.profile,
            },
            total: space.total_bytes,
            used: space.used_bytes,
        }
    }
}

/// The bytes that block groups of one type and number of stripes use on one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) devid: u64,
    pub(crate) group: GroupType,
    pub(crate) stripes: u64,
    pub(crate) bytes: u64,
}

impl From<DeviceAllocation> for Allocation {
    fn from(allocation: DeviceAllocation) -> Allocation {
        Allocation {
            devid: allocation.device_id,
            group: GroupType {
                kind: Some(allocation.kind),
                profile: allocation.profile,
            },
            stripes: allocation.stripes,
            bytes: allocation.device_bytes,
        }
    }
}

pub(crate) fn profile_name(profile: Option<Profile>) -> &'static str {
    profile.map_or("unknown", Profile::name)
}

/// Warns about several profiles of one kind, which may be from an unfinished conversion.
pub(crate) fn warn_multiple_profiles(console: &mut Console, infos: &[GroupUsage]) {
    let multiple = multiple_profiles(infos);
    if multiple.is_empty() {
        return;
    }
    console.warning("Multiple block group profiles detected, see 'man btrfs(5)'");
    for (kind, profiles) in multiple {
        console.warning(format_args!("   {kind}: {profiles}"));
    }
}

/// Returns the kinds with block groups of more than one profile, with the profiles in lower case.
pub(crate) fn multiple_profiles(infos: &[GroupUsage]) -> Vec<(&'static str, String)> {
    let several = KINDS.into_iter().filter_map(|kind| {
        let infos = infos.iter().filter(|info| info.group.kind == Some(kind));
        let names: Vec<String> = infos
            .map(|info| info.group.profile_name().to_lowercase())
            .collect();
        (names.len() > 1).then(|| (kind.name(), names.join(", ")))
    });
    several.collect()
}
