//! Options of new volumes, and values derived from them.
//!
//! Not here: creating volumes (`mkfs`), limits and defaults (`ubtrfs-mkfs`).

use std::fmt;

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::csum::CsumType as Lower;
use ubtrfs_format::superblock::LABEL_SIZE;

use crate::error::{Naming, Result};
use crate::reexports::MkfsWarning;

/// Options of a new volume, for [`Builder::mkfs`](crate::Builder::mkfs) and [`Mkfs`](crate::Mkfs).
///
/// ```
/// use ubtrfs::{CsumType, MkfsOptions, Profile, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let options = MkfsOptions {
///     label: b"cache".to_vec(),
///     metadata: Some(Profile::Single),
///     csum_type: CsumType::XxHash64,
///     ..MkfsOptions::default()
/// };
/// let volume = Volume::builder().mkfs(options).in_memory(256 << 20)?;
/// assert_eq!(volume.label(), "cache");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// At most [`MkfsOptions::MAX_LABEL_BYTES`], without a NUL.
    pub label: Vec<u8>,
    /// The profile of data. `None` means by the number of devices.
    pub data: Option<Profile>,
    /// The profile of metadata. `None` means by the number of devices.
    pub metadata: Option<Profile>,
    /// The size of a tree block. `None` means 16 KiB, or the sector size if that is larger; with mixed groups the
    /// sector size.
    pub nodesize: Option<u32>,
    /// The size of a data block.
    pub sectorsize: u32,
    /// The algorithm of the checksums.
    pub csum_type: CsumType,
    /// The features.
    pub features: FeatureSet,
    /// User and group of the top level's root directory, for a volume that is not filled with files.
    pub root_owner: (u32, u32),
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        let ubtrfs_mkfs::MkfsOptions {
            label,
            data,
            metadata,
            nodesize,
            sectorsize,
            csum_type,
            features,
            root_owner,
        } = ubtrfs_mkfs::MkfsOptions::default();
        MkfsOptions {
            label,
            data,
            metadata,
            nodesize,
            sectorsize,
            csum_type: CsumType::of(csum_type),
            features: FeatureSet(features),
            root_owner,
        }
    }
}

impl MkfsOptions {
    /// The longest label.
    pub const MAX_LABEL_BYTES: usize = LABEL_SIZE - 1;

    pub(crate) fn to_lower(&self) -> ubtrfs_mkfs::MkfsOptions {
        ubtrfs_mkfs::MkfsOptions {
            label: self.label.clone(),
            data: self.data,
            metadata: self.metadata,
            nodesize: self.nodesize,
            sectorsize: self.sectorsize,
            csum_type: self.csum_type.to_lower(),
            features: self.features.0,
            root_owner: self.root_owner,
        }
    }
}

/// The checksum algorithm of a volume. [`MkfsOptions`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CsumType {
    /// CRC-32C, of 4 bytes: the default.
    #[default]
    Crc32c,
    /// XXH64, of 8 bytes.
    XxHash64,
    /// SHA-256, of 32 bytes.
    Sha256,
    /// `BLAKE2b`, of 32 bytes.
    Blake2b,
}

impl CsumType {
    /// Every algorithm.
    pub const ALL: [CsumType; 4] = [
        CsumType::Crc32c,
        CsumType::XxHash64,
        CsumType::Sha256,
        CsumType::Blake2b,
    ];

    /// Returns the name that btrfs-progs prints, such as "xxhash64".
    pub fn name(self) -> &'static str {
        self.to_lower().name()
    }

    /// Parses a name as `mkfs.btrfs --csum` does: case-insensitive, with the short and long forms.
    ///
    /// ```
    /// use ubtrfs::CsumType;
    ///
    /// assert_eq!(CsumType::from_name("xxhash"), Some(CsumType::XxHash64));
    /// assert_eq!(CsumType::from_name("md5"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<CsumType> {
        Lower::from_name(name).map(CsumType::of)
    }

    fn of(lower: Lower) -> CsumType {
        match lower {
            Lower::Crc32c => CsumType::Crc32c,
            Lower::XxHash64 => CsumType::XxHash64,
            Lower::Sha256 => CsumType::Sha256,
            Lower::Blake2b => CsumType::Blake2b,
        }
    }

    fn to_lower(self) -> Lower {
        match self {
            CsumType::Crc32c => Lower::Crc32c,
            CsumType::XxHash64 => Lower::XxHash64,
            CsumType::Sha256 => Lower::Sha256,
            CsumType::Blake2b => Lower::Blake2b,
        }
    }
}

