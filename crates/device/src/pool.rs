//! The devices of one volume, its newest superblock, and its chunk map.
//!
//! A pool starts with the contents of the superblocks: one device item for each device, and the system chunks. The
//! reader of the chunk tree adds the rest (`add_dev_item`, `add_chunk`) and then calls `check_devices`.
//!
//! Invariants
//! - POOL-1: a stripe is read only from the device with both its devid *and* its uuid.
//! - POOL-2: an expected device that is absent is in the table as missing.
//! - POOL-3: a device without an item in the chunk tree is not a member: it is dropped before the first write.
//!
//! Not here: choosing between devices that claim the same devid (`assemble`), checking them (`device_checks`), reads
//! (`read`, `checked`).

mod assemble;
mod checked;
mod device_checks;
mod device_errors;
mod discard;
mod membership;
mod mirror_repair;
mod read;
mod reading;
mod replacement;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_format::item::{Chunk, DevItem, Stripe};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_format::uuid::Uuid;

use crate::access::Access;
use crate::block_device::BlockDevice;
use crate::chunk_map::{ChunkMap, ChunkStripe, MappedChunk};
use crate::device_name::DeviceName;
use crate::error::{DeviceError, Holder};
use crate::read_errors::{ReadErrorRecord, ReadErrors};
use crate::superblock::CopyChoice;

pub use checked::CheckedRead;
use device_errors::DeviceErrors;
pub use device_errors::ErrorCounts;
use discard::DiscardCounters;
pub use discard::DiscardCounts;
pub use membership::MemberDevice;
use mirror_repair::MirrorRepairs;
use reading::ReadCounters;
use replacement::Replacement;
pub use replacement::{CopyRange, GoodBlock};
pub use write::Reached;

#[cfg(test)]
mod tests;

/// Options for opening a pool.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    degraded: bool,
    ignores_truncation: bool,
    access: Access,
    scan: Vec<PathBuf>,
    ignore_super_flags: bool,
    copies: CopyChoice,
    skips_flushes: bool,
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

    /// Sets whether a reader may open a volume with a device that is shorter than its item claims.
    #[must_use]
    pub fn ignore_truncation(mut self, yes: bool) -> Self {
        self.ignores_truncation = yes;
        self
    }

    /// Sets whether superblocks with unknown flags are accepted.
    pub fn ignore_super_flags(mut self, yes: bool) -> Self {
        self.ignore_super_flags = yes;
        self
    }

    /// Sets which copy of the superblock a reader uses. A writer uses copy 0.
    pub fn superblock_copies(mut self, copies: CopyChoice) -> Self {
        self.copies = copies;
        self
    }

    /// Sets whether flushes are skipped. A crash of the machine can then destroy the volume.
    #[must_use]
    pub fn skip_flushes(mut self, yes: bool) -> Self {
        self.skips_flushes = yes;
        self
    }

    /// Sets the access: reading (shared) or writing (exclusive).
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the places to search for devices that are not in the given paths: files, folders, or `/dev`.
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
    /// From the chunk tree once that was read, otherwise from the device's own superblock.
    item: Option<DevItem>,
    /// Whether the chunk tree has an item for the device. Its own superblock alone does not count.
    is_named: bool,
    present: Option<PresentDevice>,
    errors: Arc<DeviceErrors>,
    replacement: Option<Arc<Replacement>>,
}

/// A device that is present.
#[derive(Clone, Debug)]
struct PresentDevice {
    path: PathBuf,
    block: Arc<dyn BlockDevice>,
    superblock: Arc<Superblock>,
    /// Set once the device has rejected a discard as unsupported.
    refuses_discards: Arc<AtomicBool>,
    /// Whether the device has a superblock of the volume. The first commit writes it to a device that joins.
    has_superblock: Arc<AtomicBool>,
}

/// The description of a device for listings.
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
    /// None if only chunks refer to it.
    pub item: Option<DevItem>,
    /// Another user of the device.
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
    /// The highest generation that copy 0 of a device may have: read at open, or written since.
    generation: AtomicU64,
    written_bytes: AtomicU64,
    options: PoolOptions,
    devices: ArcSwap<DeviceTable>,
    /// Devices of seed volumes that the chunk tree may refer to.
    seeds: Mutex<Vec<PresentDevice>>,
    chunk_map: ChunkMap,
    read_errors: ReadErrors,
    /// The number of failed device flushes that were tolerated.
    failed_flushes: AtomicU64,
    discards: DiscardCounters,
    reads: ReadCounters,
    mirror_repairs: MirrorRepairs,
    /// Shared for writes to devices, exclusive for a copy to a replacement (REPLACE-1).
    writes: RwLock<()>,
}

impl Pool {
    /// Opens the named devices, and others of the same volume that a scan finds.
    pub fn open<D: Clone + Into<DeviceName>>(
        devices: &[D],
        options: &PoolOptions,
    ) -> Result<Pool, DeviceError> {
        let names: Vec<DeviceName> = devices.iter().cloned().map(Into::into).collect();
        let found = assemble::open_named(&names, options)?;
        Self::assemble(found, options)
    }

