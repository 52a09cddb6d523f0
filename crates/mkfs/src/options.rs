//! Options of a new volume, with their defaults, limits and warnings.
//!
//! The numbers are from mkfs.btrfs 6.14, observed or derived. They are the minimum device size, the node and sector
//! sizes, and the minimum number of devices of a profile.
//!
//! Not here: the sizes and places of chunks (`chunks`), random numbers and clocks ([`Identity`] contains their
//! results).

use ubtrfs_device::random_uuid;
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::Timespec;
use ubtrfs_format::superblock::{LABEL_SIZE, MAX_NODESIZE, MAX_SECTORSIZE, MIN_SECTORSIZE};
use ubtrfs_format::uuid::Uuid;

use super::error::MkfsError;
use super::features::FeatureSet;
pub(super) use ubtrfs_device::chunk_layout::RESERVED_BYTES;

#[cfg(test)]
mod tests;

const DEFAULT_NODESIZE: u32 = 16 << 10;
const MIB: u64 = 1 << 20;

/// The size of a SYSTEM chunk without a profile.
pub(super) const SINGLE_SYSTEM_CHUNK_BYTES: u64 = 4 * MIB;
/// Larger nodes set BIG_METADATA: the smallest page size of a host.
const SMALLEST_PAGE_BYTES: u32 = 4096;

/// The options of a new volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// At most [`MkfsOptions::MAX_LABEL_BYTES`], without a NUL.
    pub label: Vec<u8>,
    /// The profile of data. `None` means by the number of devices.
    pub data: Option<Profile>,
    /// The profile of metadata and of system chunks. `None` means by the number of devices.
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

impl MkfsOptions {
    /// The longest label.
    pub const MAX_LABEL_BYTES: usize = LABEL_SIZE - 1;
}

impl Default for MkfsOptions {
    fn default() -> Self {
        MkfsOptions {
            label: Vec::new(),
            data: None,
            metadata: None,
            nodesize: None,
            sectorsize: MIN_SECTORSIZE,
            csum_type: CsumType::Crc32c,
            features: FeatureSet::default(),
            root_owner: (0, 0),
        }
    }
}

/// The identity of a volume. The same options, sizes and identity give the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub fsid: Uuid,
    pub chunk_tree_uuid: Uuid,
    /// The UUID of the top-level subvolume.
    pub fs_tree_uuid: Uuid,
    /// One for each device.
    pub device_uuids: Vec<Uuid>,
    pub created: Timespec,
    /// Whether the UUIDs of subvolumes are derived from the fsid.
    pub is_derived: bool,
    /// Whether all nil UUIDs are derived from the options and the contents.
    pub is_of_contents: bool,
}

impl Identity {
    /// Creates random UUIDs for a volume with this number of devices.
    pub fn random(devices: usize, created: Timespec) -> Identity {
        Identity {
            fsid: random_uuid(),
            chunk_tree_uuid: random_uuid(),
            fs_tree_uuid: random_uuid(),
            device_uuids: (0..devices).map(|_| random_uuid()).collect(),
            created,
            is_derived: false,
            is_of_contents: false,
        }
    }

    /// Derives all UUIDs from the fsid, for reproducible volumes.
    pub fn derived(fsid: Uuid, devices: usize, created: Timespec) -> Identity {
        let device = |number| derived_uuid(fsid, "device", number);
        Identity {
            fsid,
            chunk_tree_uuid: derived_uuid(fsid, "chunk tree", 0),
            fs_tree_uuid: derived_uuid(fsid, "subvolume", RootId::FS_TREE.0),
            device_uuids: (1..=devices as u64).map(device).collect(),
            created,
            is_derived: true,
            is_of_contents: false,
        }
    }

    /// Derives all UUIDs from the options and the contents: the same files give the same volume.
    pub fn of_contents(devices: usize, created: Timespec) -> Identity {
        Identity {
            fsid: NIL,
            chunk_tree_uuid: NIL,
            fs_tree_uuid: NIL,
            device_uuids: vec![NIL; devices],
            created,
            is_derived: true,
            is_of_contents: true,
        }
    }

    /// Replaces nil UUIDs by those derived from `hash`, the hash of the contents.
    pub(super) fn with_contents(&self, hash: &[u8; 16]) -> Identity {
        let fsid = uuid::Builder::from_custom_bytes(*hash).into_uuid();
        let devices = self.device_uuids.len();
        let mut derived = Identity::derived(Uuid(fsid.into_bytes()), devices, self.created);
        for (uuid, &given) in derived.device_uuids.iter_mut().zip(&self.device_uuids) {
            if given != NIL {
                *uuid = given;
            }
        }
        derived
    }

