//! Reports of a volume about itself: space, devices, counts.

use std::path::PathBuf;

use ubtrfs_engine::Error as EngineError;
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::DevStatsItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::uuid::Uuid;

use crate::error::{Naming, Result};
use crate::volume::Volume;

#[cfg(test)]
mod tests;

/// The space of a volume, in bytes, as the kernel's btrfs reports it for the same volume.
///
/// ```
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let before = volume.space()?;
/// volume.root().write("/file", vec![7; 8 << 20])?;
/// volume.sync()?;
/// assert!(volume.space()?.free_bytes <= before.free_bytes - (8 << 20));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// The size as `df` shows it: that of the devices, divided by the copies that data has.
    pub total_bytes: u64,
    /// The space that is not in use, divided by the copies that data has.
    pub free_bytes: u64,
    /// The space for new data: free space of data, and space that no block group has.
    pub available_bytes: u64,
    /// The space kept back so that files can be deleted on a full volume.
    pub reserve_bytes: u64,
    /// The space of block groups: data, system, metadata, mixed; of each kind by profile.
    pub block_groups: Vec<BlockGroupSpace>,
}

/// The block groups of one kind and profile. [`Space`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockGroupSpace {
    /// The kind of content of the block groups.
    pub kind: BlockGroupKind,
    /// How it lies on the devices. None if the profile is not known.
    pub profile: Option<Profile>,
    /// The size of the block groups, in bytes of content. On devices they take more, by the copies of the profile.
    pub total_bytes: u64,
    /// The bytes of content in use.
    pub used_bytes: u64,
}

/// The kinds of content of block groups. [`Profile`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockGroupKind {
    /// Content of files.
    Data,
    /// Trees.
    Metadata,
    /// The tree of chunks.
    System,
    /// Content of files and trees.
    Mixed,
}

impl BlockGroupKind {
    /// Returns the name as `btrfs filesystem df` prints it, such as "Data".
    pub fn name(self) -> &'static str {
        match self {
            BlockGroupKind::Data => "Data",
            BlockGroupKind::Metadata => "Metadata",
            BlockGroupKind::System => "System",
            BlockGroupKind::Mixed => "Data+Metadata",
        }
    }

    fn of(flags: BlockGroupFlags) -> BlockGroupKind {
        let has = |flag| flags.contains(flag);
        match (has(BlockGroupFlags::DATA), has(BlockGroupFlags::METADATA)) {
            (true, true) => BlockGroupKind::Mixed,
            (true, false) => BlockGroupKind::Data,
            (false, true) => BlockGroupKind::Metadata,
            (false, false) => BlockGroupKind::System,
        }
    }
}

/// A device of a volume.
///
/// ```
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let devices = volume.devices();
/// assert_eq!(devices.len(), 1);
/// assert_eq!((devices[0].id, devices[0].total_bytes), (1, 256 << 20));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The number within the volume.
    pub id: u64,
    /// The UUID, which no other device has.
    pub uuid: Uuid,
    /// Where it is; None if it is missing.
    pub path: Option<PathBuf>,
    /// The length of the device or file itself; None if it is missing.
    pub len_bytes: Option<u64>,
    /// The bytes of the device that the volume takes.
    pub total_bytes: u64,
    /// The bytes of the device that block groups have.
    pub allocated_bytes: u64,
}

/// The space that block groups of one kind, profile and number of stripes take from one device.
///
/// ```
/// use ubtrfs::{BlockGroupKind, Profile, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let allocations = volume.device_allocations();
/// let mut metadata = allocations.iter().filter(|of| of.kind == BlockGroupKind::Metadata);
/// let metadata = metadata.next().expect("each volume has some");
/// assert_eq!((metadata.device_id, metadata.profile), (1, Some(Profile::Dup)));
/// let content = volume.space()?.block_groups;
/// let content = content.iter().find(|of| of.kind == BlockGroupKind::Metadata);
/// // Both copies are on the one device.
/// assert_eq!(content.map(|of| 2 * of.total_bytes), Some(metadata.device_bytes));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAllocation {
    /// The number of the device within the volume, as [`DeviceInfo::id`].
    pub device_id: u64,
    /// The kind of content of the block groups.
    pub kind: BlockGroupKind,
    /// How it lies on the devices. None if the profile is not known.
    pub profile: Option<Profile>,
    /// The stripes of each of the block groups, on all devices together.
    pub stripes: u64,
    /// The bytes of the device that they take.
    pub device_bytes: u64,
}