    /// Assembles a pool of open devices; the paths are only for messages.
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
                    replacement: None,
                }),
            );
        }
        let pool = Pool {
            generation: superblock.generation.get().into(),
            written_bytes: AtomicU64::new(0),
            superblock,
            options: options.clone(),
            devices: ArcSwap::from_pointee(table),
            seeds: Mutex::new(assembled.seeds),
            chunk_map: ChunkMap::new(),
            read_errors: ReadErrors::default(),
            failed_flushes: AtomicU64::new(0),
            discards: DiscardCounters::default(),
            reads: ReadCounters::default(),
            mirror_repairs: MirrorRepairs::default(),
            writes: RwLock::new(()),
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

    /// Removes the contents of the chunk tree, so that another one can be read. There must be no concurrent users of
    /// the pool.
    pub fn forget_chunk_tree(&self) -> Result<(), DeviceError> {
        let table = self.devices.load();
        // Devices that are not present are known only from chunk trees.
        let present = table.iter().filter(|(_, device)| device.present.is_some());
        let table: DeviceTable = present
            .map(|(devid, device)| (*devid, Arc::new(device.unnamed())))
            .collect();
        self.devices.store(Arc::new(table));
        self.chunk_map.clear();
        self.add_system_chunks()
    }

    /// Returns the newest valid superblock of all devices. Its features are supported for reading.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns whether missing devices were accepted.
    pub fn is_degraded_allowed(&self) -> bool {
        self.options.degraded
    }

    pub fn access(&self) -> Access {
        self.options.access
    }

    /// Returns all devices by devid, including missing ones.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        self.devices.load().values().map(|d| d.info()).collect()
    }

    /// Returns the additional fsids that tree blocks of the volume may have. They are the fsids of its seed volumes,
    /// from device items and from the given seeds.
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

    /// Returns the device with this id, unless it is missing.
    pub fn device(&self, devid: DevId) -> Option<Arc<dyn BlockDevice>> {
        let table = self.devices.load();
        let present = table.get(&devid)?.present.as_ref()?;
        Some(Arc::clone(&present.block))
    }

    /// Returns the device of a stripe, unless it is missing (POOL-1).
    pub fn stripe_device(&self, stripe: &ChunkStripe) -> Option<Arc<dyn BlockDevice>> {
        self.present(stripe)?.block().cloned()
    }

    /// Returns the devices that are present, with their paths.
    pub fn present_devices(&self) -> Vec<(PathBuf, Arc<dyn BlockDevice>)> {
        let table = self.devices.load();
        let present = table.values().filter_map(|device| device.present.as_ref());
        present
            .map(|present| (present.path.clone(), Arc::clone(&present.block)))
            .collect()
    }

    pub fn chunk_map(&self) -> &ChunkMap {
        &self.chunk_map
    }

    /// Adds a chunk of the chunk tree. Adding a known chunk is not an error.
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

    /// Removes the chunk at `logical`.
    pub fn remove_chunk(&self, logical: Logical) {
        self.chunk_map.remove(logical);
    }

    /// Adds a device of the chunk tree, present or missing.
    pub fn add_dev_item(&self, item: &DevItem) -> Result<(), DeviceError> {
        let devid = DevId(item.devid.get());
        let mut seeds = self.seeds.lock();
        let table = self.devices.load_full();
        let mut present = None;
        let mut errors = Arc::default();
        let mut replacement = None;
        if let Some(known) = table.get(&devid) {
            if known.uuid == item.uuid {
                present = known.present.clone();
                errors = Arc::clone(&known.errors);
                replacement = known.replacement.clone();
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
                replacement,
            }),
        );
        self.devices.store(Arc::new(table));
        Ok(())
    }

    /// Returns the failed read attempts, newest last. Only a limited number is kept.
    pub fn read_errors(&self) -> Vec<ReadErrorRecord> {
        self.read_errors.records()
    }

    /// Returns the number of failed read attempts.
    pub fn read_error_count(&self) -> u64 {
        self.read_errors.total()
    }

    /// Returns the number of ranges that no mirror could provide.
    pub fn unrecovered_count(&self) -> u64 {
        self.read_errors.unrecovered()
    }

    /// Returns the device of a stripe, if it is present.
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
            is_named: false,
            ..self.copied()
        }
    }

    fn copied(&self) -> PoolDevice {
        PoolDevice {
            devid: self.devid,
            uuid: self.uuid,
            item: self.item,
            is_named: self.is_named,
            present: self.present.clone(),
            errors: Arc::clone(&self.errors),
            replacement: self.replacement.clone(),
        }
    }

    /// Returns whether writes have a target: the device is present, or is being replaced.
    fn takes_writes(&self) -> bool {
        self.present.is_some() || self.replacement.is_some()
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
