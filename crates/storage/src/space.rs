//! Block groups, their free space, and its allocation.
//!
//! [`Space`] serves the running transaction and the preceding commit at the same time. The free-space tree on disk is
//! computed from the changes of each commit to extent items, not from this state.
//!
//! Life of a range: free -> allocated (-> `release`: free) -> in an extent item -> pinned -> free. The commit that
//! deletes the item calls `pin`. `unpin` is called when that commit is durable and no reader of the state before it is
//! left.
//!
//! Life of a chunk: it is created when no group has room, and claimed by the first transaction that allocates in it.
//! The commit of that transaction or a later one inserts its items (`take_new_chunks`). The preceding commit does so if
//! it is still running and allocates in the chunk. An unclaimed chunk is dropped when the volume is closed, or when the
//! reservation that caused it fails.
//!
//! Locks, in this order: a cluster's, `chunks`, a block group's state. Loading free space reads with the group's held;
//! nothing else here does IO.
//! Not here: extent items, the commit, the time of discards (`discard`).

mod alloc;
mod block_group;
mod block_groups;
mod chunk_alloc;
mod device_change;
mod device_set;
mod emptying;
mod free_space;
pub(crate) mod free_space_tree;
mod nocow;
mod nocow_writers;
mod reserve;
mod space_info;
mod trim;
mod trim_gate;
mod trim_totals;
mod unallocated;
mod vacate;

#[cfg(test)]
pub(crate) mod test_volume;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_device::Pool;
use ubtrfs_device::chunk_layout::superblock_ranges;
use ubtrfs_format::block_group_flags::{BlockGroupFlags, BlockGroupType, Profile};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{Logical, Transid};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_format::uuid::Uuid;

use alloc::Cursors;
use block_group::NewGroup;
use block_groups::BlockGroups;
use chunk_alloc::Chunks;
use space_info::SpaceInfo;
use trim_gate::TrimGate;
use trim_totals::TrimTotals;
use unallocated::Unallocated;

pub use crate::error::SpaceError;

pub use alloc::BlockKind;
pub use block_group::{BlockGroup, FreeSpaceSource, TrimRegion};
pub use chunk_alloc::RemovedGroup;
pub use device_change::{DeviceChange, new_device_item};
pub(crate) use device_set::{ChunkChange, DeviceSet, UsedExtent};
pub(crate) use emptying::EmptyingGroup;
pub use free_space::{ExtentRequest, FreeSpace};
pub use nocow::NocowWrite;
pub use space_info::SpaceTotals;
pub(crate) use trim::{RegionOut, UnallocatedOut};
pub use trim_totals::Untrimmed;
pub use unallocated::DeviceRegion;

/// Parameters that are constant while a volume is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceParams {
    pub(crate) sectorsize: u32,
    pub(crate) nodesize: u32,
    /// Whether data and metadata share block groups.
    pub(crate) mixed: bool,
    /// Stored in the headers of chunk tree blocks, and in device extents.
    pub(crate) chunk_tree_uuid: Uuid,
}

impl SpaceParams {
    pub(crate) fn of(superblock: &Superblock, chunk_tree_uuid: Uuid) -> SpaceParams {
        SpaceParams {
            sectorsize: superblock.sectorsize.get(),
            nodesize: superblock.nodesize.get(),
            mixed: superblock.incompat().contains(Incompat::MIXED_GROUPS),
            chunk_tree_uuid,
        }
    }
}

/// The space of one volume. Shared as `Arc<Space>`.
pub struct Space {
    params: SpaceParams,
    pool: Arc<Pool>,
    source: Arc<dyn FreeSpaceSource>,
    groups: BlockGroups,
    /// By `BlockGroupType`.
    infos: [Arc<SpaceInfo>; 3],
    cursors: Cursors,
    chunks: Mutex<Chunks>,
    chunks_made: AtomicU64,
    /// Used bytes of data in mixed groups.
    mixed_data: AtomicU64,
    pinned: Mutex<Vec<Range<u64>>>,
    trims: Arc<TrimTotals>,
    trim_gate: TrimGate,
    unallocated: Unallocated,
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("params", &self.params)
            .field("totals", &self.totals())
            .finish_non_exhaustive()
    }
}

