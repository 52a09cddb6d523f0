//! The map from logical addresses to chunks.
//!
//! Invariants
//! - CHUNK-1: a chunk in the map has passed the checks of the kernel's `btrfs_check_chunk_valid`.
//! - CHUNK-2: no two chunks overlap.
//!
//! Readers take no lock: they search a sorted snapshot. A reader publishes a new snapshot only if the address is
//! missing there and newer chunks exist. Loading n chunks thus costs O(n log n), a look-up O(log n).
//!
//! Not here: the mapping of a chunk's bytes to its stripes (`stripes`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::ids::{DevId, Logical, Physical};
pub use ubtrfs_format::item::STRIPE_LEN;
use ubtrfs_format::item::{Chunk, Stripe};
use ubtrfs_format::uuid::Uuid;

use crate::chunk_problem::ChunkProblem;
use crate::error::DeviceError;

#[cfg(test)]
mod tests;

/// The start of one stripe of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkStripe {
    pub devid: DevId,
    pub physical: Physical,
    pub dev_uuid: Uuid,
}

/// A validated chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedChunk {
    pub(crate) logical: Logical,
    pub(crate) len_bytes: u64,
    pub(crate) flags: BlockGroupFlags,
    pub(crate) profile: Profile,
    pub(crate) stripes: Box<[ChunkStripe]>,
}

impl MappedChunk {
    /// Copies the device UUIDs from stripes that are otherwise equal.
    pub fn set_device_uuids(&mut self, stripes: &[Stripe]) {
        for (mapped, stripe) in self.stripes.iter_mut().zip(stripes) {
            mapped.dev_uuid = stripe.dev_uuid;
        }
    }

    /// Checks a chunk as the kernel does (CHUNK-1), and that its stripes can be addressed.
    pub fn check(
        logical: Logical,
        chunk: &Chunk,
        stripes: &[Stripe],
        sectorsize: u32,
        mixed: bool,
    ) -> Result<MappedChunk, ChunkProblem> {
        let flags = chunk.flags();
        let profile = check_type(flags, mixed)?;
        check_stripe_count(profile, chunk, stripes.len())?;
        let sector = u64::from(sectorsize);
        let len_bytes = chunk.length.get();
        if chunk.sector_size.get() != sectorsize {
            return Err(ChunkProblem::SectorSize {
                found: chunk.sector_size.get(),
                wanted: sectorsize,
            });
        }
        if !logical.0.is_multiple_of(sector) {
            return Err(ChunkProblem::Start);
        }
        if chunk.stripe_len.get() != STRIPE_LEN {
            return Err(ChunkProblem::StripeLen(chunk.stripe_len.get()));
        }
        // The kernel counts the stripes of a chunk with 32 bits.
        let longest = u64::from(u32::MAX) * STRIPE_LEN;
        if len_bytes == 0
            || !len_bytes.is_multiple_of(sector)
            || len_bytes >= longest
            || logical.checked_add(len_bytes).is_none()
        {
            return Err(ChunkProblem::Length(len_bytes));
        }
        let stripes: Box<[ChunkStripe]> = stripes
            .iter()
            .map(|stripe| ChunkStripe {
                devid: DevId(stripe.devid.get()),
                physical: Physical(stripe.offset.get()),
                dev_uuid: stripe.dev_uuid,
            })
            .collect();
        let mapped = MappedChunk {
            logical,
            len_bytes,
            flags,
            profile,
            stripes,
        };
        if mapped.has_parity() {
            mapped.check_devices_differ()?;
        }
        let stripe_bytes = mapped.stripe_bytes();
        for (index, stripe) in mapped.stripes.iter().enumerate() {
            let physical = stripe.physical.0;
            // Files and devices cannot be longer than i64::MAX.
            let end = physical.checked_add(stripe_bytes);
            if !physical.is_multiple_of(sector) || end.is_none_or(|end| end > i64::MAX as u64) {
                return Err(ChunkProblem::StripePlace { index, physical });
            }
        }
        Ok(mapped)
    }

    fn check_devices_differ(&self) -> Result<(), ChunkProblem> {
        let mut devids: Vec<DevId> = self.stripes.iter().map(|s| s.devid).collect();
        devids.sort_unstable();
        match devids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ChunkProblem::RepeatedDevice { devid: pair[0] }),
            None => Ok(()),
        }
    }

    pub fn logical(&self) -> Logical {
        self.logical
    }

    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Returns the first address after the chunk.
    pub fn end(&self) -> Logical {
        Logical(self.logical.0 + self.len_bytes)
    }

    pub fn flags(&self) -> BlockGroupFlags {
        self.flags
    }

    pub fn profile(&self) -> Profile {
        self.profile
    }

    pub fn stripes(&self) -> &[ChunkStripe] {
        &self.stripes
    }

    pub fn contains(&self, logical: Logical) -> bool {
        self.logical <= logical && logical < self.end()
    }
}

fn check_type(flags: BlockGroupFlags, mixed: bool) -> Result<Profile, ChunkProblem> {
    let bad = ChunkProblem::Type(flags.bits());
    let known = BlockGroupFlags::TYPE_MASK | BlockGroupFlags::PROFILE_MASK;
    let kind = flags & BlockGroupFlags::TYPE_MASK;
    let data_and_metadata = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
    let kind_ok = kind == BlockGroupFlags::DATA
        || kind == BlockGroupFlags::METADATA
        || kind == BlockGroupFlags::SYSTEM
        || (mixed && kind == data_and_metadata);
    if !(flags - known).is_empty() || !kind_ok {
        return Err(bad);
    }
    flags.profile().ok_or(bad)
}

