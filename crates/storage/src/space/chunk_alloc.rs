//! Allocation of chunks while the volume is in use, and removal of empty ones.
//!
//! Invariants
//! - NEWCHUNK-1: a logical address is never reused while the volume is open. The items of a removed chunk and of a new
//!   one therefore never have the same key.
//! - NEWCHUNK-2: the device space of a removed chunk is free once the commit that deletes its items is durable
//!   (`free_device_space`).
//! - NEWCHUNK-3: a chunk is added to the pool before its group becomes visible.
//!
//! Not here: sizes and places, the contents of the items (`device::chunk_layout`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ubtrfs_device::chunk_layout::{
    ChunkItems, ChunkLayout, ChunkLimits, RESERVED_BYTES, chunk_head, superblock_ranges,
};
use ubtrfs_device::{MappedChunk, Pool, STRIPE_LEN};
use ubtrfs_format::block_group_flags::{BlockGroupFlags, BlockGroupType, Profile};
use ubtrfs_format::ids::{DevId, Logical, Physical, Transid};
use ubtrfs_format::item::{Chunk, Stripe};
use ubtrfs_format::key::{DiskKey, Key};
use ubtrfs_format::superblock::{SYS_CHUNK_ARRAY_SIZE, Superblock};

use super::block_group::{BlockGroup, NewGroup};
use super::device_set::{ChunkChange, DeviceSet};
use super::{Space, SpaceError};

/// System chunks must have room for another copy of the chunk tree plus this number of blocks.
const SYSTEM_SPARE_BLOCKS: u64 = 16;

/// The devices, and the new chunks made from their space.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) devices: DeviceSet,
    /// NEWCHUNK-1
    next_logical: u64,
    /// The groups whose items no commit has inserted yet.
    new: Vec<(Arc<BlockGroup>, ChunkItems)>,
}

impl Chunks {
    pub(super) fn new(devices: DeviceSet, pool: &Pool) -> Chunks {
        let last = pool.chunk_map().all().last().map(|chunk| chunk.end().0);
        Chunks {
            devices,
            next_logical: last.unwrap_or(RESERVED_BYTES).max(RESERVED_BYTES),
            new: Vec::new(),
        }
    }
}

/// An empty chunk that was removed.
#[derive(Debug)]
pub struct RemovedGroup {
    /// The keys of the items to delete, and the decrease of each device's `bytes_used`.
    pub(crate) items: ChunkItems,
    extents: Vec<(DevId, Physical)>,
    stripe_bytes: u64,
    may_be_untrimmed: bool,
}

impl RemovedGroup {
    /// Returns the device ranges of the group: device, offset and length.
    pub(crate) fn device_ranges(&self) -> impl Iterator<Item = (DevId, u64, u64)> {
        let extents = self.extents.iter();
        extents.map(|&(devid, physical)| (devid, physical.0, self.stripe_bytes))
    }

    fn release(&self, chunks: &mut Chunks) {
        for (devid, offset, len) in self.device_ranges() {
            chunks.devices.free(devid, offset, len);
        }
    }
}

impl Space {
    /// Returns the number of chunks allocated since the volume was opened.
    pub(super) fn chunks_made(&self) -> u64 {
        self.chunks_made.load(Ordering::SeqCst)
    }

    /// Returns the profile of the newest group of a kind.
    pub(super) fn newest_profile(&self, kind: BlockGroupType) -> Option<Profile> {
        let groups = self.groups();
        let newest = groups.iter().rev().find(|group| group.kind() == kind)?;
        newest.flags().profile()
    }

    /// Returns the type and the profile for the next chunk of a kind.
    pub(super) fn next_flags(
        &self,
        kind: BlockGroupType,
    ) -> Result<(BlockGroupFlags, Profile), SpaceError> {
        let types = match kind {
            BlockGroupType::System => BlockGroupFlags::SYSTEM,
            _ if self.params.mixed => BlockGroupFlags::DATA | BlockGroupFlags::METADATA,
            BlockGroupType::Data => BlockGroupFlags::DATA,
            BlockGroupType::Metadata => BlockGroupFlags::METADATA,
        };
        let profile = self.newest_profile(BlockGroupType::of(types));
        let profile = profile.unwrap_or(Profile::Single);
        if profile.parities() > 0 {
            return Err(SpaceError::ReadOnlyProfile { kind, profile });
        }
        Ok((types | BlockGroupFlags::of(profile), profile))
    }