/// The ranges that were pinned during some period.
#[derive(Debug, Default)]
pub(crate) struct Pinned(Vec<Range<u64>>);

impl Space {
    /// Creates the space of a volume with these block groups: start, length, flags, used bytes.
    ///
    /// `pool` has their chunks.
    pub(crate) fn new(
        params: SpaceParams,
        groups: Vec<(Logical, u64, BlockGroupFlags, u64)>,
        devices: DeviceSet,
        pool: Arc<Pool>,
        source: Arc<dyn FreeSpaceSource>,
    ) -> Space {
        let trims: Arc<TrimTotals> = Arc::default();
        let infos: [Arc<SpaceInfo>; 3] = std::array::from_fn(|_| {
            Arc::new(SpaceInfo {
                trims: Arc::clone(&trims),
                ..SpaceInfo::default()
            })
        });
        let sectorsize = u64::from(params.sectorsize);
        let groups = groups.into_iter().map(|(start, len, flags, used)| {
            let chunk = pool.chunk_map().find(start);
            let chunk = chunk.filter(|chunk| chunk.logical() == start && chunk.len_bytes() == len);
            let new = NewGroup {
                start,
                len,
                flags,
                used,
                superblocks: chunk.as_deref().map(superblock_ranges).unwrap_or_default(),
            };
            let info = &infos[BlockGroupType::of(flags) as usize];
            let group = BlockGroup::new(new, Some(Transid(0)), sectorsize, Arc::clone(info));
            if chunk.is_none() {
                tracing::error!(group = %start, len, "a block group without a chunk");
                group.set_read_only();
            }
            group
        });
        let groups = BlockGroups::new(groups.collect());
        let space = Space {
            params,
            chunks: Mutex::new(Chunks::new(devices, &pool)),
            chunks_made: AtomicU64::new(0),
            mixed_data: AtomicU64::new(0),
            pool,
            source,
            groups,
            infos,
            cursors: Cursors::default(),
            pinned: Mutex::new(Vec::new()),
            trims,
            trim_gate: TrimGate::default(),
            unallocated: Unallocated::default(),
        };
        space.update_forecasts(&space.chunks.lock());
        space
    }

    /// Returns all block groups in address order.
    pub fn groups(&self) -> Arc<Vec<Arc<BlockGroup>>> {
        self.groups.all()
    }

    /// Returns the block group that contains an address, without a lock.
    #[inline]
    pub fn find(&self, logical: Logical) -> Option<Arc<BlockGroup>> {
        self.groups.find(logical)
    }

    /// Returns the number of block group lookups by address.
    #[cfg(any(test, feature = "testing"))]
    pub fn group_lookups(&self) -> u64 {
        self.groups.lookups()
    }

