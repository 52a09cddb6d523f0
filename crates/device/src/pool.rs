//! The devices of one volume, its newest superblock, and its chunk map.
//!
//! A pool starts with what the superblock tells: one device item a device, and the system chunks. The
//! reader of the chunk tree feeds it the rest (`add_dev_item`, `add_chunk`) and then asks `check_devices`.
//!
//! Invariants
//! - POOL-1: a stripe is read from the device that has its devid *and* its uuid, from no other.
//! - POOL-2: a device that is expected and not there is in the table, as missing.
//! - POOL-3: a device that the chunk tree does not name is no member: it is dropped before anything is written.
//!
//! Not here: choosing among devices that claim the same place (`assemble`), judging them (`judge`), reads (`read`,
//! `checked`).

mod assemble;
mod checked;
mod device_errors;
mod discard;
mod judge;
mod read;
mod reading;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_format::item::{Chunk, DevItem, Stripe};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_format::uuid::Uuid;

use crate::access::Access;
use crate::block_device::BlockDevice;
use crate::chunk_map::{ChunkMap, ChunkStripe, MappedChunk};
use crate::error::{DeviceError, Holder};
use crate::read_errors::{ReadErrorRecord, ReadErrors};
use crate::superblock::CopyChoice;

pub use checked::CheckedRead;
use device_errors::DeviceErrors;
pub use device_errors::ErrorCounts;
use discard::DiscardCounters;
pub use discard::DiscardCounts;
use reading::ReadCounters;
pub use write::Reached;

#[cfg(test)]
mod tests;

/// How a pool is opened.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    degraded: bool,
    ignores_truncation: bool,
    access: Access,
    scan: Vec<PathBuf>,
    ignore_super_flags: bool,
    copies: CopyChoice,
}

impl PoolOptions {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether missing or truncated devices are accepted.
    pub fn degraded(mut self, yes: bool) -> Self {
        self.degraded = yes;
        self
    }

    /// Lets a reader open a volume with a device that is shorter than its item says.
    #[must_use]
    pub fn ignore_truncation(mut self, yes: bool) -> Self {
        self.ignores_truncation = yes;
        self
    }

    /// Sets whether superblocks with unknown flags are read all the same.
    pub fn ignore_super_flags(mut self, yes: bool) -> Self {
        self.ignore_super_flags = yes;
        self
    }

    /// Sets which copy of the superblock a reader takes. A writer takes copy 0.
    pub fn superblock_copies(mut self, copies: CopyChoice) -> Self {
        self.copies = copies;
        self
    }

    /// Sets the access: reading (shared with other readers) or writing (alone).
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets where devices are searched that the given paths lack: files, folders, or `/dev`.
    pub fn scan(mut self, places: Vec<PathBuf>) -> Self {
        self.scan = places;
        self
    }
}

/// One device of the volume.
#[derive(Debug)]
pub(crate) struct PoolDevice {
    pub(crate) devid: DevId,
    pub(crate) uuid: Uuid,
    /// From the chunk tree once that is known, before from the device's own superblock.
    item: Option<DevItem>,
    /// By the chunk tree, not by its own superblock alone.
    is_named: bool,
    present: Option<PresentDevice>,
    errors: Arc<DeviceErrors>,
}

/// A device that is there.
#[derive(Clone, Debug)]
struct PresentDevice {
    path: PathBuf,
    block: Arc<dyn BlockDevice>,
    superblock: Arc<Superblock>,
    /// Set once it has answered that it takes no discards.
    refuses_discards: Arc<AtomicBool>,
}

/// The description of a device, for listings.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    pub devid: DevId,
    pub uuid: Uuid,
    /// None if it is missing.
    pub path: Option<PathBuf>,
    /// None if it is missing.
    pub len_bytes: Option<u64>,
    /// The generation of its superblock, below the volume's if the device is stale. None if it is missing.
    pub generation: Option<u64>,
    /// None if only chunks name it.
    pub item: Option<DevItem>,
    /// Another user of it.
    pub holder: Option<Holder>,
}

impl DeviceInfo {
    pub fn is_missing(&self) -> bool {
        self.path.is_none()
    }
}

type DeviceTable = BTreeMap<DevId, Arc<PoolDevice>>;