    /// Allocates a chunk, for a transaction or without an owner until its first use. Returns its length.
    pub(super) fn grow(
        &self,
        chunks: &mut Chunks,
        kind: BlockGroupType,
        created: Option<Transid>,
    ) -> Result<u64, SpaceError> {
        // First ensure space for the chunk tree, which gets an item for the new chunk.
        if kind != BlockGroupType::System && !self.has_system_room() {
            self.make_chunk(chunks, BlockGroupType::System, created)?;
        }
        self.make_chunk(chunks, kind, created)
    }

    /// Returns whether the system groups have room for another copy of the chunk tree, with some more blocks.
    pub(super) fn has_system_room(&self) -> bool {
        let system = self.info(BlockGroupType::System);
        let spare = SYSTEM_SPARE_BLOCKS * u64::from(self.params.nodesize);
        let used = system.used.load(Ordering::SeqCst);
        system.free_bytes() >= used.saturating_add(spare)
    }

    fn make_chunk(
        &self,
        chunks: &mut Chunks,
        kind: BlockGroupType,
        created: Option<Transid>,
    ) -> Result<u64, SpaceError> {
        let (flags, profile) = self.next_flags(kind)?;
        let nodesize = self.params.nodesize as usize;
        let limits = ChunkLimits::new(flags, chunks.devices.usable_bytes(), nodesize);
        let no_space = SpaceError::NoSpace { kind, bytes: 0 };
        let Some(layout) = chunks.devices.take(profile, &limits) else {
            return Err(no_space);
        };
        self.update_forecasts(chunks);
        let fits = match kind {
            BlockGroupType::System => self.check_system_chunks(layout.stripes.len()),
            BlockGroupType::Data | BlockGroupType::Metadata => Ok(()),
        };
        // The layout is subtracted from the forecasts before the check, as SPACE-INFO-2 demands.
        let made = fits.and_then(|()| {
            if self.may_take_from_metadata(kind) {
                self.add_chunk(chunks, flags, profile, &layout, created)
            } else {
                Err(no_space)
            }
        });
        if made.is_err() {
            chunks.devices.release(&layout);
            self.update_forecasts(chunks);
        }
        made
    }

    /// Adds a new chunk to the pool and to the groups.
    fn add_chunk(
        &self,
        chunks: &mut Chunks,
        flags: BlockGroupFlags,
        profile: Profile,
        layout: &ChunkLayout,
        created: Option<Transid>,
    ) -> Result<u64, SpaceError> {
        let stripes = chunks.devices.stripes(layout);
        let (sectorsize, count) = (self.params.sectorsize, stripes.len());
        let head = chunk_head(flags, profile, layout.stripe_bytes, count, sectorsize);
        let logical = Logical(chunks.next_logical.next_multiple_of(STRIPE_LEN));
        // Waits for a discard in the new chunk's device space (UNALLOCATED-2).
        let untrimmed = stripes.iter().map(|stripe| {
            let start = stripe.offset.get();
            let range = start..start + layout.stripe_bytes;
            self.unallocated.take(DevId(stripe.devid.get()), range)
        });
        let untrimmed: u64 = untrimmed.sum();
        // NEWCHUNK-3
        self.pool.add_chunk(logical, &head, &stripes)?;
        let chunk = self.pool.chunk_map().get(logical)?;
        chunks.next_logical = chunk.end().0;
        let new = NewGroup {
            start: logical,
            len: chunk.len_bytes(),
            flags,
            used: 0,
            superblocks: superblock_ranges(&chunk),
        };
        let info = Arc::clone(&self.infos[BlockGroupType::of(flags) as usize]);
        let group = BlockGroup::new(new, created, u64::from(sectorsize), info);
        let items = self.items_of(&chunk);
        chunks.new.push((Arc::clone(&group), items));
        self.groups.insert(Arc::clone(&group));
        // After the insert, so that a thread that sees the new count also finds the group.
        self.chunks_made.fetch_add(1, Ordering::SeqCst);
        if untrimmed > 0 {
            group.set_untrimmed();
        }
        tracing::info!(%logical, len = chunk.len_bytes(), ?flags, "new chunk");
        Ok(chunk.len_bytes())
    }

    fn items_of(&self, chunk: &MappedChunk) -> ChunkItems {
        ChunkItems::new(chunk, self.params.sectorsize, self.params.chunk_tree_uuid)
    }

