//! Options of new volumes, and values derived from them.
//!
//! Not here: creating volumes (`mkfs`), limits and defaults (`ubtrfs-mkfs`).

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
/// assert_eq!(geometry.metadata, Profile::Raid1);
/// assert!(geometry.min_device_bytes() > 64 << 20);
/// assert_eq!(geometry.warnings(), [MkfsWarning::Raid56]);
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_mkfs::Geometry;
