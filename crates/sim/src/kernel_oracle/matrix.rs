//! The matrix of volumes for testing a reader: checksum x compression x profile x node size x features.
//!
//! `full` has every combination that mkfs accepts, thousands of them. `representative` repeatedly selects the case
//! with the most new pairs of values. So a prefix of any length is as varied as possible. It includes every value of
//! every dimension. A soak uses all cases with a new pair of values, and random others.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use crate::fill::{self, Scale};
use crate::kernel::{Csum, Feature, KernelVolume, MkfsSpec, Profile};
use crate::manifest::Manifest;
use crate::{Error, Result, Rng, seed};

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    None,
    Zlib,
    Lzo,
    Zstd,
}

impl Compression {
    pub const ALL: [Compression; 4] = [
        Compression::None,
        Compression::Zlib,
        Compression::Lzo,
        Compression::Zstd,
    ];

    pub fn mount_option(self) -> &'static str {
        match self {
            Compression::None => "compress=no",
            Compression::Zlib => "compress-force=zlib",
            Compression::Lzo => "compress-force=lzo",
            Compression::Zstd => "compress-force=zstd",
        }
    }

    fn name(self) -> &'static str {
        self.mount_option().rsplit('=').next().unwrap_or_default()
    }
}

/// Deviations from the default features of mkfs.btrfs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Features {
    Default,
    /// No optional features: like a volume of 2012.
    Oldest,
    NoNoHoles,
    NoExtref,
    NoSkinny,
    /// Also without the block group tree, which depends on it.
    NoFreeSpaceTree,
    NoBlockGroupTree,
    Mixed,
    Quota,
    Squota,
    MetadataUuid,
}

impl Features {
    pub const ALL: [Features; 11] = [
        Features::Default,
        Features::Oldest,
        Features::NoNoHoles,
        Features::NoExtref,
        Features::NoSkinny,
        Features::NoFreeSpaceTree,
        Features::NoBlockGroupTree,
        Features::Mixed,
        Features::Quota,
        Features::Squota,
        Features::MetadataUuid,
    ];

    fn apply(self, spec: MkfsSpec) -> MkfsSpec {
        match self {
            Features::Default => spec,
            Features::Oldest => spec
                .without(Feature::NoHoles)
                .without(Feature::Extref)
                .without(Feature::SkinnyMetadata)
                .without(Feature::FreeSpaceTree)
                .without(Feature::BlockGroupTree),
            Features::NoNoHoles => spec.without(Feature::NoHoles),
            Features::NoExtref => spec.without(Feature::Extref),
            Features::NoSkinny => spec.without(Feature::SkinnyMetadata),
            Features::NoFreeSpaceTree => spec
                .without(Feature::FreeSpaceTree)
                .without(Feature::BlockGroupTree),
            Features::NoBlockGroupTree => spec.without(Feature::BlockGroupTree),
            Features::Mixed => spec.with(Feature::MixedBg),
            Features::Quota => spec.with(Feature::Quota),
            Features::Squota => spec.with(Feature::Squota),
            Features::MetadataUuid => spec.metadata_uuid(),
        }
    }
}

pub const NODE_SIZES: [u32; 5] = [4096, 8192, 16_384, 32_768, 65_536];

/// A kind of volume.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Case {
    pub csum: Csum,
    pub compression: Compression,
    /// The profile of data; metadata has the nearest sensible profile.
    pub profile: Profile,
    pub nodesize: u32,
    pub features: Features,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{}-{}-{}k-{:?}",
            self.csum,
            self.compression.name(),
            self.profile,
            self.nodesize / 1024,
            self.features
        )
    }
}

/// A filled volume of a case, with the manifest from the kernel.
#[derive(Debug)]
pub struct Filled {
    pub case: Case,
    pub volume: KernelVolume,
    pub manifest: Manifest,
}

impl Case {
    /// Returns the default case of mkfs.btrfs, with one changed profile.
    pub fn of_profile(profile: Profile) -> Case {
        Case {
            csum: Csum::Crc32c,
            compression: Compression::Zstd,
            profile,
            nodesize: 16_384,
            features: Features::Default,
        }
    }

    /// Returns whether the case is possible. Mixed groups need nodes of one sector and one profile for both types.
    fn is_possible(&self) -> bool {
        self.features != Features::Mixed || self.nodesize == 4096
    }

    pub fn metadata_profile(&self) -> Profile {
        match self.profile {
            Profile::Single if self.features != Features::Mixed => Profile::Dup,
            profile => profile,
        }
    }

    pub fn spec(&self) -> MkfsSpec {
        let spec = MkfsSpec::new()
            .csum(self.csum)
            .data(self.profile)
            .metadata(self.metadata_profile())
            .nodesize(self.nodesize)
            .devices(self.profile.min_devices());
        self.features.apply(spec)
    }