    /// Checks that the superblock has room for another system chunk with this number of stripes.
    fn check_system_chunks(&self, stripes: usize) -> Result<(), SpaceError> {
        let chunks = self.pool.chunk_map().all();
        let others = chunks
            .iter()
            .filter(|chunk| chunk.flags().contains(BlockGroupFlags::SYSTEM))
            .map(|chunk| chunk.stripes().len());
        let bytes: usize = others
            .chain([stripes])
            .map(|stripes| {
                size_of::<DiskKey>() + size_of::<Chunk>() + stripes * size_of::<Stripe>()
            })
            .sum();
        if bytes <= SYS_CHUNK_ARRAY_SIZE {
            Ok(())
        } else {
            Err(SpaceError::SystemChunkArray)
        }
    }

    /// Returns whether metadata reservations still fit after a new chunk of this kind (SPACE-INFO-2).
    fn may_take_from_metadata(&self, kind: BlockGroupType) -> bool {
        let own_kind = kind != BlockGroupType::Data || self.params.mixed;
        own_kind || self.info(BlockGroupType::Metadata).fits_reservations()
    }

    /// Recomputes the size that new chunks could add to each type, after a change of the devices' free space.
    pub(super) fn update_forecasts(&self, chunks: &Chunks) {
        for kind in BlockGroupType::ALL {
            let unallocated_bytes = self.next_flags(kind).map_or(0, |(flags, profile)| {
                let nodesize = self.params.nodesize as usize;
                let limits = ChunkLimits::new(flags, chunks.devices.usable_bytes(), nodesize);
                chunks.devices.forecast(profile, &limits)
            });
            self.infos[kind as usize]
                .unallocated_bytes
                .store(unallocated_bytes, Ordering::SeqCst);
        }
    }

    /// Takes the chunks created since the last call that transactions up to `upto` have used. A commit calls this until
    /// it returns nothing, the last time after its last allocation.
    pub(crate) fn take_new_chunks(&self, upto: Transid) -> Vec<ChunkItems> {
        let mut chunks = self.chunks.lock();
        let new = std::mem::take(&mut chunks.new);
        let (taken, left) = new
            .into_iter()
            .partition(|(group, _)| group.created().is_some_and(|created| created <= upto));
        chunks.new = left;
        let taken: Vec<(Arc<BlockGroup>, ChunkItems)> = taken;
        taken.into_iter().map(|(_, items)| items).collect()
    }

    /// Adds or subtracts a chunk in the items of its devices, for the commit that inserts or deletes the chunk's items.
    /// Returns the changed items.
    pub(crate) fn change_device_items(
        &self,
        chunk: &ChunkItems,
        change: ChunkChange,
    ) -> Result<Vec<(Key, Vec<u8>)>, SpaceError> {
        let mut chunks = self.chunks.lock();
        Ok(chunks.devices.change_used(&self.pool, chunk, change)?)
    }

    /// Sets the totals of devices and of used space in the superblock of a commit.
    pub(crate) fn write_totals(&self, sb: &mut Superblock) {
        self.chunks.lock().devices.write_totals(sb);
        // As in the kernel, each extent counts once, regardless of the profile.
        sb.bytes_used = self
            .totals()
            .iter()
            .map(|sums| sums.used)
            .sum::<u64>()
            .into();
    }

    /// Removes the data chunks that no transaction has used and no reservation needs.
    pub(super) fn forget_unclaimed(&self, chunks: &mut Chunks) {
        let data = self.info(BlockGroupType::Data);
        let mut left = Vec::new();
        for (group, items) in std::mem::take(&mut chunks.new) {
            let is_spare = group.created().is_none()
                && std::ptr::eq(self.info(group.kind()), data)
                && !self.is_last_of_kind(&group)
                && self.retire(&group);
            match self.pool.chunk_map().get(group.start()) {
                Ok(chunk) if is_spare => {
                    let removed = self.unmap(&group, &chunk);
                    removed.release(chunks);
                    self.note_unallocated(&removed);
                }
                _ => left.push((group, items)),
            }
        }
        chunks.new = left;
        self.update_forecasts(chunks);
    }