/// The errors of a device that the kernel's btrfs has counted, since the volume was made or they were last set to 0. This
/// library counts none.
///
/// ```
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let errors = volume.device_errors()?;
/// assert_eq!((errors.len(), errors[0].device_id), (1, 1));
/// assert_eq!(errors[0].corruption_errors, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceErrors {
    /// The number of the device within the volume, as [`DeviceInfo::id`].
    pub device_id: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Flushes that failed.
    pub flush_errors: u64,
    /// Blocks whose checksum was another.
    pub corruption_errors: u64,
    /// Tree blocks of another transaction than the one that was meant.
    pub generation_errors: u64,
}

impl DeviceErrors {
    /// Reads the counts of an item. All are 0 without one.
    fn of(device_id: u64, item: Option<&[u8]>) -> DeviceErrors {
        let counts = DevStatsItem::of(item.unwrap_or_default()).values;
        DeviceErrors::counted(device_id, counts.map(|count| count.get()))
    }

    fn counted(device_id: u64, counts: [u64; 5]) -> DeviceErrors {
        let [
            write_errors,
            read_errors,
            flush_errors,
            corruption_errors,
            generation_errors,
        ] = counts;
        DeviceErrors {
            device_id,
            write_errors,
            read_errors,
            flush_errors,
            corruption_errors,
            generation_errors,
        }
    }
}

/// The sizes and limits of the quota group that belongs to one subvolume, in bytes.
///
/// ```
/// use ubtrfs::{FeatureSet, MkfsOptions, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// assert_eq!(volume.subvolume_quota(volume.root().id())?, None);
///
/// let mut features = FeatureSet::default();
/// features.apply_list("quota")?;
/// let options = MkfsOptions { features, ..MkfsOptions::default() };
/// let volume = Volume::builder().mkfs(options).in_memory(256 << 20)?;
/// let quota = volume.subvolume_quota(volume.root().id())?.expect("quotas are on");
/// assert!(quota.referenced_bytes > 0);
/// assert_eq!(quota.max_referenced_bytes, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubvolumeQuota {
    /// All that the subvolume refers to.
    pub referenced_bytes: u64,
    /// The part of it that no other subvolume refers to.
    pub exclusive_bytes: u64,
    /// The most that it may refer to; None: there is no limit.
    pub max_referenced_bytes: Option<u64>,
    /// The most that it alone may refer to; None: there is no limit.
    pub max_exclusive_bytes: Option<u64>,
}

/// Counts since a volume was opened for writing.
///
/// ```
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// volume.root().write("/file", vec![7; 1 << 20])?;
/// volume.sync()?;
/// let statistics = volume.statistics();
/// assert_eq!(statistics.data_bytes, 1 << 20);
/// assert!(statistics.commits >= 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Commits.
    pub commits: u64,
    /// Syncs of files that wrote a log in place of a commit.
    pub logs: u64,
    /// Syncs of data written in place that needed neither a log nor a commit, only a flush of the devices.
    pub data_flushes: u64,
    /// Data written, in bytes; one copy of each.
    pub data_bytes: u64,
    /// Tree blocks written by commits, in bytes; one copy of each.
    pub metadata_bytes: u64,
    /// Tree blocks written for logs, in bytes; one copy of each.
    pub log_bytes: u64,
}

