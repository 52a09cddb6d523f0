//! The type and the profile of a chunk.

use bitflags::bitflags;

bitflags! {
    /// Type and profile of a chunk or block group.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
    pub struct BlockGroupFlags: u64 {
        const DATA = 1 << 0;
        const SYSTEM = 1 << 1;
        const METADATA = 1 << 2;
        const RAID0 = 1 << 3;
        const RAID1 = 1 << 4;
        const DUP = 1 << 5;
        const RAID10 = 1 << 6;
        const RAID5 = 1 << 7;
        const RAID6 = 1 << 8;
        const RAID1C3 = 1 << 9;
        const RAID1C4 = 1 << 10;
        const REMAPPED = 1 << 11;
        const _ = !0;
    }
}

impl BlockGroupFlags {
    pub const TYPE_MASK: BlockGroupFlags = Self::DATA.union(Self::SYSTEM).union(Self::METADATA);
    pub const PROFILE_MASK: BlockGroupFlags = Self::RAID0
        .union(Self::RAID1)
        .union(Self::DUP)
        .union(Self::RAID10)
        .union(Self::RAID5)
        .union(Self::RAID6)
        .union(Self::RAID1C3)
        .union(Self::RAID1C4);
    pub const RAID56_MASK: BlockGroupFlags = Self::RAID5.union(Self::RAID6);

    /// Returns the flag of a profile; empty for single.
    pub fn of(profile: Profile) -> BlockGroupFlags {
        match profile {
            Profile::Single => BlockGroupFlags::empty(),
            Profile::Dup => BlockGroupFlags::DUP,
            Profile::Raid0 => BlockGroupFlags::RAID0,
            Profile::Raid1 => BlockGroupFlags::RAID1,
            Profile::Raid1c3 => BlockGroupFlags::RAID1C3,
            Profile::Raid1c4 => BlockGroupFlags::RAID1C4,
            Profile::Raid10 => BlockGroupFlags::RAID10,
            Profile::Raid5 => BlockGroupFlags::RAID5,
            Profile::Raid6 => BlockGroupFlags::RAID6,
        }
    }

    /// Returns the profile, if at most one profile bit is set.
    pub fn profile(self) -> Option<Profile> {
        Profile::ALL
            .into_iter()
            .find(|&p| BlockGroupFlags::of(p) == self & Self::PROFILE_MASK)
    }

    /// Returns "Data", "Metadata", "System" or "Data+Metadata", as `btrfs filesystem df` prints it.
    pub fn type_name(self) -> &'static str {
        let kind = self & Self::TYPE_MASK;
        if kind == Self::DATA {
            "Data"
        } else if kind == Self::METADATA {
            "Metadata"
        } else if kind == Self::SYSTEM {
            "System"
        } else if kind == Self::DATA | Self::METADATA {
            "Data+Metadata"
        } else {
            "unknown"
        }
    }
}

/// The type of a block group. Mixed groups count as metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockGroupType {
    Data,
    Metadata,
    System,
}

impl BlockGroupType {
    pub const ALL: [BlockGroupType; 3] = [
        BlockGroupType::Data,
        BlockGroupType::Metadata,
        BlockGroupType::System,
    ];

    pub fn of(flags: BlockGroupFlags) -> BlockGroupType {
        if flags.contains(BlockGroupFlags::SYSTEM) {
            BlockGroupType::System
        } else if flags.contains(BlockGroupFlags::METADATA) {
            BlockGroupType::Metadata
        } else {
            BlockGroupType::Data
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            BlockGroupType::Data => "data",
            BlockGroupType::Metadata => "metadata",
            BlockGroupType::System => "system",
        }
    }
}

/// How a chunk's bytes are spread over its stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Profile {
    /// One copy, each chunk on one device.
    Single,
    /// Two copies on one device.
    Dup,
    /// One copy, in stripes over all devices.
    Raid0,
    /// Two copies on different devices.
    Raid1,
    /// Three copies on different devices.
    Raid1c3,
    /// Four copies on different devices.
    Raid1c4,
    /// Two copies on different devices, in stripes over all.
    Raid10,
    /// One copy in stripes, with parity that tolerates the loss of one device.
    Raid5,
    /// One copy in stripes, with parity that tolerates the loss of two devices.
    Raid6,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Profile; 9] = [
        Profile::Single,
        Profile::Dup,
        Profile::Raid0,
        Profile::Raid1,
        Profile::Raid1c3,
        Profile::Raid1c4,
        Profile::Raid10,
        Profile::Raid5,
        Profile::Raid6,
    ];

    /// Returns the name as `btrfs filesystem df` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Single => "single",
            Profile::Dup => "DUP",
            Profile::Raid0 => "RAID0",
            Profile::Raid1 => "RAID1",
            Profile::Raid1c3 => "RAID1C3",
            Profile::Raid1c4 => "RAID1C4",
            Profile::Raid10 => "RAID10",
            Profile::Raid5 => "RAID5",
            Profile::Raid6 => "RAID6",
        }
    }

    /// Finds the profile with this name, ignoring case.
    pub fn from_name(name: &str) -> Option<Profile> {
        Profile::ALL
            .into_iter()
            .find(|p| p.name().eq_ignore_ascii_case(name))
    }

    /// Returns the number of full copies of each byte.
    pub fn copies(self) -> usize {
        match self {
            Profile::Single | Profile::Raid0 | Profile::Raid5 | Profile::Raid6 => 1,
            Profile::Dup | Profile::Raid1 | Profile::Raid10 => 2,
            Profile::Raid1c3 => 3,
            Profile::Raid1c4 => 4,
        }
    }

    /// Returns the number of parity stripes in a full stripe.
    pub fn parities(self) -> usize {
        match self {
            Profile::Raid5 => 1,
            Profile::Raid6 => 2,
            _ => 0,
        }
    }

    /// Returns the number of devices whose loss is tolerated.
    pub fn tolerated_failures(self) -> usize {
        match self {
            Profile::Single | Profile::Dup | Profile::Raid0 => 0,
            Profile::Raid1 | Profile::Raid10 | Profile::Raid5 => 1,
            Profile::Raid1c3 | Profile::Raid6 => 2,
            Profile::Raid1c4 => 3,
        }
    }

    /// Returns the minimum number of devices for a chunk.
    pub fn min_devices(self) -> usize {
        match self {
            Profile::Single | Profile::Dup | Profile::Raid0 => 1,
            Profile::Raid1 | Profile::Raid10 | Profile::Raid5 => 2,
            Profile::Raid1c3 | Profile::Raid6 => 3,
            Profile::Raid1c4 => 4,
        }
    }

    /// Returns whether the number of stripes of a chunk may vary with the number of devices.
    pub fn is_striped(self) -> bool {
        matches!(
            self,
            Profile::Raid0 | Profile::Raid10 | Profile::Raid5 | Profile::Raid6
        )
    }
}