impl fmt::Display for CsumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Features of a new volume, with the names of `mkfs.btrfs -O`.
///
/// ```
/// use ubtrfs::{FeatureSet, MkfsOptions, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let mut features = FeatureSet::default();
/// features.apply_list("^no-holes,mixed-bg")?;
/// assert!(features.is_mixed() && !features.names().contains(&"no-holes"));
/// let options = MkfsOptions { features, ..MkfsOptions::default() };
/// let volume = Volume::builder().mkfs(options).in_memory(256 << 20)?;
/// volume.root().write("/file", b"content")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureSet(ubtrfs_mkfs::FeatureSet);

impl FeatureSet {
    /// Sets the features in a comma-separated list, and clears the ones with a `^` in front.
    ///
    /// A block group tree requires a free-space tree and the feature `no-holes`. If it is only set by default, clearing
    /// either of these clears it as well.
    ///
    /// # Errors
    ///
    /// A name is unknown, volumes with the feature cannot be created, or two features exclude each other
    /// (`InvalidInput`).
    pub fn apply_list(&mut self, list: &str) -> Result<()> {
        self.0.apply_list(list).naming_alone("set the features")
    }

    /// Returns whether data and metadata share their block groups.
    pub fn is_mixed(&self) -> bool {
        self.0.is_mixed()
    }

    /// Returns the names of the features in the set, in the order of [`Feature::all`].
    pub fn names(&self) -> Vec<&'static str> {
        self.0.names()
    }
}

/// A feature of a volume, with its name in `mkfs.btrfs -O`.
///
/// ```
/// use ubtrfs::{Feature, FeatureSet};
///
/// let usual = FeatureSet::default();
/// let names: Vec<_> = Feature::all().filter(|feature| feature.is_in(&usual)).map(|feature| feature.name).collect();
/// assert!(names.contains(&"no-holes") && !names.contains(&"quota"));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Feature {
    /// The name.
    pub name: &'static str,
    /// A shorter alias.
    pub alias: Option<&'static str>,
    /// A one-line description.
    pub summary: &'static str,
    /// The first kernel version with support.
    pub since: &'static str,
    lower: &'static ubtrfs_mkfs::Feature,
}

impl Feature {
    /// Iterates over all known features, in the order of a summary.
    pub fn all() -> impl Iterator<Item = Feature> {
        ubtrfs_mkfs::FEATURES.iter().map(|lower| Feature {
            name: lower.name,
            alias: lower.alias,
            summary: lower.summary,
            since: lower.since,
            lower,
        })
    }

    /// Returns whether volumes with the feature can be created.
    pub fn is_made(&self) -> bool {
        self.lower.is_made()
    }

    /// Returns whether it is in a set.
    pub fn is_in(&self, set: &FeatureSet) -> bool {
        self.lower.is_in(&set.0)
    }
}

/// Options of a new volume with all defaults filled in, from [`Mkfs::geometry`](crate::Mkfs::geometry).
///
/// ```
/// use ubtrfs::{Mkfs, MkfsOptions, MkfsWarning, Profile};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let options = MkfsOptions {
///     data: Some(Profile::Raid5),
///     ..MkfsOptions::default()
/// };
/// let geometry = Mkfs::new(options).geometry(3)?;
/// assert_eq!(geometry.metadata(), Profile::Raid1);
/// assert!(geometry.min_device_bytes() > 64 << 20);
/// assert_eq!(geometry.warnings(3), [MkfsWarning::Raid56]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Geometry(ubtrfs_mkfs::Geometry);

impl Geometry {
    pub(crate) fn of(lower: ubtrfs_mkfs::Geometry) -> Geometry {
        Geometry(lower)
    }

    /// Returns the label, or an empty one.
    pub fn label(&self) -> &[u8] {
        let label = self.0.label.split(|&byte| byte == 0).next();
        label.unwrap_or_default()
    }

    /// Returns the profile of data.
    pub fn data(&self) -> Profile {
        self.0.data
    }

    /// Returns the profile of metadata.
    pub fn metadata(&self) -> Profile {
        self.0.metadata
    }

    /// Returns the size of a tree block.
    pub fn nodesize(&self) -> u32 {
        self.0.nodesize
    }

    /// Returns the size of a data block.
    pub fn sectorsize(&self) -> u32 {
        self.0.sectorsize
    }

    /// Returns the checksum algorithm.
    pub fn csum_type(&self) -> CsumType {
        CsumType::of(self.0.csum_type)
    }

    /// Returns the features, including those derived from other options.
    pub fn features(&self) -> FeatureSet {
        FeatureSet(self.0.features)
    }

    /// Returns user and group of the root directory.
    pub fn root_owner(&self) -> (u32, u32) {
        self.0.root_owner
    }

    /// Returns the minimum size of each device, which leaves the kernel room to work.
    pub fn min_device_bytes(&self) -> u64 {
        self.0.min_device_bytes()
    }

    /// Returns the warnings about such a volume on this number of devices.
    pub fn warnings(&self, devices: usize) -> Vec<MkfsWarning> {
        self.0.warnings(devices)
    }
}