impl Volume {
    /// Tells how much space there is, and how it is used.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn space(&self) -> Result<Space> {
        self.read_space().naming_alone("read the space")
    }

    fn read_space(&self) -> std::result::Result<Space, EngineError> {
        let engine = self.engine();
        let sums = engine.statfs()?;
        let groups = engine.profile_usages()?.into_iter();
        let groups = groups.map(|usage| BlockGroupSpace {
            kind: BlockGroupKind::of(usage.flags),
            profile: usage.flags.profile(),
            total_bytes: usage.total,
            used_bytes: usage.used,
        });
        Ok(Space {
            total_bytes: sums.total_bytes,
            free_bytes: sums.free_bytes,
            available_bytes: sums.available_bytes,
            reserve_bytes: engine.global_reserve_bytes()?,
            block_groups: groups.collect(),
        })
    }

    /// Returns the bytes of content that block groups had in use as of the last commit, as `btrfs filesystem show`
    /// prints them.
    ///
    /// ```
    /// use ubtrfs::Volume;
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let before = volume.used_bytes();
    /// volume.root().write("/file", vec![7; 8 << 20])?;
    /// volume.sync()?;
    /// assert!(volume.used_bytes() >= before + (8 << 20));
    /// # Ok(())
    /// # }
    /// ```
    pub fn used_bytes(&self) -> u64 {
        self.engine().superblock().bytes_used.get()
    }

    /// Lists the devices by ascending id, those that are missing as well.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let devices = self.engine().pool().devices().into_iter();
        devices
            .map(|device| DeviceInfo {
                id: device.devid.0,
                uuid: device.uuid,
                path: device.path,
                len_bytes: device.len_bytes,
                total_bytes: device.item.map_or(0, |item| item.total_bytes.get()),
                allocated_bytes: device.item.map_or(0, |item| item.bytes_used.get()),
            })
            .collect()
    }

    /// Lists the space that block groups take from each device: data, metadata, mixed, system; of each kind by profile.
    pub fn device_allocations(&self) -> Vec<DeviceAllocation> {
        let all = self.engine().device_allocations().into_iter();
        all.map(|allocation| DeviceAllocation {
            device_id: allocation.devid.0,
            kind: BlockGroupKind::of(allocation.flags),
            profile: allocation.flags.profile(),
            stripes: allocation.num_stripes,
            device_bytes: allocation.device_bytes(),
        })
        .collect()
    }

    /// Returns the errors that were counted of each device, by ascending id. A volume that is open for writing knows those
    /// up to now, one for reading those that were saved.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn device_errors(&self) -> Result<Vec<DeviceErrors>> {
        let errors = self.read_device_errors();
        errors.naming_alone("read the errors of devices")
    }

    fn read_device_errors(&self) -> std::result::Result<Vec<DeviceErrors>, EngineError> {
        let pool = self.engine().pool();
        let devices = pool.devices().into_iter();
        if self.engine().is_writable() {
            let counts = devices.filter_map(|device| {
                let counts = pool.error_counts(device.devid)?;
                Some(DeviceErrors::counted(device.devid.0, counts))
            });
            return Ok(counts.collect());
        }
        let tree = self.engine().tree(RootId::DEV_TREE)?;
        devices
            .map(|device| {
                let id = device.devid.0;
                let key = Key::new(objectid::DEV_STATS, KeyType::DEV_STATS, id);
                let item = tree.view.get(&key)?;
                Ok(DeviceErrors::of(id, item.as_deref()))
            })
            .collect()
    }

    /// Reads the quota of the subvolume of an id. None: quotas are off, or have none for it.
    ///
    /// The numbers are those that the kernel's btrfs noted last. This library shows them, and holds to no limit.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn subvolume_quota(&self, id: u64) -> Result<Option<SubvolumeQuota>> {
        let quota = self.engine().subvolume_quota(RootId(id));
        let quota = quota.naming_alone("read the quota of a subvolume")?;
        Ok(quota.map(|quota| SubvolumeQuota {
            referenced_bytes: quota.referenced,
            exclusive_bytes: quota.exclusive,
            max_referenced_bytes: quota.max_referenced,
            max_exclusive_bytes: quota.max_exclusive,
        }))
    }

    /// Counts what was written since the volume was opened; zeros if it was opened for reading.
    pub fn statistics(&self) -> Statistics {
        let stats = self.engine().writer_stats().unwrap_or_default();
        Statistics {
            commits: stats.commits,
            logs: stats.logs,
            data_flushes: stats.data_flushes,
            data_bytes: stats.data_bytes,
            metadata_bytes: stats.node_bytes,
            log_bytes: stats.log_bytes,
        }
    }
}