/// The devices of one volume.
#[derive(Debug)]
pub struct Pool {
    superblock: Arc<Superblock>,
    /// The highest that copy 0 of a device may have: read when it was opened, or written since.
    generation: AtomicU64,
    written_bytes: AtomicU64,
    degraded: bool,
    ignores_truncation: bool,
    access: Access,
    devices: ArcSwap<DeviceTable>,
    /// Devices of seed volumes that the chunk tree may ask for.
    seeds: Mutex<Vec<PresentDevice>>,
    chunk_map: ChunkMap,
    read_errors: ReadErrors,
    /// How many flushes of single devices failed and were tolerated.
    failed_flushes: AtomicU64,
    discards: DiscardCounters,
    reads: ReadCounters,
}

impl Pool {
    /// Opens the devices at `paths`, and those of the same volume that a scan finds.
    pub fn open(paths: &[PathBuf], options: &PoolOptions) -> Result<Pool, DeviceError> {
        let found = assemble::open_paths(paths, options)?;
        Self::assemble(found, options)
    }

    /// Assembles a pool of devices that are open already; the paths are names for messages.
    pub fn from_devices(
        devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
        options: &PoolOptions,
    ) -> Result<Pool, DeviceError> {
        let candidates = assemble::read_superblocks(devices, options)?;
        Self::assemble(candidates, options)
    }

    fn assemble(
        candidates: Vec<assemble::Candidate>,
        options: &PoolOptions,
    ) -> Result<Pool, DeviceError> {
        let assembled = assemble::choose(candidates, options.access)?;
        let superblock = assembled.superblock;
        superblock
            .check_supported()
            .map_err(|source| DeviceError::Unsupported {
                path: assembled.newest_path,
                source,
            })?;
        let mut table = DeviceTable::new();
        for present in assembled.members {
            let item = present.superblock.dev_item;
            let devid = DevId(item.devid.get());
            let errors = DeviceErrors::default();
            errors.set_stale(present.superblock.generation < superblock.generation);
            table.insert(
                devid,
                Arc::new(PoolDevice {
                    devid,
                    uuid: item.uuid,
                    item: Some(item),
                    is_named: false,
                    present: Some(present),
                    errors: Arc::new(errors),
                }),
            );
        }
        let pool = Pool {
            generation: superblock.generation.get().into(),
            written_bytes: AtomicU64::new(0),
            superblock,
            degraded: options.degraded,
            ignores_truncation: options.ignores_truncation,
            access: options.access,
            devices: ArcSwap::from_pointee(table),
            seeds: Mutex::new(assembled.seeds),
            chunk_map: ChunkMap::new(),
            read_errors: ReadErrors::default(),
            failed_flushes: AtomicU64::new(0),
            discards: DiscardCounters::default(),
            reads: ReadCounters::default(),
        };
        pool.add_system_chunks()?;
        Ok(pool)
    }

    fn add_system_chunks(&self) -> Result<(), DeviceError> {
        for chunk in self.superblock.system_chunks().flatten() {
            self.add_chunk(chunk.logical, chunk.chunk, chunk.stripes)?;
        }
        Ok(())
    }

    /// Forgets the chunk tree that was read, as another is to be read in its place. No thread uses the pool meanwhile.
    pub fn forget_chunk_tree(&self) -> Result<(), DeviceError> {
        let table = self.devices.load();
        // The others are known from chunk trees alone.
        let present = table.iter().filter(|(_, device)| device.present.is_some());
        let table: DeviceTable = present
            .map(|(devid, device)| (*devid, Arc::new(device.unnamed())))
            .collect();
        self.devices.store(Arc::new(table));
        self.chunk_map.clear();
        self.add_system_chunks()
    }