    /// Returns the UUID of a subvolume other than the top level.
    pub(super) fn subvolume_uuid(&self, id: RootId) -> Uuid {
        if self.is_derived {
            derived_uuid(self.fsid, "subvolume", id.0)
        } else {
            random_uuid()
        }
    }
}

const NIL: Uuid = Uuid([0; 16]);

/// Derives a UUID from a hash (version 8).
fn derived_uuid(fsid: Uuid, of: &str, number: u64) -> Uuid {
    let named = [&fsid.0, of.as_bytes(), &number.to_le_bytes()].concat();
    let hash = CsumType::Sha256.compute(&named);
    let bytes = hash.as_bytes().first_chunk().copied().unwrap_or_default();
    Uuid(
        uuid::Builder::from_custom_bytes(bytes)
            .into_uuid()
            .into_bytes(),
    )
}

/// A warning about a volume that is created nevertheless.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Warning {
    /// RAID5 or RAID6.
    #[error(
        "RAID5/6 support has known problems and is strongly discouraged\n\t to be used besides testing or evaluation"
    )]
    Raid56,
    /// Data survives the loss of more devices than metadata does.
    #[error("metadata has lower redundancy than data")]
    MetadataLessRedundant,
    /// Both copies of DUP are on one device.
    #[error("DUP is not recommended on filesystem with multiple devices")]
    DupOnManyDevices,
    /// With this number of devices, parity is at best a copy.
    #[error("{profile} is not recommended on filesystem with {devices} devices only")]
    ParityOnFewDevices {
        /// The name of the profile.
        profile: &'static str,
        /// The number of devices.
        devices: usize,
    },
}

/// Options with all defaults resolved and all limits checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Geometry {
    /// At most [`MkfsOptions::MAX_LABEL_BYTES`], without a NUL.
    pub label: Vec<u8>,
    /// The profile of data.
    pub data: Profile,
    /// The profile of metadata.
    pub metadata: Profile,
    /// The size of a tree block in bytes.
    pub nodesize: u32,
    /// The size of a data block in bytes.
    pub sectorsize: u32,
    /// The algorithm of the checksums.
    pub csum_type: CsumType,
    /// The features, including those implied by other options.
    pub features: FeatureSet,
    /// User and group of the root directory.
    pub root_owner: (u32, u32),
    /// The number of devices.
    pub devices: usize,
}

impl MkfsOptions {
    /// Resolves defaults that depend on the number of devices, and checks the limits.
    pub fn resolve(&self, devices: usize) -> Result<Geometry, MkfsError> {
        let (data, metadata) = self.profiles(devices)?;
        let nodesize = self.checked_nodesize()?;
        let mut features = self.features;
        let profiles = [data, metadata];
        let any = |wanted: &[Profile]| profiles.iter().any(|profile| wanted.contains(profile));
        if any(&[Profile::Raid5, Profile::Raid6]) {
            features.incompat |= Incompat::RAID56;
        }
        if any(&[Profile::Raid1c3, Profile::Raid1c4]) {
            features.incompat |= Incompat::RAID1C34;
        }
        if nodesize > SMALLEST_PAGE_BYTES {
            features.incompat |= Incompat::BIG_METADATA;
        }
        if features.quota == Some(super::QuotaMode::Simple) {
            features.incompat |= Incompat::SIMPLE_QUOTA;
        }
        if features.has_block_group_tree() && !features.can_have_block_group_tree() {
            return Err(MkfsError::BlockGroupTreeNeeds);
        }
        check_device_count("metadata", metadata, devices)?;
        check_device_count("data", data, devices)?;
        Ok(Geometry {
            label: self.checked_label()?.to_vec(),
            data,
            metadata,
            nodesize,
            sectorsize: self.sectorsize,
            csum_type: self.csum_type,
            features,
            root_owner: self.root_owner,
            devices,
        })
    }

    fn profiles(&self, devices: usize) -> Result<(Profile, Profile), MkfsError> {
        if self.features.is_mixed() {
            let data = self.data.unwrap_or(Profile::Single);
            let metadata = self.metadata.unwrap_or(Profile::Single);
            return if data == metadata {
                Ok((data, metadata))
            } else {
                Err(MkfsError::MixedProfiles)
            };
        }
        let metadata = match devices {
            0 | 1 => Profile::Dup,
            _ => Profile::Raid1,
        };
        Ok((
            self.data.unwrap_or(Profile::Single),
            self.metadata.unwrap_or(metadata),
        ))
    }