    /// Calls `during` while all locks of block groups, of their list and of chunks are held.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_groups_locked<T>(&self, during: impl FnOnce() -> T) -> T {
        let groups = self.groups();
        let _chunks = self.chunks.lock();
        let _list = self.groups.hold();
        let _groups: Vec<_> = groups.iter().map(|group| group.hold()).collect();
        during()
    }

    /// Returns whether a transaction after `committed` has created a chunk, which the last commit did not record.
    pub fn has_new_groups(&self, committed: Transid) -> bool {
        let groups = self.groups();
        let is_new = |group: &BlockGroup| group.created().is_some_and(|made| made > committed);
        groups.iter().any(|group| is_new(group))
    }

    /// Returns whether data and metadata share block groups.
    pub(crate) fn is_mixed(&self) -> bool {
        self.params.mixed
    }

    /// Returns the bytes of tree blocks in extent items, without the chunk tree.
    pub(crate) fn metadata_used(&self) -> u64 {
        let used = self
            .info(BlockGroupType::Metadata)
            .used
            .load(Ordering::SeqCst);
        used.saturating_sub(self.mixed_data.load(Ordering::SeqCst))
    }

    /// Sets the bytes of tree blocks in mixed groups, at the opening of the volume.
    pub(crate) fn set_metadata_used(&self, bytes: u64) {
        let used = self
            .info(BlockGroupType::Metadata)
            .used
            .load(Ordering::SeqCst);
        let data = used.saturating_sub(bytes);
        self.mixed_data.store(data, Ordering::SeqCst);
    }

    /// Adjusts the bytes of data extents in extent items. Only the commit calls this.
    pub(crate) fn change_data_used(&self, delta: i64) {
        if self.params.mixed {
            let data = self.mixed_data.load(Ordering::SeqCst);
            let data = data.saturating_add_signed(delta);
            self.mixed_data.store(data, Ordering::SeqCst);
        }
    }

    /// Begins an in-place write of data. Returns None if the data must be written elsewhere.
    pub fn begin_nocow_write(&self, logical: Logical) -> Option<NocowWrite> {
        NocowWrite::begin(self.find(logical)?)
    }

    fn info(&self, kind: BlockGroupType) -> &SpaceInfo {
        let kind = match kind {
            BlockGroupType::Data if self.params.mixed => BlockGroupType::Metadata,
            kind => kind,
        };
        &self.infos[kind as usize]
    }

    /// Frees an allocation that nothing ever referred to, at once.
    pub fn release(&self, start: Logical, len: u64) {
        if let Some(group) = self.group_of(start, len) {
            group.release(start.0, len);
        }
    }

    /// Pins a range that the committing transaction no longer needs: it is not allocated again before `unpin`. The
    /// blocks of a log tree, which have no extent items, are pinned before the first allocation.
    pub fn pin(&self, start: Logical, len: u64) {
        if let Some(group) = self.group_of(start, len) {
            group.pin(start.0, len);
            self.pinned.lock().push(start.0..start.0 + len);
        }
    }

    /// Takes the ranges that were pinned since the last call.
    pub(crate) fn take_pinned(&self) -> Pinned {
        Pinned(std::mem::take(&mut *self.pinned.lock()))
    }

    /// Frees ranges whose commit is durable. No reader may still use an older state.
    pub(crate) fn unpin(&self, pinned: Pinned) {
        let mut ranges = pinned.0;
        ranges.sort_unstable_by_key(|range| range.start);
        let mut rest = &ranges[..];
        while let Some(first) = rest.first() {
            let Some(group) = self.find(Logical(first.start)) else {
                // Cannot happen: a group is not removed while anything in it is pinned.
                rest = &rest[1..];
                continue;
            };
            let end = group.end().0;
            let (of_group, others) = rest.split_at(rest.partition_point(|range| range.start < end));
            group.unpin(&joined(of_group));
            rest = others;
        }
    }

    /// Returns the group that contains a whole range.
    fn group_of(&self, start: Logical, len: u64) -> Option<Arc<BlockGroup>> {
        let end = start.checked_add(len);
        let group = self
            .find(start)
            .filter(|group| end.is_some_and(|end| end <= group.end()));
        if group.is_none() {
            tracing::error!(%start, len, "space is in no block group");
        }
        group
    }

    /// Returns the sums for each type with block groups.
    pub fn totals(&self) -> Vec<SpaceTotals> {
        use std::sync::atomic::Ordering::Relaxed;
        let totals = BlockGroupType::ALL.into_iter().filter_map(|kind| {
            let info = &self.infos[kind as usize];
            let total = info.total.load(Relaxed);
            (total > 0).then(|| SpaceTotals {
                kind,
                profile: self.newest_profile(kind).unwrap_or(Profile::Single),
                total,
                used: info.used.load(Relaxed),
                pinned: info.pinned.load(Relaxed),
                reserved: info.reserved(),
                free_bytes: info.free_bytes(),
                unallocated_bytes: info.unallocated_bytes(),
            })
        });
        totals.collect()
    }
}

/// Merges ranges that touch.
fn joined(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range.clone()),
        }
    }
    joined
}