    /// Removes a retired chunk from the maps.
    fn unmap(&self, group: &BlockGroup, chunk: &MappedChunk) -> RemovedGroup {
        self.groups.remove(chunk.logical());
        self.pool.remove_chunk(chunk.logical());
        let stripes = chunk.stripes().iter();
        RemovedGroup {
            items: self.items_of(chunk),
            extents: stripes
                .map(|stripe| (stripe.devid, stripe.physical))
                .collect(),
            stripe_bytes: chunk.stripe_bytes(),
            may_be_untrimmed: group.may_be_untrimmed(),
        }
    }

    /// Queues the device space of a removed group for a discard, if discards are on.
    fn note_unallocated(&self, removed: &RemovedGroup) {
        if removed.may_be_untrimmed && self.trims.tracks() {
            for (devid, offset, len) in removed.device_ranges() {
                self.unallocated.add_waiting(devid, offset..offset + len);
            }
        }
    }

    /// Returns the unused groups: those that are empty after transaction `upto`, except for the first one of each kind, which is kept
    /// for later allocations. System groups are never returned, because the superblock names their chunks.
    pub fn unused_groups(&self, upto: Transid) -> Vec<Arc<BlockGroup>> {
        let groups = self.groups();
        let of_kind = |kind| {
            let is_empty = move |group: &&Arc<BlockGroup>| {
                group.kind() == kind && group.used() == 0 && group.is_of(upto)
            };
            groups.iter().filter(is_empty).skip(1)
        };
        let kinds = [BlockGroupType::Data, BlockGroupType::Metadata];
        kinds.into_iter().flat_map(of_kind).cloned().collect()
    }

    /// Removes an empty group and its chunk from the volume. The running transaction deletes the items.
    ///
    /// Fails with `InUse` if the group is in use: anything in it is allocated or pinned, or reservations need it.
    /// Likewise if its items are not inserted yet, or it is the last of its kind.
    pub(crate) fn remove_group(&self, start: Logical) -> Result<RemovedGroup, SpaceError> {
        let chunks = self.chunks.lock();
        let group = self.find(start).filter(|group| group.start() == start);
        let group = group.ok_or(SpaceError::NoBlockGroup { start })?;
        let is_new = chunks.new.iter().any(|(new, _)| new.start() == start);
        if is_new || self.is_last_of_kind(&group) || !self.retire(&group) {
            return Err(SpaceError::InUse { start });
        }
        let chunk = self.pool.chunk_map().get(start)?;
        Ok(self.unmap(&group, &chunk))
    }

    /// Creates a group for the transaction if `group` is the last one of its kind.
    ///
    /// Errors: no device space.
    pub(crate) fn replace_last(
        &self,
        group: &BlockGroup,
        transid: Transid,
    ) -> Result<(), SpaceError> {
        let mut chunks = self.chunks.lock();
        if self.is_last_of_kind(group) {
            self.grow(&mut chunks, group.kind(), Some(transid))?;
        }
        Ok(())
    }

    /// Returns whether the group is the last one of its kind. The last group preserves the profile for later ones.
    fn is_last_of_kind(&self, group: &BlockGroup) -> bool {
        let groups = self.groups();
        let mut others = groups.iter().filter(|other| other.start() != group.start());
        !others.any(|other| other.kind() == group.kind())
    }

    /// Closes a group for good, if it is empty and reservations fit without it.
    fn retire(&self, group: &BlockGroup) -> bool {
        let was_read_only = group.is_read_only();
        if !group.try_set_read_only() {
            return false;
        }
        // The order matters: subtract the group first, then check the reservations. A reserving thread does the reverse
        // (SPACE-INFO-2).
        let retired = group.retire();
        if retired && self.fits_reservations_of(group.kind()) {
            return true;
        }
        if retired {
            group.reinstate();
        }
        if !was_read_only {
            group.set_writable();
        }
        false
    }

    pub(super) fn fits_reservations_of(&self, kind: BlockGroupType) -> bool {
        let info = self.info(kind);
        match kind {
            BlockGroupType::Data => info.fits_groups(),
            BlockGroupType::Metadata | BlockGroupType::System => info.fits_reservations(),
        }
    }

    /// Frees the device space of a removed group, after its commit is durable (NEWCHUNK-2).
    pub(crate) fn free_device_space(&self, removed: &RemovedGroup) {
        let mut chunks = self.chunks.lock();
        removed.release(&mut chunks);
        self.note_unallocated(removed);
        self.update_forecasts(&chunks);
    }
}