fn check_stripe_count(profile: Profile, chunk: &Chunk, found: usize) -> Result<(), ChunkProblem> {
    let count = chunk.num_stripes.get();
    if usize::from(count) != found {
        return Err(ChunkProblem::StripesShort { count, found });
    }
    let stripes = usize::from(count);
    let ok = match profile {
        Profile::Single => stripes == 1,
        Profile::Dup | Profile::Raid1 => stripes == 2,
        Profile::Raid1c3 => stripes == 3,
        Profile::Raid1c4 => stripes == 4,
        Profile::Raid0 => stripes >= 1,
        Profile::Raid10 => stripes >= 2 && stripes.is_multiple_of(2),
        Profile::Raid5 => stripes >= 2,
        Profile::Raid6 => stripes >= 3,
    };
    if !ok {
        return Err(ChunkProblem::StripeCount { profile, count });
    }
    if profile == Profile::Raid10 && chunk.sub_stripes.get() != 2 {
        return Err(ChunkProblem::SubStripes(chunk.sub_stripes.get()));
    }
    Ok(())
}

/// The state that readers search. The start addresses are a separate array, so that a search touches no other memory.
#[derive(Debug, Default)]
struct Snapshot {
    starts: Vec<Logical>,
    chunks: Arc<Vec<Arc<MappedChunk>>>,
}

/// The chunks of a volume by logical address.
#[derive(Debug, Default)]
pub struct ChunkMap {
    snapshot: ArcSwap<Snapshot>,
    /// Whether `chunks` has a chunk that is not in the snapshot.
    behind: AtomicBool,
    chunks: Mutex<BTreeMap<Logical, Arc<MappedChunk>>>,
}

impl ChunkMap {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a chunk. Adding an equal chunk again is not an error.
    pub fn insert(&self, chunk: MappedChunk) -> Result<(), DeviceError> {
        let mut chunks = self.chunks.lock();
        // CHUNK-2
        let before = chunks.range(..=chunk.logical).next_back();
        if let Some((_, before)) = before
            && before.end() > chunk.logical
        {
            return if **before == chunk {
                Ok(())
            } else {
                Err(overlap(&chunk, before.logical))
            };
        }
        let after = (Bound::Excluded(chunk.logical), Bound::Unbounded);
        if let Some((&other, _)) = chunks.range(after).next()
            && other < chunk.end()
        {
            return Err(overlap(&chunk, other));
        }
        chunks.insert(chunk.logical, Arc::new(chunk));
        self.behind.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes the chunk at `logical`. Existing references remain valid.
    pub fn remove(&self, logical: Logical) {
        let mut chunks = self.chunks.lock();
        if chunks.remove(&logical).is_some() {
            self.store_snapshot(&chunks);
        }
    }

    /// Removes all chunks. There must be no concurrent readers.
    pub(crate) fn clear(&self) {
        let mut chunks = self.chunks.lock();
        chunks.clear();
        self.store_snapshot(&chunks);
    }

    /// Finds the chunk that contains an address.
    pub fn find(&self, logical: Logical) -> Option<Arc<MappedChunk>> {
        let found = self.snapshot.load().search(logical);
        found.or_else(|| self.find_again(logical))
    }

    /// Repeats the search for an address that was not in the snapshot.
    #[cold]
    fn find_again(&self, logical: Logical) -> Option<Arc<MappedChunk>> {
        if self.behind.load(Ordering::Acquire) {
            self.publish();
        }
        // Search even if the snapshot is current: another thread may have published it since the first search.
        self.snapshot.load().search(logical)
    }

    /// Finds the chunk that contains an address, like [`ChunkMap::find`], or returns an error.
    pub fn get(&self, logical: Logical) -> Result<Arc<MappedChunk>, DeviceError> {
        self.find(logical).ok_or(DeviceError::NoChunk { logical })
    }

    /// Returns all chunks in address order.
    pub fn all(&self) -> Arc<Vec<Arc<MappedChunk>>> {
        if self.behind.load(Ordering::Acquire) {
            self.publish();
        }
        Arc::clone(&self.snapshot.load().chunks)
    }

    pub fn len(&self) -> usize {
        self.chunks.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn publish(&self) {
        let chunks = self.chunks.lock();
        if self.behind.load(Ordering::Acquire) {
            self.store_snapshot(&chunks);
        }
    }

    fn store_snapshot(&self, chunks: &BTreeMap<Logical, Arc<MappedChunk>>) {
        self.snapshot.store(Arc::new(Snapshot {
            starts: chunks.keys().copied().collect(),
            chunks: Arc::new(chunks.values().cloned().collect()),
        }));
        self.behind.store(false, Ordering::Release);
    }
}

fn overlap(chunk: &MappedChunk, other: Logical) -> DeviceError {
    DeviceError::Chunk {
        logical: chunk.logical,
        problem: ChunkProblem::Overlap { other },
    }
}

impl Snapshot {
    fn search(&self, logical: Logical) -> Option<Arc<MappedChunk>> {
        let after = self.starts.partition_point(|&start| start <= logical);
        let chunk = self.chunks.get(after.checked_sub(1)?)?;
        chunk.contains(logical).then(|| Arc::clone(chunk))
    }
}
