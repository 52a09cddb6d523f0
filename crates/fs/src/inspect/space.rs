//! Space by type and profile, per chunk and per device.
//!
//! The numbers are as in the kernel right after a mount of the same volume. This includes the order of space
//! infos, the size of the global reserve, and the available bytes of `df`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubtrfs_device::chunk_layout::RESERVED_BYTES;
use ubtrfs_device::{MappedChunk, STRIPE_LEN};
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::ids::{DevId, Logical, RootId};
use ubtrfs_format::superblock::MAX_LEVEL;

use crate::error::Result;
use crate::volume::Volume;

/// The kernel's largest global reserve, which is reported. Ours is smaller (`storage::transaction::reservation`).
const KERNEL_MAX_GLOBAL_RESERVE: u64 = 512 << 20;
/// The worst-case changes of an unlink, in units of one path of new nodes.
///
/// Measured on Linux 6.18 on an otherwise empty volume. It reserves 22 units with a free-space tree, 23 with
/// a block group tree as well, and 15 without both.
const UNITS_WITH_FREE_SPACE_TREE: u64 = 22;
const UNITS_WITH_BLOCK_GROUP_TREE: u64 = 23;
const UNITS_WITHOUT: u64 = 15;

const REDUNDANT: BlockGroupFlags = BlockGroupFlags::DUP
    .union(BlockGroupFlags::RAID1)
    .union(BlockGroupFlags::RAID1C3)
    .union(BlockGroupFlags::RAID1C4)
    .union(BlockGroupFlags::RAID10)
    .union(BlockGroupFlags::RAID56_MASK);

/// All block groups of one type and profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileUsage {
    pub flags: BlockGroupFlags,
    pub total: u64,
    pub used: u64,
}

impl ProfileUsage {
    fn is_data(&self) -> bool {
        self.flags.contains(BlockGroupFlags::DATA)
    }

    /// Returns the bytes on devices per logical byte, not counting parity.
    pub(crate) fn copies(&self) -> u64 {
        self.flags.profile().map_or(1, |p| p.copies() as u64)
    }
}

/// Returns the divisor of `statfs` for bytes on devices: the number of copies of data. With several data
/// profiles the kernel uses the last one.
pub(crate) fn data_copies(infos: &[ProfileUsage]) -> u64 {
    let data = infos.iter().rfind(|info| info.is_data());
    data.map_or(1, ProfileUsage::copies)
}

/// A chunk and its usage.
#[derive(Clone, Debug)]
pub struct ChunkUse {
    pub chunk: Arc<MappedChunk>,
    /// None if the volume has no block group item for the chunk.
    pub used: Option<u64>,
}

/// The space that chunks with the same type, profile and number of stripes use on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAllocation {
    pub devid: DevId,
    pub flags: BlockGroupFlags,
    pub num_stripes: u64,
    /// Logical bytes of these chunks.
    pub logical_bytes: u64,
}

impl DeviceAllocation {
    /// Adds up chunks given in logical order. Each has its flags, its logical bytes, and the device of each
    /// stripe.
    pub fn of_chunks(
        chunks: impl Iterator<Item = (BlockGroupFlags, u64, Vec<DevId>)>,
    ) -> Vec<DeviceAllocation> {
        let mut allocations: Vec<DeviceAllocation> = Vec::new();
        let mut at: BTreeMap<(u64, u64, u64), usize> = BTreeMap::new();
        for (flags, len_bytes, devices) in chunks {
            let num_stripes = devices.len() as u64;
            for devid in devices {
                let key = (devid.0, flags.bits(), num_stripes);
                let index = *at.entry(key).or_insert_with(|| {
                    allocations.push(DeviceAllocation {
                        devid,
                        flags,
                        num_stripes,
                        logical_bytes: 0,
                    });
                    allocations.len() - 1
                });
                if let Some(allocation) = allocations.get_mut(index) {
                    allocation.logical_bytes = allocation.logical_bytes.saturating_add(len_bytes);
                }
            }
        }
        allocations.sort_by_key(|allocation| usage_rank(allocation.flags));
        allocations
    }

