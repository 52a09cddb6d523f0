//! The devices of a volume, and their allocations.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::io::Errno;
use ubtrfs::scan_devices;
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{DevId, RootId, objectid};
use ubtrfs_format::item::{BlockGroupItem, Chunk, DevExtent, DevStatsItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::inspect::DeviceAllocation;
use ubtrfs_fuse::ioctl_args::{self as args, DevInfo, DevStats, FsInfo};
use ubtrfs_fuse::mount::mount_table;
use zerocopy::{FromBytes, FromZeros};

use super::Asked;
use super::subvolume::text;
use super::volume::group_type;
use crate::presentation::profiles::Allocation;

/// Returns the identity of a block device or regular file, and None for anything else.
fn identity(path: &Path) -> Option<(bool, u64, u64)> {
    let metadata = path.metadata().ok()?;
    let kind = metadata.file_type();
    if kind.is_block_device() {
        return Some((true, metadata.rdev(), 0));
    }
    kind.is_file()
        .then(|| (false, metadata.dev(), metadata.ino()))
}

/// A chunk from the chunk tree.
#[derive(Clone, Debug)]
pub(crate) struct FoundChunk {
    pub(crate) logical: u64,
    pub(crate) len_bytes: u64,
    pub(crate) flags: BlockGroupFlags,
    /// The devid and the offset on the device.
    pub(crate) stripes: Vec<(u64, u64)>,
    pub(crate) used: u64,
}

impl Asked {
    /// Returns the mount that uses a block device or image, and its devid. Returns None if the caller cannot
    /// query the mount.
    pub(crate) fn mount_of_device(path: &Path) -> Option<(Asked, u64)> {
        let wanted = identity(path)?;
        let volume_on = |device: &Path| Some(scan_devices(&[device]).first()?.volume);
        let volume = volume_on(path)?;
        let table = mount_table().ok()?.into_iter();
        // Do not query unrelated mounts: a stopped server would never answer.
        let mut mounts = table.filter(|entry| {
            let device = if entry.is_ours() {
                entry.volume_path()
            } else {
                entry.source.clone()
            };
            let is_btrfs = entry.is_ours() || entry.fs_type == "btrfs";
            is_btrfs && volume_on(&device) == Some(volume)
        });
        mounts.find_map(|entry| {
            let asked = Asked::at(&entry.mountpoint).ok()?;
            let devices = asked.devices().ok()?.into_iter();
            let mut named = devices.map(|device| {
                let path = Path::new(OsStr::from_bytes(text(&device.path)));
                (device.devid.get(), identity(path))
            });
            let (devid, _) = named.find(|(_, found)| *found == Some(wanted))?;
            Some((asked, devid))
        })
    }

    pub(crate) fn volume_info(&self) -> Result<FsInfo, Errno> {
        let mut info = FsInfo::new_zeroed();
        self.ask::<{ args::FS_INFO }, _>(&mut info)?;
        Ok(info)
    }

    /// Returns the devices by devid, including missing ones.
    pub(crate) fn devices(&self) -> Result<Vec<DevInfo>, Errno> {
        let volume = self.volume_info()?;
        let mut found = Vec::new();
        for devid in 0..=volume.max_id.get() {
            let mut info = DevInfo::new_zeroed();
            info.devid.set(devid);
            match self.ask::<{ args::DEV_INFO }, _>(&mut info) {
                Ok(()) => found.push(info),
                Err(Errno::NODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Returns the allocations of all devices, or None if the caller may not search trees.
    pub(crate) fn device_allocations(&self) -> Result<Option<Vec<Allocation>>, Errno> {
        let key = |offset| Key::new(objectid::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, offset);
        let mut chunks = Vec::new();
        let asked = self.search(RootId::CHUNK_TREE, key(0), key(u64::MAX), &mut |_, item| {
            if let Some((chunk, stripes, _)) = Chunk::split(item) {
                let devices = stripes.iter().map(|stripe| DevId(stripe.devid.get()));
                chunks.push((chunk.flags(), chunk.length.get(), devices.collect()));
            }
        });
        match asked {
            Err(Errno::PERM) => return Ok(None),
            asked => asked?,
        }
        let allocations = DeviceAllocation::of_chunks(chunks.into_iter()).into_iter();
        let allocations = allocations.map(|allocation| Allocation {
            devid: allocation.devid.0,
            group: group_type(allocation.flags),
            stripes: allocation.num_stripes,
            bytes: allocation.device_bytes(),
        });
        Ok(Some(allocations.collect()))
    }

    /// Returns the error counts of a device. All are 0 if none are recorded.
    pub(crate) fn device_errors(&self, devid: u64, reset: bool) -> Result<[u64; 5], Errno> {
        let mut stats = DevStats::new_zeroed();
        stats.devid.set(devid);
        stats.nr_items.set(stats.values.len() as u64);
        if reset {
            stats.flags.set(args::RESET);
        }
        match self.ask::<{ args::GET_DEV_STATS }, _>(&mut stats) {
            // As last written by the kernel.
            Err(Errno::NOTTY) if !reset => self.noted_errors(devid),
            asked => asked.map(|()| stats.values.map(|value| value.get())),
        }
    }

    fn noted_errors(&self, devid: u64) -> Result<[u64; 5], Errno> {
        let key = Key::new(objectid::DEV_STATS, KeyType::DEV_STATS, devid);
        let item = self.item(RootId::DEV_TREE, key)?.unwrap_or_default();
        Ok(DevStatsItem::of(&item).values.map(|value| value.get()))
    }

    /// Returns the allocated ranges of a device, in ascending order.
    pub(crate) fn device_extents(&self, devid: u64) -> Result<Vec<Range<u64>>, Errno> {
        let key = |offset| Key::new(devid, KeyType::DEV_EXTENT, offset);
        let mut extents = Vec::new();
        let (from, to) = (key(0), key(u64::MAX));
        self.search(RootId::DEV_TREE, from, to, &mut |key, item| {
            if let Ok((extent, _)) = DevExtent::ref_from_prefix(item) {
                extents.push(key.offset..key.offset.saturating_add(extent.length.get()));
            }
        })?;
        Ok(extents)
    }

    /// Returns all chunks with their usage, in logical order.
    pub(crate) fn chunks(&self) -> Result<Vec<FoundChunk>, Errno> {
        let key = |offset| Key::new(objectid::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, offset);
        let mut chunks = Vec::new();
        let (from, to) = (key(0), key(u64::MAX));
        self.search(RootId::CHUNK_TREE, from, to, &mut |key, item| {
            if let Some((chunk, stripes, _)) = Chunk::split(item) {
                let stripes = stripes.iter().map(|s| (s.devid.get(), s.offset.get()));
                chunks.push(FoundChunk {
                    logical: key.offset,
                    len_bytes: chunk.length.get(),
                    flags: chunk.flags(),
                    stripes: stripes.collect(),
                    used: 0,
                });
            }
        })?;
        let mut tree = RootId::BLOCK_GROUP_TREE;
        for chunk in &mut chunks {
            let group = Key::new(chunk.logical, KeyType::BLOCK_GROUP_ITEM, chunk.len_bytes);
            let found = match self.item(tree, group) {
                Err(Errno::NOENT) if tree == RootId::BLOCK_GROUP_TREE => {
                    tree = RootId::EXTENT_TREE;
                    self.item(tree, group)?
                }
                found => found?,
            };
            let found = found.unwrap_or_default();
            if let Ok((group, _)) = BlockGroupItem::ref_from_prefix(&found) {
                chunk.used = group.used.get();
            }
        }
        Ok(chunks)
    }

    /// Returns the available bytes according to statfs.
    pub(crate) fn available_bytes(&self) -> Result<u64, Errno> {
        let found = rustix::fs::fstatfs(&self.0)?;
        let block = u64::try_from(found.f_bsize).unwrap_or(0);
        Ok((found.f_bavail as u64).saturating_mul(block))
    }
}
