//! The choice of space for tree blocks and data.
//!
//! Tree blocks are taken from clusters, front to back, so the blocks of one commit are adjacent. Data goes after the
//! file's last extent, or after the last allocation. Both prefer a long free run in any group, then a new chunk, then
//! fragments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ubtrfs_format::block_group_flags::{BlockGroupFlags, BlockGroupType};
use ubtrfs_format::ids::{Logical, Transid};

use super::block_group::BlockGroup;
use super::free_space::ExtentRequest;
use super::space_info::release;
use super::{Space, SpaceError};

/// The minimum run for which another group or a new chunk is preferred to fragments.
const CLUSTER_BYTES: u64 = 1 << 20;

/// The two kinds of tree blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Metadata,
    /// A block of the chunk tree.
    System,
}

impl BlockKind {
    fn space(self) -> BlockGroupType {
        match self {
            BlockKind::Metadata => BlockGroupType::Metadata,
            BlockKind::System => BlockGroupType::System,
        }
    }
}

/// The ends of the last allocations.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    metadata: Mutex<Cluster>,
    system: Mutex<Cluster>,
    data: AtomicU64,
    log: AtomicU64,
}

/// A run that was free when it was found. Blocks are taken from it one by one.
#[derive(Debug, Default)]
struct Cluster {
    next: u64,
    end: u64,
}

impl Space {
    /// Allocates one tree block for the commit of a transaction. The commit takes over groups that the next transaction
    /// began.
    pub fn allocate_block(
        &self,
        kind: BlockKind,
        committing: Transid,
    ) -> Result<Logical, SpaceError> {
        let nodesize = u64::from(self.params.nodesize);
        let mut cluster = match kind {
            BlockKind::Metadata => self.cursors.metadata.lock(),
            BlockKind::System => self.cursors.system.lock(),
        };
        if !self.continue_cluster(&cluster, nodesize, committing) {
            let flags = match kind {
                BlockKind::Metadata => BlockGroupFlags::METADATA,
                BlockKind::System => BlockGroupFlags::SYSTEM,
            };
            let wanted = ExtentRequest {
                bytes: CLUSTER_BYTES.max(nodesize),
                min_bytes: nodesize,
                align: nodesize,
                hint: Some(cluster.next),
            };
            let take = |group: &BlockGroup, wanted: &ExtentRequest| {
                group.take_over(committing);
                group.allocate_front(wanted, nodesize, &*self.source)
            };
            let (start, len) = self.search(kind.space(), flags, &wanted, committing, take)?;
            // Only the first block of the run is allocated. The rest stays free until `continue_cluster` takes it.
            *cluster = Cluster {
                next: start,
                end: start + len,
            };
        }
        let block = Logical(cluster.next);
        cluster.next += nodesize;
        Ok(block)
    }

    /// Allocates one tree block for a log, in a chunk that the last commit has recorded. The block must leave room for
    /// the reservations and another `left_bytes`. Returns None if there is no room.
    pub(crate) fn allocate_log_block(
        &self,
        committed: Transid,
        left_bytes: u64,
    ) -> Option<Logical> {
        let nodesize = u64::from(self.params.nodesize);
        let reserved = self.info(BlockGroupType::Metadata).reserved();
        let taken = nodesize.saturating_add(left_bytes);
        if !self.fits_metadata(reserved.saturating_add(taken)) {
            return None;
        }
        let wanted = ExtentRequest {
            bytes: nodesize,
            min_bytes: nodesize,
            align: nodesize,
            hint: Some(self.cursors.log.load(Ordering::Relaxed)),
        };
        // LOG-4
        let take = |group: &BlockGroup, wanted: &ExtentRequest| {
            if group.is_of(committed) {
                group.allocate(wanted, &*self.source)
            } else {
                None
            }
        };
        let (start, len) = self.search_groups(BlockGroupFlags::METADATA, &wanted, &take)?;
        self.cursors.log.store(start + len, Ordering::Relaxed);
        Some(Logical(start))
    }

    /// Takes the next block of a cluster. Returns false if the cluster is used up or the space is no longer free.
    fn continue_cluster(&self, cluster: &Cluster, nodesize: u64, committing: Transid) -> bool {
        if cluster.next + nodesize > cluster.end {
            return false;
        }
        let group = self.find(Logical(cluster.next));
        group.is_some_and(|group| {
            group.take_over(committing);
            group.allocate_at(cluster.next, nodesize, &*self.source)
        })
    }

    /// Allocates between `min` and `want` contiguous bytes for data, in whole sectors. The caller has reserved at least
    /// the allocated bytes; they are subtracted from the reservation.
    pub fn allocate_data(
        &self,
        want: u64,
        min: u64,
        hint: Option<Logical>,
        running: Transid,
    ) -> Result<(Logical, u64), SpaceError> {
        let last = self.cursors.data.load(Ordering::Relaxed);
        let wanted = ExtentRequest {
            bytes: want,
            min_bytes: min,
            align: u64::from(self.params.sectorsize),
            hint: Some(hint.map_or(last, |hint| hint.0)),
        };
        let take = |group: &BlockGroup, wanted: &ExtentRequest| {
            if group.claim(running) {
                group.allocate(wanted, &*self.source)
            } else {
                None
            }
        };
        let kind = BlockGroupType::Data;
        let (start, len) = self.search(kind, BlockGroupFlags::DATA, &wanted, running, take)?;
        self.cursors.data.store(start + len, Ordering::Relaxed);
        release(&self.info(kind).reserved_data, len);
        Ok((Logical(start), len))
    }