    /// Returns the bytes that the allocation uses on the device.
    pub fn device_bytes(&self) -> u64 {
        let Some(profile) = self.flags.profile() else {
            return self.logical_bytes;
        };
        let stripes = match profile {
            Profile::Raid10 => self.num_stripes / 2,
            Profile::Raid0 | Profile::Raid5 | Profile::Raid6 => {
                self.num_stripes.saturating_sub(profile.parities() as u64)
            }
            _ => 1,
        };
        self.logical_bytes / stripes.max(1)
    }
}

impl Volume {
    /// Returns the usage per type and profile: data, system, metadata, mixed. A volume with mixed groups may
    /// also have others, which the kernel counts as mixed. On a writable volume it includes allocations of
    /// the running transaction.
    pub fn profile_usages(&self) -> Result<Vec<ProfileUsage>> {
        let both = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
        let mixed = self
            .superblock()
            .incompat()
            .contains(Incompat::MIXED_GROUPS);
        let mut sums: BTreeMap<(usize, u64), ProfileUsage> = BTreeMap::new();
        let mut add = |flags: BlockGroupFlags, length: u64, used: u64| {
            let mut flags = flags & (BlockGroupFlags::TYPE_MASK | BlockGroupFlags::PROFILE_MASK);
            if mixed && flags.intersects(both) {
                flags |= both;
            }
            let key = (
                type_rank(flags),
                (flags & BlockGroupFlags::PROFILE_MASK).bits(),
            );
            let sum = sums.entry(key).or_insert(ProfileUsage {
                flags,
                total: 0,
                used: 0,
            });
            sum.total = sum.total.saturating_add(length);
            sum.used = sum.used.saturating_add(used);
        };
        match self.inodes.transactions() {
            Ok(manager) => {
                let groups = manager.space.groups();
                let groups = groups.iter();
                groups.for_each(|group| add(group.flags(), group.len_bytes(), group.allocated()));
            }
            Err(_) => {
                self.for_each_block_group(&mut |group| add(group.flags, group.length, group.used))?;
            }
        }
        Ok(sums.into_values().collect())
    }

    /// Returns the size of the kernel's global reserve.
    pub fn global_reserve_bytes(&self) -> Result<u64> {
        let compat_ro = self.superblock().compat_ro();
        let has_free_space_tree = compat_ro.contains(CompatRo::FREE_SPACE_TREE);
        let has_block_group_tree = compat_ro.contains(CompatRo::BLOCK_GROUP_TREE);
        let mut trees = vec![RootId::EXTENT_TREE, RootId::CSUM_TREE];
        if has_free_space_tree {
            trees.push(RootId::FREE_SPACE_TREE);
        }
        if has_block_group_tree {
            trees.push(RootId::BLOCK_GROUP_TREE);
        }
        let mut used: u64 = 0;
        for id in trees {
            if let Some(tree) = self.find_tree(id)? {
                used = used.saturating_add(tree.item().bytes_used.get());
            }
        }
        let units = match (has_free_space_tree, has_block_group_tree) {
            (true, true) => UNITS_WITH_BLOCK_GROUP_TREE,
            (true, false) => UNITS_WITH_FREE_SPACE_TREE,
            (false, _) => UNITS_WITHOUT,
        };
        let path = u64::from(self.superblock().nodesize.get()) * u64::from(MAX_LEVEL + 1);
        Ok(used.max(units * 2 * path).min(KERNEL_MAX_GLOBAL_RESERVE))
    }

    /// Returns all chunks in logical order.
    pub fn chunk_uses(&self) -> Result<Vec<ChunkUse>> {
        let mut used: BTreeMap<Logical, u64> = BTreeMap::new();
        self.for_each_block_group(&mut |group| {
            used.insert(group.start, group.used);
        })?;
        let chunks = self.pool().chunk_map().all();
        let uses = chunks.iter().map(|chunk| ChunkUse {
            chunk: Arc::clone(chunk),
            used: used.get(&chunk.logical()).copied(),
        });
        Ok(uses.collect())
    }

    /// Returns the allocations on each device, ordered by type (data, metadata, system) and profile. Equal
    /// ones are ordered by their first chunk.
    pub fn device_allocations(&self) -> Vec<DeviceAllocation> {
        let chunks = self.pool().chunk_map().all();
        DeviceAllocation::of_chunks(chunks.iter().map(|chunk| {
            let devices = chunk.stripes().iter().map(|stripe| stripe.devid);
            (chunk.flags(), chunk.len_bytes(), devices.collect())
        }))
    }