    /// Creates and fills the volume, and lists its contents after a new mount.
    pub fn build(&self, scale: &Scale, seed: u64) -> Result<Filled> {
        self.build_from(&self.spec(), scale, seed)
    }

    /// Builds the case on devices of a different size.
    pub fn build_on(&self, device_bytes: u64, scale: &Scale, seed: u64) -> Result<Filled> {
        self.build_from(&self.spec().device_bytes(device_bytes), scale, seed)
    }

    fn build_from(&self, spec: &MkfsSpec, scale: &Scale, seed: u64) -> Result<Filled> {
        let volume = KernelVolume::make(spec)?;
        let mount = volume.mount(self.compression.mount_option())?;
        fill::hard_cases(mount.path(), scale, seed)?;
        // Free space becomes zeros: readers must not use it, and kept images stay small.
        mount.trim()?;
        mount.unmount()?;
        let mount = volume.mount_ro()?;
        let manifest = Manifest::of_dir(mount.path())?;
        mount.unmount()?;
        if let Some(fault) = manifest.faults.first() {
            return Err(Error::KernelFault {
                path: fault.path.escape_ascii().to_string(),
                doing: fault.doing,
                reason: fault.reason.clone(),
            });
        }
        Ok(Filled {
            case: *self,
            volume,
            manifest,
        })
    }
}

/// Lists every possible case in a fixed order.
pub fn full() -> Vec<Case> {
    let mut cases = Vec::new();
    for &features in &Features::ALL {
        for &profile in Profile::ALL {
            for nodesize in NODE_SIZES {
                for &csum in Csum::ALL {
                    for compression in Compression::ALL {
                        cases.push(Case {
                            csum,
                            compression,
                            profile,
                            nodesize,
                            features,
                        });
                    }
                }
            }
        }
    }
    cases.retain(Case::is_possible);
    cases
}

const REPRESENTATIVES: usize = 18;
const IN_SOAK: usize = 200;

pub fn representative() -> Vec<Case> {
    varied(REPRESENTATIVES)
}

/// Chooses the number of cases in `UBTRFS_CASES`; by default the representative ones, in a soak some hundreds.
pub fn chosen() -> Vec<Case> {
    let few = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => IN_SOAK,
        None => REPRESENTATIVES,
    };
    let count = std::env::var("UBTRFS_CASES").ok();
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(few);
    sample(&full(), count, seed("kinds of volumes"))
}

/// Chooses the most varied cases and, once all pairs of values are covered, random others.
pub fn sample(all: &[Case], count: usize, seed: u64) -> Vec<Case> {
    let mut chosen = varied_of(all, count);
    let mut others: Vec<Case> = all.to_vec();
    others.retain(|case| !chosen.contains(case));
    let mut rng = Rng::new(seed);
    while chosen.len() < count && !others.is_empty() {
        let at = rng.below(others.len() as u64) as usize;
        chosen.push(others.swap_remove(at));
    }
    chosen
}

/// Lists the cases that ubtrfs can write: it creates no chunks with parity, and does not maintain simple quotas.
pub fn writable() -> Vec<Case> {
    let mut cases = full();
    cases.retain(|case| {
        let has_parity = matches!(case.profile, Profile::Raid5 | Profile::Raid6);
        !has_parity && case.features != Features::Squota
    });
    cases
}

/// Chooses at most `count` cases, the most varied first. Returns fewer if they cover all pairs of values.
pub fn varied(count: usize) -> Vec<Case> {
    varied_of(&full(), count)
}

/// Chooses the most varied of some cases.
pub fn varied_of(all: &[Case], count: usize) -> Vec<Case> {
    let mut seen_values = BTreeSet::new();
    let mut seen_pairs = BTreeSet::new();
    let mut chosen: Vec<Case> = Vec::new();
    while chosen.len() < count {
        let gain = |case: &&Case| {
            let values = values(case);
            // A new value counts for more than any number of pairs.
            let new_values = values.iter().filter(|value| !seen_values.contains(*value));
            let new_pairs = pairs(case)
                .filter(|pair| !seen_pairs.contains(pair))
                .count();
            new_values.count() * 100 + new_pairs
        };
        // The first among equals, so that the choice is deterministic.
        let Some(best) = all.iter().rev().max_by_key(gain) else {
            break;
        };
        if gain(&best) == 0 {
            break;
        }
        seen_values.extend(values(best));
        seen_pairs.extend(pairs(best));
        chosen.push(*best);
    }
    chosen
}

type Level = (usize, u32);

fn values(case: &Case) -> [Level; 5] {
    [
        (0, case.csum as u32),
        (1, case.compression as u32),
        (2, case.profile as u32),
        (3, case.nodesize),
        (4, case.features as u32),
    ]
}

fn pairs(case: &Case) -> impl Iterator<Item = (Level, Level)> {
    let values = values(case);
    (0..values.len()).flat_map(move |one| (0..one).map(move |other| (values[other], values[one])))
}
