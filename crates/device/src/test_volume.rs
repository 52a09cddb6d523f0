//! Small volumes in memory for the tests. They have superblocks, one system chunk, and one data chunk of any profile.
//! Its bytes encode their address, and its parity is computed by definition.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::{Chunk, DevItem, Stripe};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::superblock::{MAGIC, Superblock};
use ubtrfs_format::uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use crate::block_device::BlockDevice;
use crate::chunk_map::{MappedChunk, STRIPE_LEN};
use crate::error::DeviceError;
use crate::memory::MemDevice;
use crate::parity::tests::slow_mul;
use crate::pool::{Pool, PoolOptions};
use crate::superblock::write_superblocks;

pub(crate) const FSID: Uuid = Uuid([0xf5; 16]);
pub(crate) const DATA_START: Logical = Logical(1 << 30);
pub(crate) const DATA_BYTES: u64 = 24 * STRIPE_LEN;
pub(crate) const DEVICE_BYTES: u64 = 66 << 20;
const SYSTEM_START: u64 = 1 << 20;

pub(crate) fn device_uuid(devid: u64) -> Uuid {
    Uuid([devid as u8; 16])
}

pub(crate) fn dev_item(devid: u64) -> DevItem {
    let mut item = DevItem::new_zeroed();
    item.devid = devid.into();
    item.total_bytes = DEVICE_BYTES.into();
    item.sector_size = 4096.into();
    item.uuid = device_uuid(devid);
    item.fsid = FSID;
    item
}

pub(crate) fn disk_chunk(len: u64, flags: BlockGroupFlags, stripes: u16) -> Chunk {
    let mut chunk = Chunk::new_zeroed();
    chunk.length = len.into();
    chunk.owner = 2.into();
    chunk.stripe_len = STRIPE_LEN.into();
    chunk.type_ = flags.bits().into();
    chunk.sector_size = 4096.into();
    chunk.num_stripes = stripes.into();
    let raid10 = flags.contains(BlockGroupFlags::RAID10);
    chunk.sub_stripes = if raid10 { 2 } else { 1 }.into();
    chunk
}

/// Creates one stripe on each of the devices 1 to `count`, at different offsets.
pub(crate) fn disk_stripes(count: u16) -> Vec<Stripe> {
    (1..=u64::from(count))
        .map(|devid| stripe(devid, (16 + devid) << 20))
        .collect()
}

fn stripe(devid: u64, offset: u64) -> Stripe {
    Stripe {
        devid: devid.into(),
        offset: offset.into(),
        dev_uuid: device_uuid(devid),
    }
}

/// Creates the superblock of device `devid`; the only system chunk is on device 1.
pub(crate) fn superblock(devid: u64, num_devices: u64) -> Superblock {
    let mut sb = Superblock::new_zeroed();
    sb.fsid = FSID;
    sb.magic = MAGIC;
    sb.generation = 10.into();
    sb.root = SYSTEM_START.into();
    sb.chunk_root = SYSTEM_START.into();
    sb.chunk_root_generation = 10.into();
    sb.total_bytes = (num_devices * DEVICE_BYTES).into();
    sb.bytes_used = (1 << 20).into();
    sb.num_devices = num_devices.into();
    sb.sectorsize = 4096.into();
    sb.stripesize = 4096.into();
    sb.unused_leafsize = 16384.into();
    sb.nodesize = 16384.into();
    sb.incompat_flags = Incompat::MIXED_BACKREF.bits().into();
    sb.dev_item = dev_item(devid);
    let key = Key::new(256, KeyType::CHUNK_ITEM, SYSTEM_START);
    let mut array = DiskKey::from(key).as_bytes().to_vec();
    array.extend(disk_chunk(1 << 20, BlockGroupFlags::SYSTEM, 1).as_bytes());
    array.extend(stripe(1, 1 << 20).as_bytes());
    sb.sys_chunk_array[..array.len()].copy_from_slice(&array);
    sb.sys_chunk_array_size = (array.len() as u32).into();
    sb.seal();
    sb
}