    fn checked_nodesize(&self) -> Result<u32, MkfsError> {
        let sectorsize = self.sectorsize;
        if !(MIN_SECTORSIZE..=MAX_SECTORSIZE).contains(&sectorsize) {
            return Err(MkfsError::SectorsizeRange(sectorsize));
        }
        if !sectorsize.is_power_of_two() {
            return Err(MkfsError::SectorsizePower(sectorsize));
        }
        let mixed = self.features.is_mixed();
        let nodesize = self.nodesize.unwrap_or(if mixed {
            sectorsize
        } else {
            sectorsize.max(DEFAULT_NODESIZE)
        });
        if nodesize < sectorsize {
            Err(MkfsError::NodesizeSmall {
                nodesize,
                sectorsize,
            })
        } else if nodesize > MAX_NODESIZE {
            Err(MkfsError::NodesizeLarge(nodesize))
        } else if !nodesize.is_multiple_of(sectorsize) {
            Err(MkfsError::NodesizeUnaligned {
                nodesize,
                sectorsize,
            })
        } else if !nodesize.is_power_of_two() {
            Err(MkfsError::NodesizePower(nodesize))
        } else if mixed && nodesize != sectorsize {
            Err(MkfsError::NodesizeMixed {
                nodesize,
                sectorsize,
            })
        } else {
            Ok(nodesize)
        }
    }

    fn checked_label(&self) -> Result<&[u8], MkfsError> {
        // The last byte of the field must be 0: readers use it as a C string.
        if self.label.len() >= LABEL_SIZE {
            return Err(MkfsError::LabelTooLong {
                len_bytes: self.label.len(),
            });
        }
        if self.label.contains(&0) {
            return Err(MkfsError::LabelNul);
        }
        Ok(&self.label)
    }
}

fn check_device_count(kind: &'static str, profile: Profile, have: usize) -> Result<(), MkfsError> {
    let need = profile.min_devices();
    if have < need {
        return Err(MkfsError::TooFewDevices {
            kind,
            profile: profile.name(),
            have,
            need,
        });
    }
    Ok(())
}

impl Geometry {
    /// Returns the types of a metadata chunk.
    pub(super) fn metadata_types(&self) -> BlockGroupFlags {
        if self.features.is_mixed() {
            BlockGroupFlags::METADATA | BlockGroupFlags::DATA
        } else {
            BlockGroupFlags::METADATA
        }
    }

    /// Returns the types of a data chunk.
    pub(super) fn data_types(&self) -> BlockGroupFlags {
        if self.features.is_mixed() {
            self.metadata_types()
        } else {
            BlockGroupFlags::DATA
        }
    }

    pub(super) fn profile_of(&self, types: BlockGroupFlags) -> Profile {
        match types {
            BlockGroupFlags::DATA => self.data,
            _ => self.metadata,
        }
    }

    /// Returns the minimum size of each device, which leaves enough space for the kernel.
    ///
    /// It includes the temporary chunks of mkfs.btrfs, although none are created here, so that both refuse the same
    /// sizes.
    pub fn min_device_bytes(&self) -> u64 {
        if self.features.is_mixed() {
            let global_reserve = u64::from(self.nodesize) << 10;
            return 2 * (SINGLE_SYSTEM_CHUNK_BYTES + global_reserve);
        }
        let copies_on_one = |profile| if profile == Profile::Dup { 2 } else { 1 };
        let chunk = |profile, striped_bytes| match profile {
            Profile::Single => 8 * MIB,
            _ => striped_bytes,
        };
        let temporary = SINGLE_SYSTEM_CHUNK_BYTES + 16 * MIB;
        let metadata = 8 * MIB + chunk(self.metadata, 32 * MIB);
        let data = chunk(self.data, 64 * MIB);
        RESERVED_BYTES
            + temporary
            + metadata * copies_on_one(self.metadata)
            + data * copies_on_one(self.data)
    }

    /// Returns the warnings about such a volume.
    pub fn warnings(&self) -> Vec<Warning> {
        let devices = self.devices;
        let mut warnings = Vec::new();
        let profiles = [self.metadata, self.data];
        if profiles.iter().any(|profile| profile.parities() > 0) {
            warnings.push(Warning::Raid56);
        }
        for (profile, few) in [(Profile::Raid5, 2), (Profile::Raid6, 3)] {
            if profiles.contains(&profile) && devices == few {
                let profile = profile.name();
                warnings.push(Warning::ParityOnFewDevices { profile, devices });
            }
        }
        if devices > 1 && profiles.contains(&Profile::Dup) {
            warnings.push(Warning::DupOnManyDevices);
        }
        if self.metadata.tolerated_failures() < self.data.tolerated_failures() {
            warnings.push(Warning::MetadataLessRedundant);
        }
        warnings
    }
}
