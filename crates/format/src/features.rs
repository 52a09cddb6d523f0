//! Feature bits of the superblock, with their user-visible names.

use bitflags::bitflags;

bitflags! {
    /// Features that every reader must support.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct Incompat: u64 {
        const MIXED_BACKREF = 1 << 0;
        const DEFAULT_SUBVOL = 1 << 1;
        const MIXED_GROUPS = 1 << 2;
        const COMPRESS_LZO = 1 << 3;
        const COMPRESS_ZSTD = 1 << 4;
        const BIG_METADATA = 1 << 5;
        const EXTENDED_IREF = 1 << 6;
        const RAID56 = 1 << 7;
        const SKINNY_METADATA = 1 << 8;
        const NO_HOLES = 1 << 9;
        const METADATA_UUID = 1 << 10;
        const RAID1C34 = 1 << 11;
        const ZONED = 1 << 12;
        const EXTENT_TREE_V2 = 1 << 13;
        const RAID_STRIPE_TREE = 1 << 14;
        const SIMPLE_QUOTA = 1 << 16;
        const REMAP_TREE = 1 << 17;
        const _ = !0;
    }
}

bitflags! {
    /// Features that a reader may ignore but a writer must support.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct CompatRo: u64 {
        const FREE_SPACE_TREE = 1 << 0;
        const FREE_SPACE_TREE_VALID = 1 << 1;
        const VERITY = 1 << 2;
        const BLOCK_GROUP_TREE = 1 << 3;
        const _ = !0;
    }
}

impl Incompat {
    /// The features that this code supports.
    pub const SUPPORTED: Incompat = Incompat::MIXED_BACKREF
        .union(Incompat::DEFAULT_SUBVOL)
        .union(Incompat::MIXED_GROUPS)
        .union(Incompat::COMPRESS_LZO)
        .union(Incompat::COMPRESS_ZSTD)
        .union(Incompat::BIG_METADATA)
        .union(Incompat::EXTENDED_IREF)
        .union(Incompat::RAID56)
        .union(Incompat::SKINNY_METADATA)
        .union(Incompat::NO_HOLES)
        .union(Incompat::METADATA_UUID)
        .union(Incompat::RAID1C34)
        .union(Incompat::SIMPLE_QUOTA);

    /// Returns the names of the set bits, lowest first.
    pub fn names(self) -> Vec<FeatureName> {
        feature_names(self.bits(), |bit| name_of(INCOMPAT_NAMES, bit))
    }
}

impl CompatRo {
    /// The features that this code supports for reading and writing.
    pub const SUPPORTED: CompatRo = CompatRo::FREE_SPACE_TREE
        .union(CompatRo::FREE_SPACE_TREE_VALID)
        .union(CompatRo::VERITY)
        .union(CompatRo::BLOCK_GROUP_TREE);

    /// Returns the names of the set bits, lowest first.
    pub fn names(self) -> Vec<FeatureName> {
        feature_names(self.bits(), |bit| name_of(COMPAT_RO_NAMES, bit))
    }
}

/// A feature bit, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeatureName {
    pub bit: u64,
    /// None if no released kernel has a name for the bit.
    pub name: Option<&'static str>,
}

impl std::fmt::Display for FeatureName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown feature bit {:#x}", self.bit),
        }
    }
}

const INCOMPAT_NAMES: &[(Incompat, &str)] = &[
    (Incompat::MIXED_BACKREF, "mixed-backref"),
    (Incompat::DEFAULT_SUBVOL, "default-subvol"),
    (Incompat::MIXED_GROUPS, "mixed-bg"),
    (Incompat::COMPRESS_LZO, "compress-lzo"),
    (Incompat::COMPRESS_ZSTD, "compress-zstd"),
    (Incompat::BIG_METADATA, "big-metadata"),
    (Incompat::EXTENDED_IREF, "extref"),
    (Incompat::RAID56, "raid56"),
    (Incompat::SKINNY_METADATA, "skinny-metadata"),
    (Incompat::NO_HOLES, "no-holes"),
    (Incompat::METADATA_UUID, "metadata-uuid"),
    (Incompat::RAID1C34, "raid1c34"),
    (Incompat::ZONED, "zoned"),
    (Incompat::EXTENT_TREE_V2, "extent-tree-v2"),
    (Incompat::RAID_STRIPE_TREE, "raid-stripe-tree"),
    (Incompat::SIMPLE_QUOTA, "squota"),
    (Incompat::REMAP_TREE, "remap-tree"),
];

const COMPAT_RO_NAMES: &[(CompatRo, &str)] = &[
    (CompatRo::FREE_SPACE_TREE, "free-space-tree"),
    (CompatRo::FREE_SPACE_TREE_VALID, "free-space-tree-valid"),
    (CompatRo::VERITY, "verity"),
    (CompatRo::BLOCK_GROUP_TREE, "block-group-tree"),
];

fn name_of<F: bitflags::Flags<Bits = u64>>(
    table: &'static [(F, &'static str)],
    bit: u64,
) -> Option<&'static str> {
    table
        .iter()
        .find(|(flag, _)| flag.bits() == bit)
        .map(|&(_, name)| name)
}

fn feature_names(bits: u64, name: impl Fn(u64) -> Option<&'static str>) -> Vec<FeatureName> {
    (0..64)
        .map(|shift| 1u64 << shift)
        .filter(|bit| bits & bit != 0)
        .map(|bit| FeatureName {
            bit,
            name: name(bit),
        })
        .collect()
}
