//! The features of a new volume, with their names in `mkfs.btrfs -O`.
//!
//! A list such as `bgt,^extref` sets and clears features, starting from the defaults. Features that mkfs cannot create
//! are known by name, and refused.
//!
//! Not here: features implied by other options (`options`): mixed groups with `-M`, raid56 and raid1c34 with their
//! profiles, big-metadata with the node size.

use ubtrfs_format::features::{CompatRo, Incompat};

#[cfg(test)]
mod tests;

/// The accounting of space to subvolumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum QuotaMode {
    /// To the roots that refer to an extent.
    Full,
    /// To the root that first allocated it.
    Simple,
}

/// The features of a new volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeatureSet {
    /// The bits of the superblock for features that every reader must know.
    pub incompat: Incompat,
    /// The bits of the superblock for features that every writer must know.
    pub compat_ro: CompatRo,
    /// The accounting of space to subvolumes.
    pub quota: Option<QuotaMode>,
    /// Whether BLOCK_GROUP_TREE was requested by name, so that it must not be dropped in favour of another request.
    block_group_tree_asked: bool,
}

const FREE_SPACE_TREE: CompatRo = CompatRo::FREE_SPACE_TREE.union(CompatRo::FREE_SPACE_TREE_VALID);

impl Default for FeatureSet {
    fn default() -> Self {
        FeatureSet {
            incompat: Incompat::MIXED_BACKREF
                | Incompat::EXTENDED_IREF
                | Incompat::SKINNY_METADATA
                | Incompat::NO_HOLES,
            compat_ro: FREE_SPACE_TREE | CompatRo::BLOCK_GROUP_TREE,
            quota: None,
            block_group_tree_asked: false,
        }
    }
}

/// The effect of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    Incompat(Incompat),
    CompatRo(CompatRo),
    Quota(QuotaMode),
    /// Known, but not supported.
    Refused,
}

/// A feature in the user's terms.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// The name.
    pub name: &'static str,
    /// A shorter name for the same.
    pub alias: Option<&'static str>,
    /// A description in one line.
    pub summary: &'static str,
    /// The first kernel version with the feature.
    pub since: &'static str,
    meaning: Meaning,
}

/// Each row has the name with its alias, the first kernel version, the effect, and the summary.
macro_rules! features {
    ($($name:literal $(($alias:literal))? $since:literal $Meaning:ident $(($value:expr))? $summary:literal;)*) => {
        &[$(Feature {
            name: $name,
            alias: [$(Some($alias),)? None][0],
            summary: $summary,
            since: $since,
            meaning: Meaning::$Meaning $(($value))?,
        }),*]
    };
}

/// Every feature known by name, in the order of mkfs's summary.
const FEATURES: &[Feature] = features! {
    "mixed-bg" "2.6.37" Incompat(Incompat::MIXED_GROUPS) "data and metadata share their block groups";
    "quota" "3.4" Quota(QuotaMode::Full) "quota groups, hierarchical, by reference";
    "extref" "3.7" Incompat(Incompat::EXTENDED_IREF) "up to 65536 hard links to a file in one directory";
    "raid56" "3.9" Incompat(Incompat::RAID56) "the format of RAID5 and RAID6";
    "skinny-metadata" "3.10" Incompat(Incompat::SKINNY_METADATA) "smaller extent items of tree blocks";
    "no-holes" "3.14" Incompat(Incompat::NO_HOLES) "no extent items for the holes of files";
    "free-space-tree"("fst") "4.5" CompatRo(FREE_SPACE_TREE) "free space in a tree of its own (space_cache=v2)";
    "raid1c34" "5.5" Incompat(Incompat::RAID1C34) "RAID1 with 3 or 4 copies";
    "zoned" "5.12" Refused "zoned devices";
    "block-group-tree"("bgt") "6.1" CompatRo(CompatRo::BLOCK_GROUP_TREE)
        "block groups in a tree of their own, for a faster mount";
    "raid-stripe-tree"("rst") "6.7" Refused "data's places on devices in a tree of their own";
    "squota" "6.7" Quota(QuotaMode::Simple) "simple quota groups, by first allocation";
    "extent-tree-v2" "5.15" Refused "several extent trees";
    "remap-tree" "6.19" Refused "relocation by remapping";
};

