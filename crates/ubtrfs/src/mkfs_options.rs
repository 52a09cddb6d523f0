//! Options of new volumes, and values derived from them.
//!
//! Not here: creating volumes (`mkfs`), limits and defaults (`ubtrfs-mkfs`).

use ubtrfs_format::block_group_flags::Profile;

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
pub use ubtrfs_mkfs::MkfsOptions;

/// The checksum algorithm of a volume. [`MkfsOptions`] has an example.
///
/// ```
/// use ubtrfs::CsumType;
///
/// assert_eq!(CsumType::from_name("xxhash"), Some(CsumType::XxHash64));
/// assert_eq!(CsumType::from_name("md5"), None);
/// ```
pub use ubtrfs_format::csum::CsumType;

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
pub use ubtrfs_mkfs::FeatureSet;

/// A feature of a volume, with its name in `mkfs.btrfs -O`.
///
/// ```
/// use ubtrfs::{Feature, FeatureSet};
///
/// let usual = FeatureSet::default();
/// let names: Vec<_> = Feature::all().filter(|feature| feature.is_in(&usual)).map(|feature| feature.name).collect();
/// assert!(names.contains(&"no-holes") && !names.contains(&"quota"));
/// ```
pub use ubtrfs_mkfs::Feature;

/// An error in a list of features, which converts to an [`Error`](crate::Error) of kind `InvalidInput`. [`FeatureSet`]
/// has an example.
pub use ubtrfs_mkfs::FeatureListError;

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
        self.0.csum_type
    }

    /// Returns the features, including those derived from other options.
    pub fn features(&self) -> FeatureSet {
        self.0.features
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
