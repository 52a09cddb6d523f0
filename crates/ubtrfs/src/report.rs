//! Reports of a volume about itself: space, devices, counts.

use std::path::PathBuf;

use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::DevStatsItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::Error as EngineError;

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
    /// The size as in `df`: the sum of the devices, divided by the number of copies of data.
    pub total_bytes: u64,
    /// The unused space, divided by the number of copies of data.
    pub free_bytes: u64,
    /// The space for new data: free space in data block groups, and unallocated space.
    pub available_bytes: u64,
    /// The space reserved for deleting files on a full volume.
    pub reserve_bytes: u64,
    /// The block groups: data, system, metadata, mixed; each kind by profile.
    pub block_groups: Vec<BlockGroupSpace>,
}

/// The block groups of one kind and profile. [`Space`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockGroupSpace {
    /// The kind of content of the block groups.
    pub kind: BlockGroupKind,
    /// The profile; `None` if it is unknown.
    pub profile: Option<Profile>,
    /// The size of the block groups, in bytes of content. On the devices they use more, by the copies of the profile.
    pub total_bytes: u64,
    /// The number of used bytes of content.
    pub used_bytes: u64,
}

/// The kinds of content of block groups. [`Profile`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockGroupKind {
    /// Content of files.
    Data,
    /// Metadata.
    Metadata,
    /// The chunk tree.
    System,
    /// Content of files and metadata.
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
    /// The id within the volume.
    pub id: u64,
    /// The unique UUID of the device.
    pub uuid: Uuid,
    /// The path; `None` if the device is missing.
    pub path: Option<PathBuf>,
    /// The length of the device or file itself; `None` if it is missing.
    pub len_bytes: Option<u64>,
    /// The number of bytes of the device that the volume uses.
    pub total_bytes: u64,
    /// The number of bytes of the device that are allocated to block groups.
    pub allocated_bytes: u64,
}

/// The space of one device that is allocated to block groups of one kind, profile and number of stripes.
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
    /// The id of the device within the volume, as [`DeviceInfo::id`].
    pub device_id: u64,
    /// The kind of content of the block groups.
    pub kind: BlockGroupKind,
    /// The profile; `None` if it is unknown.
    pub profile: Option<Profile>,
    /// The number of stripes of each block group, on all devices together.
    pub stripes: u64,
    /// The number of allocated bytes of the device.
    pub device_bytes: u64,
}

/// The error counters of a device, since the creation of the volume or the last reset. They include errors that the
/// kernel's btrfs has counted.
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
    /// The id of the device within the volume, as [`DeviceInfo::id`].
    pub device_id: u64,
    /// The number of failed writes.
    pub write_errors: u64,
    /// The number of failed reads.
    pub read_errors: u64,
    /// The number of failed flushes.
    pub flush_errors: u64,
    /// The number of blocks with a wrong checksum.
    pub corruption_errors: u64,
    /// The number of tree blocks with a wrong transaction id.
    pub generation_errors: u64,
}

impl DeviceErrors {
    /// Reads the counts from an item. All are 0 without one.
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
pub use ubtrfs_fs::inspect::SubvolumeQuota;

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
    /// The number of commits.
    pub commits: u64,
    /// The number of fsyncs that wrote a log in place of a commit.
    pub logs: u64,
    /// The number of fsyncs after overwriting data in place that needed neither a log nor a commit, only a flush of the
    /// devices.
    pub data_flushes: u64,
    /// Written data in bytes, counting one copy.
    pub data_bytes: u64,
    /// Tree blocks written by commits in bytes, counting one copy.
    pub metadata_bytes: u64,
    /// Tree blocks written for logs in bytes, counting one copy.
    pub log_bytes: u64,
}

impl Volume {
    /// Returns the size and use of space.
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

    /// Returns the used bytes of content in block groups as of the last commit, as `btrfs filesystem show` prints them.
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

    /// Lists the devices by ascending id, including missing ones.
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

    /// Lists the space of each device that is allocated to block groups: data, metadata, mixed, system; each kind by
    /// profile.
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

    /// Returns the error counters of each device, by ascending id. They are current in a volume that is open for
    /// writing, and otherwise as of the last commit.
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

    /// Reads the quota of a subvolume by its id. Returns `None` if quotas are off, or the subvolume has no quota group.
    ///
    /// The numbers are the last ones that the kernel's btrfs recorded. This library displays them, and enforces no
    /// limit.
    ///
    /// # Errors
    ///
    /// The volume is damaged or cannot be read.
    pub fn subvolume_quota(&self, id: u64) -> Result<Option<SubvolumeQuota>> {
        let quota = self.engine().subvolume_quota(RootId(id));
        quota.naming_alone("read the quota of a subvolume")
    }

    /// Returns the counts since the volume was opened; zeros if it was opened read-only.
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