/// Returns the expected bytes at an address: each group of eight is a hash of its position.
pub(crate) fn expected(logical: Logical, len: usize) -> Vec<u8> {
    let first = logical.0 / 8;
    let skip = (logical.0 % 8) as usize;
    let mut bytes = Vec::with_capacity(len + 16);
    for word in first..first + (skip + len).div_ceil(8) as u64 {
        let mixed = (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bytes.extend_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
    }
    bytes.truncate(skip + len);
    bytes.drain(..skip);
    bytes
}

/// Returns a function that accepts blocks with the expected bytes.
pub(crate) fn checker(logical: Logical, block_bytes: usize) -> impl FnMut(usize, &[u8]) -> bool {
    move |index, bytes| {
        let start = Logical(logical.0 + (index * block_bytes) as u64);
        bytes == expected(start, bytes.len())
    }
}

pub(crate) struct TestVolume {
    pub(crate) devices: Vec<Arc<MemDevice>>,
    pub(crate) chunk: Chunk,
    pub(crate) stripes: Vec<Stripe>,
}

impl TestVolume {
    pub(crate) fn new(profile: Profile, stripes: u16) -> TestVolume {
        let flags = BlockGroupFlags::DATA | BlockGroupFlags::of(profile);
        let volume = TestVolume {
            devices: (1..=u64::from(stripes))
                .map(|devid| {
                    let device = MemDevice::new(DEVICE_BYTES);
                    let sb = superblock(devid, stripes.into());
                    write_superblocks(&device, &PathBuf::from("mem"), &sb).unwrap();
                    Arc::new(device)
                })
                .collect(),
            chunk: disk_chunk(DATA_BYTES, flags, stripes),
            stripes: disk_stripes(stripes),
        };
        volume.fill();
        volume
    }

    /// Copies the volume; later writes to either copy do not affect the other.
    pub(crate) fn fork(&self) -> TestVolume {
        TestVolume {
            devices: self
                .devices
                .iter()
                .map(|device| Arc::new(MemDevice::clone(device)))
                .collect(),
            chunk: self.chunk,
            stripes: self.stripes.clone(),
        }
    }

    pub(crate) fn mapped(&self) -> MappedChunk {
        MappedChunk::check(DATA_START, &self.chunk, &self.stripes, 4096, false).unwrap()
    }

    fn write(&self, devid: u64, bytes: &[u8], offset: u64) {
        self.devices[devid as usize - 1]
            .write_at(bytes, offset)
            .unwrap();
    }

    fn fill(&self) {
        let chunk = self.mapped();
        let direct = if chunk.has_parity() {
            1
        } else {
            chunk.mirrors()
        };
        for mirror in 1..=direct {
            for piece in chunk.pieces(0, DATA_BYTES, mirror) {
                let bytes = expected(piece.logical, piece.len as usize);
                self.write(piece.devid.0, &bytes, piece.physical.0);
            }
        }
        if chunk.has_parity() {
            self.fill_parity(&chunk);
        }
    }

    fn fill_parity(&self, chunk: &MappedChunk) {
        let row_bytes = chunk.data_stripes() as u64 * STRIPE_LEN;
        for start in (0..DATA_BYTES).step_by(row_bytes as usize) {
            let row = chunk.row(start);
            let mut p = vec![0; STRIPE_LEN as usize];
            let mut q = vec![0; STRIPE_LEN as usize];
            let mut factor = 1;
            for member in 0..row.data as u64 {
                let offset = start + member * STRIPE_LEN;
                if offset < DATA_BYTES {
                    let logical = Logical(DATA_START.0 + offset);
                    let data = expected(logical, STRIPE_LEN as usize);
                    let times: Vec<u8> = (0..=255).map(|b| slow_mul(factor, b)).collect();
                    for ((p, q), byte) in p.iter_mut().zip(&mut q).zip(data) {
                        *p ^= byte;
                        *q ^= times[usize::from(byte)];
                    }
                }
                factor = slow_mul(factor, 2);
            }
            let (devid, physical) = chunk.row_place(row, row.data, 0);
            self.write(devid.0, &p, physical.0);
            if row.members > row.data + 1 {
                let (devid, physical) = chunk.row_place(row, row.data + 1, 0);
                self.write(devid.0, &q, physical.0);
            }
        }
    }

    /// Assembles a pool of the devices selected by `keep`, and adds all device items and the data chunk.
    pub(crate) fn pool(
        &self,
        keep: impl Fn(u64) -> bool,
        options: &PoolOptions,
    ) -> Result<Pool, DeviceError> {
        self.pool_with(keep, options, |_, device| device)
    }

    pub(crate) fn pool_with(
        &self,
        keep: impl Fn(u64) -> bool,
        options: &PoolOptions,
        wrap: impl Fn(u64, Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>,
    ) -> Result<Pool, DeviceError> {
        let devices = (1u64..)
            .zip(&self.devices)
            .filter(|&(devid, _)| keep(devid))
            .map(|(devid, device)| {
                let device: Arc<dyn BlockDevice> = Arc::clone(device) as _;
                (PathBuf::from(format!("mem{devid}")), wrap(devid, device))
            })
            .collect();
        let pool = Pool::from_devices(devices, options)?;
        for devid in 1..=self.devices.len() as u64 {
            pool.add_dev_item(&dev_item(devid))?;
        }
        pool.add_chunk(DATA_START, &self.chunk, &self.stripes)?;
        pool.check_devices()?;
        Ok(pool)
    }
}