    /// Returns the available bytes for `statfs`: free space in data block groups, and unallocated space that
    /// further data chunks could use.
    pub(crate) fn available_bytes(&self, infos: &[ProfileUsage]) -> u64 {
        let mut profiles = BlockGroupFlags::empty();
        for info in infos.iter().filter(|info| info.is_data()) {
            profiles |= info.flags & BlockGroupFlags::PROFILE_MASK;
        }
        let mut free: u64 = 0;
        for info in infos.iter().filter(|info| info.is_data()) {
            // The kernel does not allocate from groups without redundancy if there are others with
            // redundancy.
            if profiles.intersects(REDUNDANT) && !info.flags.intersects(REDUNDANT) {
                continue;
            }
            let unused = info.total.saturating_sub(info.used);
            free = free.saturating_add(unused.saturating_mul(info.copies()));
        }
        let factor = data_copies(infos);
        let unallocated = self.unallocated_for(data_profile(profiles, self.pool().devices().len()));
        (free / factor).saturating_add(unallocated / factor)
    }

    /// Returns the raw bytes that chunks of `profile` could still use on the devices.
    fn unallocated_for(&self, profile: Profile) -> u64 {
        let dev_stripes = if profile == Profile::Dup { 2 } else { 1 };
        let smallest = dev_stripes * STRIPE_LEN;
        let mut room: Vec<u64> = Vec::new();
        let allocations = self.device_allocations();
        for device in self.pool().devices() {
            let Some(item) = device.item.filter(|_| device.path.is_some()) else {
                continue;
            };
            let devid = item.devid.get();
            let own = allocations.iter().filter(|own| own.devid.0 == devid);
            // The device item is from the last commit.
            let used = if self.is_writable() {
                own.map(DeviceAllocation::device_bytes).sum()
            } else {
                item.bytes_used.get()
            };
            let unused = item.total_bytes.get().saturating_sub(used);
            let unused = unused / STRIPE_LEN * STRIPE_LEN;
            if unused > RESERVED_BYTES + smallest {
                room.push(unused - RESERVED_BYTES);
            }
        }
        room.sort_unstable_by(|a, b| b.cmp(a));
        let wanted = match profile {
            Profile::Raid0 => room.len(),
            Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => profile.copies(),
            Profile::Raid10 => 4,
            _ => 1,
        };
        let mut total: u64 = 0;
        while room.len() >= profile.min_devices().max(1) {
            let stripes = wanted.min(room.len());
            let Some(least) = room.pop() else { break };
            if least >= smallest {
                total = total.saturating_add(least.saturating_mul(stripes as u64));
                let others = room.len().saturating_sub(stripes - 1);
                for other in &mut room[others..] {
                    *other = other.saturating_sub(least);
                }
            }
        }
        total
    }
}

/// Returns the rank of a type in the kernel's lists: data, system, metadata, mixed.
fn type_rank(flags: BlockGroupFlags) -> usize {
    let kind = flags & BlockGroupFlags::TYPE_MASK;
    if kind == BlockGroupFlags::DATA {
        0
    } else if kind == BlockGroupFlags::SYSTEM {
        1
    } else if kind == BlockGroupFlags::METADATA {
        2
    } else {
        3
    }
}

/// Returns the sort key of block groups in usage reports: system last.
pub(crate) fn usage_rank(flags: BlockGroupFlags) -> (bool, u64, u64) {
    let kind = flags & BlockGroupFlags::TYPE_MASK;
    let profile = flags & BlockGroupFlags::PROFILE_MASK;
    let is_system = kind.contains(BlockGroupFlags::SYSTEM);
    (is_system, kind.bits(), profile.bits())
}

/// Returns the profile of the next data chunk: the most redundant one in use that the number of devices
/// allows.
fn data_profile(profiles: BlockGroupFlags, devices: usize) -> Profile {
    const PREFERENCE: [Profile; 8] = [
        Profile::Raid1c4,
        Profile::Raid6,
        Profile::Raid1c3,
        Profile::Raid5,
        Profile::Raid10,
        Profile::Raid1,
        Profile::Dup,
        Profile::Raid0,
    ];
    PREFERENCE
        .into_iter()
        .find(|&p| profiles.contains(BlockGroupFlags::of(p)) && devices >= p.min_devices())
        .unwrap_or(Profile::Single)
}
