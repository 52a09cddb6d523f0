//! The ioctls on the whole volume: sizes, devices, label, features, sync and trim.

use std::os::unix::ffi::OsStrExt;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::ids::DevId;
use ubtrfs_format::superblock::{LABEL_SIZE, Superblock};
use ubtrfs_fuse_server::request::{Errno, Result};
use zerocopy::FromZeros;

use super::super::errno::errno;
use super::super::source::Source;
use super::args::{
    self, DevInfo, DevStats, Features, FsInfo, Label, Space, SpaceInfo, SpaceList, TrimRange,
};
use super::{Call, put, refused};
use crate::caller::{EndingCaller, administer_mount};

impl<S: Source> Call<'_, S> {
    /// Returns information about the volume. All later fields are filled in, because the caller's selection of fields
    /// does not reach this mount.
    pub(super) fn fs_info(&self) -> FsInfo {
        let superblock = self.volume.superblock();
        let devices = self.volume.pool().devices();
        let ids = devices.iter().map(|device| device.devid.0);
        let csum = CsumType::from_raw(superblock.csum_type.get());
        let mut info = FsInfo::new_zeroed();
        info.max_id.set(ids.max().unwrap_or(0));
        info.num_devices.set(superblock.num_devices.get());
        info.fsid = superblock.fsid.0;
        info.nodesize.set(superblock.nodesize.get());
        info.sectorsize.set(superblock.sectorsize.get());
        info.clone_alignment.set(superblock.sectorsize.get());
        info.csum_type.set(superblock.csum_type.get());
        info.csum_size
            .set(csum.map_or(0, |csum| csum.size_bytes() as u16));
        info.flags
            .set(args::FS_INFO_CSUM | args::FS_INFO_GENERATION | args::FS_INFO_METADATA_UUID);
        info.generation.set(superblock.generation.get());
        info.metadata_uuid = metadata_uuid(&superblock);
        info
    }

    pub(super) fn dev_info(&self, wanted: DevInfo) -> Result<DevInfo> {
        let is_it = |uuid: &[u8; 16], devid: u64| {
            devid == wanted.devid.get() && (wanted.uuid == [0; 16] || wanted.uuid == *uuid)
        };
        let devices = self.volume.pool().devices();
        let device = devices
            .iter()
            .find(|device| is_it(&device.uuid.0, device.devid.0))
            .ok_or(Errno::NODEV)?;
        let allocations = self.volume.device_allocations();
        let used = allocations
            .iter()
            .filter(|allocation| allocation.devid == device.devid)
            .map(|allocation| allocation.device_bytes())
            .fold(0, u64::saturating_add);
        let mut info = DevInfo::new_zeroed();
        info.devid.set(device.devid.0);
        info.uuid = device.uuid.0;
        info.bytes_used.set(used);
        info.total_bytes
            .set(device.item.map_or(0, |item| item.total_bytes.get()));
        info.fsid = self.volume.superblock().fsid.0;
        if let Some(path) = &device.path {
            let path = path.as_os_str().as_bytes();
            // A path that is too long is truncated, as by the kernel.
            put(&mut info.path, &path[..path.len().min(1023)])?;
        }
        Ok(info)
    }

    /// Returns the error counts of a device up to now. A reset is durable when this returns.
    pub(super) fn dev_stats(&self, mut stats: DevStats) -> Result<DevStats> {
        let devid = DevId(stats.devid.get());
        let counts = if stats.flags.get() & args::RESET == 0 {
            self.volume.pool().error_counts(devid)
        } else {
            self.administer()?;
            self.must_be_writable()?;
            let counts = self.volume.reset_device_errors(devid).map_err(errno)?;
            self.volume.sync().map_err(errno)?;
            counts
        };
        let counts = counts.ok_or(Errno::NODEV)?;
        let asked = stats.nr_items.get().min(counts.len() as u64);
        for (value, count) in stats.values.iter_mut().zip(counts).take(asked as usize) {
            value.set(count);
        }
        stats.nr_items.set(asked);
        Ok(stats)
    }

    /// Returns the number of spaces. FUSE cannot carry the list, which has a variable length.
    pub(super) fn space_info(&self, args: SpaceInfo) -> Result<SpaceInfo> {
        if args.space_slots.get() != 0 {
            return Err(Errno::NOTTY);
        }
        Ok(SpaceInfo {
            space_slots: 0.into(),
            total_spaces: (self.spaces()?.len() as u64).into(),
        })
    }

    /// Returns the list of spaces, as far as there is room.
    pub(super) fn space_list(&self) -> Result<SpaceList> {
        let mut list = SpaceList::new_zeroed();
        let spaces = self.spaces()?;
        for (slot, space) in list.spaces.iter_mut().zip(&spaces) {
            *slot = *space;
        }
        let room = list.spaces.len();
        list.space_slots.set(room as u64);
        list.total_spaces.set(spaces.len().min(room) as u64);
        Ok(list)
    }

    fn spaces(&self) -> Result<Vec<Space>> {
        let infos = self.volume.profile_usages().map_err(errno)?;
        let spaces = infos.iter().map(|info| Space {
            flags: info.flags.bits().into(),
            total_bytes: info.total.into(),
            used_bytes: info.used.into(),
        });
        let reserve = self.volume.global_reserve_bytes().map_err(errno)?;
        let reserve = Space {
            flags: (args::GLOBAL_RESERVE | BlockGroupFlags::METADATA.bits()).into(),
            total_bytes: reserve.into(),
            used_bytes: 0.into(),
        };
        Ok(spaces.chain([reserve]).collect())
    }

    pub(super) fn sync(&self) -> Result<usize> {
        if !self.volume.is_writable() {
            return Ok(0);
        }
        if self.adapter.device.is_read_only() {
            // The volume was made read-only, so this is its last commit.
            self.volume.quiesce().map_err(errno)?;
            return Ok(0);
        }
        self.adapter.write_back(None)?;
        self.adapter.syncfs()?;
        Ok(0)
    }

    /// Commits, and returns the committed transaction. Nothing is left to wait for.
    pub(super) fn start_sync(&self) -> Result<u64> {
        self.sync()?;
        Ok(self.volume.superblock().generation.get())
    }

    pub(super) fn wait_sync(&self, transid: u64) -> Result<usize> {
        let committed = self.volume.superblock().generation.get();
        if transid == 0 {
            return self.sync();
        }
        // The running transaction is the next one.
        match transid.checked_sub(committed) {
            None | Some(0) => Ok(0),
            Some(1) => self.sync(),
            Some(_) => Err(Errno::INVAL),
        }
    }

    pub(super) fn label(&self) -> Label {
        let mut label = [0; LABEL_SIZE];
        let superblock = self.volume.superblock();
        let shown = superblock.label();
        label[..shown.len()].copy_from_slice(shown);
        label
    }

    pub(super) fn set_label(&self, label: &Label) -> Result<usize> {
        self.administer()?;
        let end = label.iter().position(|&byte| byte == 0);
        let label = &label[..end.ok_or(Errno::INVAL)?];
        self.writing()?;
        self.volume.set_label(label).map_err(errno)?;
        self.volume.sync().map_err(errno)?;
        Ok(0)
    }

    pub(super) fn features(&self) -> Features {
        let superblock = self.volume.superblock();
        Features {
            compat: superblock.compat_flags.get().into(),
            compat_ro: superblock.compat_ro_flags.get().into(),
            incompat: superblock.incompat_flags.get().into(),
        }
    }

    /// Discards free space. A caller that may administer the mount may do this even after a remount to read-only.
    ///
    /// Takes long. Ends early if a signal ends the caller.
    pub(super) fn trim(&self, mut range: TrimRange) -> Result<TrimRange> {
        administer_mount(self.rights()).map_err(refused)?;
        let (start, len) = (range.start.get(), range.len.get());
        if start == u64::MAX && self.volume.can_discard() {
            return Err(Errno::INVAL);
        }
        let mut caller = EndingCaller::new(self.context.pid);
        let trimmed = self
            .volume
            .trim(start, len, range.minlen.get(), &mut || !caller.is_ending());
        range.len.set(trimmed.map_err(errno)?);
        Ok(range)
    }
}

fn metadata_uuid(superblock: &Superblock) -> [u8; 16] {
    if superblock.incompat().contains(Incompat::METADATA_UUID) {
        superblock.metadata_uuid.0
    } else {
        superblock.fsid.0
    }
}

/// Returns the features of volumes that can be mounted. A mount can neither set nor clear any of them.
pub(super) fn supported_features() -> [Features; 3] {
    let none = Features::new_zeroed();
    let supported = Features {
        compat: 0.into(),
        compat_ro: CompatRo::SUPPORTED.bits().into(),
        incompat: Incompat::SUPPORTED.bits().into(),
    };
    [supported, none, none]
}