    /// Returns the newest valid superblock of all devices; its features are supported for reading.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns whether missing devices were accepted.
    pub fn is_degraded_allowed(&self) -> bool {
        self.degraded
    }

    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns all devices by devid, those missing included.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        self.devices.load().values().map(|d| d.info()).collect()
    }

    /// Returns the fsids that tree blocks carry besides the volume's own. They are those of the seed volumes that it
    /// has grown from, as device items and the given seeds name them.
    pub fn seed_fsids(&self) -> Vec<Uuid> {
        let own = *self.superblock.metadata_fsid();
        let mut fsids: Vec<Uuid> = Vec::new();
        let items = self.devices.load();
        let of_items = items.values().filter_map(|d| d.item).map(|item| item.fsid);
        let seeds = self.seeds.lock();
        let of_seeds = seeds.iter().map(|seed| *seed.superblock.metadata_fsid());
        for fsid in of_items.chain(of_seeds) {
            if fsid != own && !fsids.contains(&fsid) {
                fsids.push(fsid);
            }
        }
        fsids
    }

    /// Returns the device of this id, unless it is missing.
    pub fn device(&self, devid: DevId) -> Option<Arc<dyn BlockDevice>> {
        let table = self.devices.load();
        let present = table.get(&devid)?.present.as_ref()?;
        Some(Arc::clone(&present.block))
    }

    pub fn chunk_map(&self) -> &ChunkMap {
        &self.chunk_map
    }

    /// Tells the pool of a chunk, from the chunk tree. One that it knows already is no error.
    pub fn add_chunk(
        &self,
        logical: Logical,
        chunk: &Chunk,
        stripes: &[Stripe],
    ) -> Result<(), DeviceError> {
        let mixed = self.superblock.incompat().contains(Incompat::MIXED_GROUPS);
        let sectorsize = self.superblock.sectorsize.get();
        let mapped = MappedChunk::check(logical, chunk, stripes, sectorsize, mixed)
            .map_err(|problem| DeviceError::Chunk { logical, problem })?;
        self.chunk_map.insert(mapped)
    }

    /// Tells the pool that the chunk at `logical` is gone.
    pub fn remove_chunk(&self, logical: Logical) {
        self.chunk_map.remove(logical);
    }

    /// Tells the pool of a device that the chunk tree names, present or not.
    pub fn add_dev_item(&self, item: &DevItem) -> Result<(), DeviceError> {
        let devid = DevId(item.devid.get());
        let mut seeds = self.seeds.lock();
        let table = self.devices.load_full();
        let mut present = None;
        let mut errors = Arc::default();
        if let Some(known) = table.get(&devid) {
            if known.uuid == item.uuid {
                present = known.present.clone();
                errors = Arc::clone(&known.errors);
            } else if let Some(other) = &known.present {
                tracing::warn!(
                    path = %other.path.display(), %devid, found = %known.uuid, wanted = %item.uuid,
                    "device is not the one of this number that the volume has"
                );
            }
        }
        if present.is_none() {
            let seed = seeds
                .iter()
                .position(|s| s.superblock.dev_item.uuid == item.uuid);
            present = seed.map(|index| seeds.remove(index));
        }
        let mut table = DeviceTable::clone(&table);
        // POOL-2
        table.insert(
            devid,
            Arc::new(PoolDevice {
                devid,
                uuid: item.uuid,
                item: Some(*item),
                is_named: true,
                present,
                errors,
            }),
        );
        self.devices.store(Arc::new(table));
        Ok(())
    }

    /// Returns the failed tries to read, the newest last; old ones are dropped when there are many.
    pub fn read_errors(&self) -> Vec<ReadErrorRecord> {
        self.read_errors.records()
    }

    /// Returns how many tries to read failed.
    pub fn read_error_count(&self) -> u64 {
        self.read_errors.total()
    }

    /// Returns how many ranges were asked for that no mirror could give.
    pub fn unrecovered_count(&self) -> u64 {
        self.read_errors.unrecovered()
    }

    /// Returns the device of a stripe, if it is there.
    fn present(&self, stripe: &ChunkStripe) -> Option<Arc<PoolDevice>> {
        let table = self.devices.load();
        let device = table.get(&stripe.devid)?;
        // POOL-1
        (device.uuid == stripe.dev_uuid && device.present.is_some()).then(|| Arc::clone(device))
    }
}

impl ChunkStripe {
    fn missing(&self) -> DeviceError {
        DeviceError::Missing {
            devid: self.devid,
            uuid: self.dev_uuid,
        }
    }
}

impl PoolDevice {
    fn unnamed(&self) -> PoolDevice {
        PoolDevice {
            devid: self.devid,
            uuid: self.uuid,
            item: self.item,
            is_named: false,
            present: self.present.clone(),
            errors: Arc::clone(&self.errors),
        }
    }

    fn block(&self) -> Option<&Arc<dyn BlockDevice>> {
        Some(&self.present.as_ref()?.block)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.present.as_ref()?.path)
    }

    fn info(&self) -> DeviceInfo {
        let present = self.present.as_ref();
        DeviceInfo {
            devid: self.devid,
            uuid: self.uuid,
            path: self.path().map(Path::to_owned),
            len_bytes: present.map(|p| p.block.len_bytes()),
            generation: present.map(|p| p.superblock.generation.get()),
            item: self.item,
            holder: present.and_then(|p| p.block.holder().cloned()),
        }
    }
}