/// An error in a list of features.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FeatureListError {
    /// No feature has this name.
    #[error("unrecognized filesystem feature '{0}'")]
    Unknown(String),
    /// Volumes with the feature cannot be created.
    #[error("filesystem feature '{0}' is not supported")]
    Refused(&'static str),
    /// Two kinds of accounting.
    #[error("quota and squota cannot be enabled together")]
    BothQuotas,
}

impl Feature {
    /// Finds the feature with this name or alias.
    pub fn by_name(name: &str) -> Option<&'static Feature> {
        FEATURES
            .iter()
            .find(|feature| feature.name == name || feature.alias == Some(name))
    }

    /// Iterates over all known features, in the order of mkfs's summary.
    pub fn all() -> impl Iterator<Item = &'static Feature> {
        FEATURES.iter()
    }

    /// Returns whether a volume with the feature can be created.
    pub fn is_made(&self) -> bool {
        self.meaning != Meaning::Refused
    }

    /// Returns whether the feature is in `set`.
    pub fn is_in(&self, set: &FeatureSet) -> bool {
        match self.meaning {
            Meaning::Incompat(bits) => set.incompat.contains(bits),
            Meaning::CompatRo(bits) => set.compat_ro.contains(bits),
            Meaning::Quota(mode) => set.quota == Some(mode),
            Meaning::Refused => false,
        }
    }
}

impl FeatureSet {
    /// Sets the features in a comma-separated list, and clears those with a leading `^`.
    ///
    /// A block group tree requires a free-space tree and the feature `no-holes`. If it is only set by default, clearing
    /// either of these clears it as well.
    ///
    /// # Errors
    ///
    /// A name is unknown, volumes with the feature cannot be created, or two features exclude each other.
    pub fn apply_list(&mut self, list: &str) -> Result<(), FeatureListError> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let (name, on) = match word.strip_prefix('^') {
                Some(name) => (name, false),
                None => (word, true),
            };
            let feature =
                Feature::by_name(name).ok_or_else(|| FeatureListError::Unknown(name.to_owned()))?;
            self.apply(feature, on)?;
        }
        if !self.block_group_tree_asked && !self.can_have_block_group_tree() {
            self.compat_ro.remove(CompatRo::BLOCK_GROUP_TREE);
        }
        Ok(())
    }

    fn apply(&mut self, feature: &Feature, on: bool) -> Result<(), FeatureListError> {
        match feature.meaning {
            Meaning::Incompat(bits) => self.incompat.set(bits, on),
            Meaning::CompatRo(bits) => {
                self.compat_ro.set(bits, on);
                if bits == CompatRo::BLOCK_GROUP_TREE {
                    self.block_group_tree_asked = on;
                }
            }
            Meaning::Quota(mode) => match (self.quota, on) {
                (Some(other), true) if other != mode => return Err(FeatureListError::BothQuotas),
                (_, true) => self.quota = Some(mode),
                (Some(same), false) if same == mode => self.quota = None,
                (_, false) => {}
            },
            Meaning::Refused if on => return Err(FeatureListError::Refused(feature.name)),
            Meaning::Refused => {}
        }
        Ok(())
    }

    /// Returns whether the set has the features that BLOCK_GROUP_TREE depends on.
    pub fn can_have_block_group_tree(&self) -> bool {
        self.has_free_space_tree() && self.incompat.contains(Incompat::NO_HOLES)
    }

    /// Returns whether the set has a free-space tree.
    pub fn has_free_space_tree(&self) -> bool {
        self.compat_ro.contains(FREE_SPACE_TREE)
    }

    /// Returns whether the set has a block group tree.
    pub fn has_block_group_tree(&self) -> bool {
        self.compat_ro.contains(CompatRo::BLOCK_GROUP_TREE)
    }

    /// Returns whether data and metadata share block groups.
    pub fn is_mixed(&self) -> bool {
        self.incompat.contains(Incompat::MIXED_GROUPS)
    }

    /// Returns the names of the features in the set, in the order of mkfs's summary.
    pub fn names(&self) -> Vec<&'static str> {
        FEATURES
            .iter()
            .filter(|feature| feature.is_in(self))
            .map(|feature| feature.name)
            .collect()
    }
}
