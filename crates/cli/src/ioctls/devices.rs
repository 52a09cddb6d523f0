//! The devices of a volume, and what of them is allocated.

use rustix::io::Errno;
use ubtrfs_engine::inspect::DeviceAllocation;
use ubtrfs_format::ids::{DevId, RootId, objectid};
use ubtrfs_format::item::Chunk;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fuse::ioctl_args::{self as args, DevInfo, FsInfo};
use zerocopy::FromZeros;

use super::Asked;

impl Asked {
    pub(crate) fn volume_info(&self) -> Result<FsInfo, Errno> {
        let mut info = FsInfo::new_zeroed();
        self.ask::<{ args::FS_INFO }, _>(&mut info)?;
        Ok(info)
    }

    /// By devid, those that are missing included.
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

    /// None for who may not search trees.
    pub(crate) fn device_allocations(&self) -> Result<Option<Vec<DeviceAllocation>>, Errno> {
        let key = |offset| Key::new(objectid::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, offset);
        let mut chunks = Vec::new();
        let asked = self.search(RootId::CHUNK_TREE, key(0), key(u64::MAX), &mut |_, item| {
            if let Some((chunk, stripes, _)) = Chunk::split(item) {
                let devices = stripes.iter().map(|stripe| DevId(stripe.devid.get()));
                chunks.push((chunk.flags(), chunk.length.get(), devices.collect()));
            }
        });
        match asked {
            Err(Errno::PERM) => Ok(None),
            asked => asked.map(|()| Some(DeviceAllocation::of_chunks(chunks.into_iter()))),
        }
    }

    /// As statfs has it, in bytes.
    pub(crate) fn available_bytes(&self) -> Result<u64, Errno> {
        let found = rustix::fs::fstatfs(&self.0)?;
        let block = u64::try_from(found.f_bsize).unwrap_or(0);
        Ok((found.f_bavail as u64).saturating_mul(block))
    }
}