    /// Allocates an extent of data at a fixed address, for log replay. Returns false if it is not free, or not in a
    /// data group.
    pub fn take_data(&self, start: Logical, len: u64) -> bool {
        let group = self.find(start);
        let group = group.filter(|group| group.flags().contains(BlockGroupFlags::DATA));
        let end = start.0.checked_add(len);
        group.is_some_and(|group| {
            end.is_some_and(|end| end <= group.end().0)
                && group.allocate_at(start.0, len, &*self.source)
        })
    }

    /// Returns the average length of the free runs for data, or None while new chunks can be allocated.
    pub fn average_free_run_bytes(&self) -> Option<u64> {
        if self.info(BlockGroupType::Data).unallocated_bytes() > 0 {
            return None;
        }
        let groups = self.groups();
        let data = groups
            .iter()
            .filter(|group| group.flags().contains(BlockGroupFlags::DATA))
            .map(|group| group.room_and_runs());
        let sum = |(bytes, count): (u64, u64), (free_bytes, runs): (u64, u64)| {
            (bytes + free_bytes, count + runs)
        };
        let (bytes, count) = data.fold((0, 0), sum);
        bytes.checked_div(count)
    }

    /// Searches again if a region was taken out for a discard during the first attempt (TRIM-GATE-1).
    fn search(
        &self,
        kind: BlockGroupType,
        flags: BlockGroupFlags,
        wanted: &ExtentRequest,
        transid: Transid,
        take: impl Fn(&BlockGroup, &ExtentRequest) -> Option<(u64, u64)>,
    ) -> Result<(u64, u64), SpaceError> {
        let moment = self.trim_gate.moment();
        let found = self.search_once(kind, flags, wanted, transid, &take);
        if found.is_ok() || self.trim_gate.was_quiet_since(moment) {
            return found;
        }
        let _stopped = self.trim_gate.stop();
        // No region is taken out now, so a failure is final.
        self.search_once(kind, flags, wanted, transid, &take)
    }

    fn search_once(
        &self,
        kind: BlockGroupType,
        flags: BlockGroupFlags,
        wanted: &ExtentRequest,
        transid: Transid,
        take: &impl Fn(&BlockGroup, &ExtentRequest) -> Option<(u64, u64)>,
    ) -> Result<(u64, u64), SpaceError> {
        let long = ExtentRequest {
            min_bytes: wanted.bytes.min(CLUSTER_BYTES).max(wanted.min_bytes),
            ..*wanted
        };
        let mut grown = None;
        loop {
            // Read before the search: a chunk added after this point causes another round.
            let made = self.chunks_made();
            if let Some(found) = self.search_groups(flags, &long, take) {
                return Ok(found);
            }
            // Accept fragments if they are preferred, or if even a new chunk has not helped.
            if (grown.is_some() || self.prefers_fragments(kind))
                && let Some(found) = self.search_groups(flags, wanted, take)
            {
                return Ok(found);
            }
            let no_space = SpaceError::NoSpace {
                kind,
                bytes: wanted.min_bytes,
            };
            // Other threads may have used up the new chunk, so try again, unless it was too short in the first place.
            if grown.is_some_and(|len| len < wanted.min_bytes) {
                return Err(no_space);
            }
            let mut chunks = self.chunks.lock();
            // Another thread may have added a chunk in the meantime.
            if self.chunks_made() != made {
                continue;
            }
            match self.grow(&mut chunks, kind, Some(transid)) {
                Ok(len) => grown = Some(len),
                // No new chunk is possible: fragments are the last resort.
                Err(error) => {
                    drop(chunks);
                    let pieces = self.search_groups(flags, wanted, take);
                    return pieces.ok_or(match error {
                        SpaceError::NoSpace { .. } => no_space,
                        other => other,
                    });
                }
            }
        }
    }

    /// Returns whether fragments are preferred to a new chunk.
    ///
    /// This applies to metadata while a quarter of it is free, and always to the chunk tree. The superblock has room
    /// for only a few system chunks.
    fn prefers_fragments(&self, kind: BlockGroupType) -> bool {
        let info = self.info(kind);
        match kind {
            BlockGroupType::System => true,
            BlockGroupType::Metadata => info.free_bytes() >= info.total.load(Ordering::Relaxed) / 4,
            BlockGroupType::Data => false,
        }
    }

    /// Tries the group of the hint, then the groups after it, then those before it.
    fn search_groups(
        &self,
        flags: BlockGroupFlags,
        wanted: &ExtentRequest,
        take: &impl Fn(&BlockGroup, &ExtentRequest) -> Option<(u64, u64)>,
    ) -> Option<(u64, u64)> {
        let groups = self.groups();
        let hint = wanted.hint.unwrap_or(0);
        let first = groups.partition_point(|group| group.end().0 <= hint);
        let (before, from) = groups.split_at(first);
        let usable = |group: &&Arc<BlockGroup>| {
            group.flags().contains(flags) && group.max_extent_bytes() >= wanted.min_bytes
        };
        let mut groups = from.iter().chain(before).filter(usable);
        groups.find_map(|group| take(group, wanted))
    }
}
