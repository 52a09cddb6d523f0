//! Consistency of chunks, device extents and device items.
//!
//! All of them are in memory: a volume of 4 TiB has about four thousand.
//!
//! Not here: block groups (`block_groups`).

use std::collections::BTreeMap;

use ubtrfs_device::{ChunkProblem, DeviceError, MappedChunk};
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{DevId, Logical, RootId};
use ubtrfs_format::item::{Chunk, DevExtent, DevItem};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::FromBytes;

use crate::block_groups;
use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::item_reader::ItemReader;
use crate::roots::Roots;
use crate::space::Spaces;
use crate::state::State;
use crate::volume::CheckedVolume;
use crate::walk::walk;

const DEV_TREE: RootId = RootId::DEV_TREE;

/// A device extent by devid and physical start.
type DevExtents = BTreeMap<(u64, u64), ExtentOnDevice>;

#[derive(Clone, Copy, Debug)]
struct ExtentOnDevice {
    chunk: u64,
    length: u64,
    /// Whether a stripe refers to it.
    has_stripe: bool,
}

/// The contents of the chunk tree.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    devices: BTreeMap<u64, DevItem>,
    chunks: BTreeMap<u64, MappedChunk>,
}

impl Chunks {
    /// Reads the chunk tree and adds its items to the pool.
    pub(crate) fn read(
        state: &mut State<'_>,
        volume: &CheckedVolume,
    ) -> Result<Chunks, CheckError> {
        let mut chunks = Chunks::default();
        let mut reader = ChunkReader {
            state,
            volume,
            chunks: &mut chunks,
        };
        walk(volume, &[volume.chunk_root()], &mut reader)?;
        Ok(chunks)
    }

    /// Compares the chunk, device and block group trees.
    pub(crate) fn check(
        &self,
        state: &mut State<'_>,
        volume: &CheckedVolume,
        roots: &Roots,
    ) -> Result<Spaces, CheckError> {
        let mut extents = read_dev_extents(state, volume, roots)?;
        let lost = state.has_lost(DEV_TREE) || roots.find(DEV_TREE).is_none();
        self.check_system_chunks(state, volume);
        self.check_stripes(state, &mut extents, lost);
        self.check_dev_extents(state, &extents);
        self.check_bytes_used(state, &extents, lost);
        self.check_devices(state, volume);
        let mut spaces = Spaces::default();
        for chunk in self.chunks.values() {
            spaces.push(chunk.logical().0, chunk.len_bytes(), chunk.flags());
        }
        block_groups::check(state, volume, roots, &mut spaces)?;
        Ok(spaces)
    }

    fn check_system_chunks(&self, state: &mut State<'_>, volume: &CheckedVolume) {
        use ubtrfs_format::block_group_flags::BlockGroupFlags;
        let lost = state.has_lost(RootId::CHUNK_TREE);
        let mixed = volume
            .superblock()
            .incompat()
            .contains(Incompat::MIXED_GROUPS);
        let sectorsize = volume.sectorsize();
        let mut listed = Vec::new();
        for entry in volume.superblock().system_chunks().flatten() {
            listed.push(entry.logical.0);
            let same =
                MappedChunk::check(entry.logical, entry.chunk, entry.stripes, sectorsize, mixed)
                    .is_ok_and(|chunk| self.chunks.get(&entry.logical.0) == Some(&chunk));
            if !same {
                let at = Place::bytenr(entry.logical.0);
                state.add_unless(lost, at, Fault::SysChunkDiffers {});
            }
        }
        for chunk in self.chunks.values() {
            let start = chunk.logical().0;
            if chunk.flags().contains(BlockGroupFlags::SYSTEM) && !listed.contains(&start) {
                state.add(Place::bytenr(start), Fault::SysChunkMissing {});
            }
        }
    }

    /// Checks the stripes of all chunks. With `extents_lost`, some device extents may be unknown.
    fn check_stripes(&self, state: &mut State<'_>, extents: &mut DevExtents, extents_lost: bool) {
        for (&start, chunk) in &self.chunks {
            let wanted = chunk.stripe_bytes();
            for stripe in chunk.stripes() {
                let (devid, physical) = (stripe.devid, stripe.physical.0);
                let at = Place::device(devid).at(start);
                match self.devices.get(&devid.0) {
                    None => {
                        let lost = state.has_lost(RootId::CHUNK_TREE);
                        state.add_unless(lost, at, Fault::DeviceUnknown { chunk: start });
                    }
                    Some(item) if item.uuid != stripe.dev_uuid => {
                        let fault = Fault::StripeUuid {
                            chunk: start,
                            stripe: stripe.dev_uuid,
                            device: item.uuid,
                        };
                        state.add(at, fault);
                    }
                    Some(_) => {}
                }
                match extents.get_mut(&(devid.0, physical)) {
                    Some(extent) if extent.chunk == start => {
                        extent.has_stripe = true;
                        if extent.length != wanted {
                            let fault = Fault::DevExtentLength {
                                chunk: start,
                                physical,
                                length: extent.length,
                                wanted,
                            };
                            state.add(at, fault);
                        }
                    }
                    _ => {
                        let fault = Fault::StripeWithoutDevExtent {
                            chunk: start,
                            physical,
                        };
                        state.add_unless(extents_lost, at, fault);
                    }
                }
            }
        }
    }

    fn check_dev_extents(&self, state: &mut State<'_>, extents: &DevExtents) {
        let lost = state.has_lost(RootId::CHUNK_TREE);
        let mut before: Option<(u64, u64)> = None;
        for (&(devid, physical), extent) in extents {
            let at = Place::device(DevId(devid)).at(extent.chunk);
            let chunk = extent.chunk;
            if !extent.has_stripe {
                let fault = Fault::DevExtentWithoutChunk { chunk, physical };
                state.add_unless(lost, at, fault);
            }
            if let Some((_, before_end)) =
                before.filter(|(of, end)| *of == devid && *end > physical)
            {
                let fault = Fault::DevExtentOverlap {
                    physical,
                    before_end,
                };
                state.add(at, fault);
            }
            let end = physical.saturating_add(extent.length);
            before = Some((devid, end));
            match self.devices.get(&devid) {
                Some(item) if end > item.total_bytes.get() => {
                    let fault = Fault::DevExtentBeyondDevice {
                        physical,
                        length: extent.length,
                        total_bytes: item.total_bytes.get(),
                    };
                    state.add(at, fault);
                }
                // Otherwise the check of the stripe has reported it.
                None if !extent.has_stripe => {
                    state.add_unless(lost, at, Fault::DeviceUnknown { chunk });
                }
                _ => {}
            }
        }
    }

    fn check_bytes_used(&self, state: &mut State<'_>, extents: &DevExtents, lost: bool) {
        for (&devid, item) in &self.devices {
            let at = Place::device(DevId(devid));
            let of_device = extents.range((devid, 0)..=(devid, u64::MAX));
            let found = of_device.fold(0u64, |sum, (_, e)| sum.saturating_add(e.length));
            let recorded = item.bytes_used.get();
            if found != recorded {
                let item = recorded;
                state.add_unless(lost, at, Fault::DeviceBytesUsed { item, found });
            }
        }
    }

    fn check_devices(&self, state: &mut State<'_>, volume: &CheckedVolume) {
        for info in volume.pool().devices() {
            if info.is_missing() {
                let fault = Fault::DeviceMissing {
                    uuid: info.uuid,
                    is_allowed: state.options.degraded,
                };
                state.add(Place::device(info.devid), fault);
            }
        }
        if state.has_lost(RootId::CHUNK_TREE) || !volume.is_current() {
            return;
        }
        self.check_sums(state, volume);
        for info in volume.pool().devices() {
            let (Some(len_bytes), Some(item)) = (info.len_bytes, self.devices.get(&info.devid.0))
            else {
                continue;
            };
            let total_bytes = item.total_bytes.get();
            if !total_bytes.is_multiple_of(u64::from(volume.sectorsize())) {
                let at = Place::device(info.devid);
                state.add(at, Fault::DeviceSizeUnaligned { total_bytes });
            }
            if len_bytes < total_bytes && !volume.is_dump() {
                let fault = Fault::DeviceTruncated {
                    len_bytes,
                    total_bytes,
                };
                state.add(Place::device(info.devid), fault);
            }
            self.compare_own_item(state, volume, info.devid, item);
        }
    }

    fn check_sums(&self, state: &mut State<'_>, volume: &CheckedVolume) {
        let superblock = volume.superblock();
        let (said, found) = (superblock.num_devices.get(), self.devices.len() as u64);
        if said != found {
            let fault = Fault::NumDevices {
                superblock: said,
                found,
            };
            state.add(Place::default(), fault);
        }
        let said = superblock.total_bytes.get();
        let found = self
            .devices
            .values()
            .fold(0u64, |sum, item| sum.saturating_add(item.total_bytes.get()));
        if said != found {
            let fault = Fault::TotalBytes {
                superblock: said,
                found,
            };
            state.add(Place::default(), fault);
        }
    }

    /// Compares the device item with the copy in the device's own superblock.
    fn compare_own_item(
        &self,
        state: &mut State<'_>,
        volume: &CheckedVolume,
        devid: DevId,
        item: &DevItem,
    ) {
        let Some(device) = volume.pool().device(devid) else {
            return;
        };
        let superblocks = ubtrfs_device::DeviceSuperblocks::read(device.as_ref());
        let Some(best) = superblocks.best() else {
            return;
        };
        let device = *best.metadata_fsid();
        if item.fsid != device {
            let item = item.fsid;
            state.add(Place::device(devid), Fault::DeviceFsid { item, device });
        }
        // The superblock of a stale device or of a seed is from another time.
        if best.generation != volume.superblock().generation
            || best.fsid != volume.superblock().fsid
        {
            return;
        }
        let own = &best.dev_item;
        for (field, superblock, item) in [
            ("devid", own.devid.get(), item.devid.get()),
            ("total_bytes", own.total_bytes.get(), item.total_bytes.get()),
            ("bytes_used", own.bytes_used.get(), item.bytes_used.get()),
        ] {
            if superblock != item {
                let fault = Fault::DeviceItemDiffers {
                    field,
                    superblock,
                    item,
                };
                state.add(Place::device(devid), fault);
            }
        }
    }
}

struct ChunkReader<'s, 'a> {
    state: &'s mut State<'a>,
    volume: &'s CheckedVolume,
    chunks: &'s mut Chunks,
}

impl<'a> ItemReader<'a> for ChunkReader<'_, 'a> {
    fn state(&mut self) -> &mut State<'a> {
        self.state
    }

    fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        match key.item_type {
            KeyType::DEV_ITEM => self.device(bytes),
            KeyType::CHUNK_ITEM => self.chunk(key, bytes),
            _ => {}
        }
        Ok(())
    }
}

impl ChunkReader<'_, '_> {
    fn device(&mut self, bytes: &[u8]) {
        if let Ok((item, _)) = DevItem::ref_from_prefix(bytes) {
            self.chunks.devices.insert(item.devid.get(), *item);
            // An error would only repeat findings that the check reports itself.
            let _ = self.volume.pool().add_dev_item(item);
        }
    }

    fn chunk(&mut self, key: Key, bytes: &[u8]) {
        let Some((chunk, stripes, _)) = Chunk::split(bytes) else {
            return;
        };
        let at = Place::item(RootId::CHUNK_TREE, key).at(key.offset);
        let logical = Logical(key.offset);
        let superblock = self.volume.superblock();
        let mixed = superblock.incompat().contains(Incompat::MIXED_GROUPS);
        let sectorsize = self.volume.sectorsize();
        let mapped = match MappedChunk::check(logical, chunk, stripes, sectorsize, mixed) {
            Ok(mapped) => mapped,
            Err(problem) => {
                self.state.add(at, Fault::ChunkInvalid { problem });
                return;
            }
        };
        if let Some((_, before)) = self.chunks.chunks.range(..key.offset).next_back()
            && before.end() > logical
        {
            let other = before.logical().0;
            self.state.add(at, Fault::ChunkOverlap { other });
            return;
        }
        if let Err(DeviceError::Chunk {
            problem: ChunkProblem::Overlap { other },
            ..
        }) = self.volume.pool().add_chunk(logical, chunk, stripes)
        {
            // The mapping of a system chunk in the superblock may differ. A conflict with the chunk at the same
            // address is reported elsewhere.
            if other != logical {
                let other = other.0;
                self.state.add(at, Fault::ChunkOverlap { other });
            }
        }
        self.chunks.chunks.insert(key.offset, mapped);
    }
}

fn read_dev_extents(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    roots: &Roots,
) -> Result<DevExtents, CheckError> {
    struct Reader<'s, 'a> {
        state: &'s mut State<'a>,
        extents: DevExtents,
    }
    impl<'a> ItemReader<'a> for Reader<'_, 'a> {
        fn state(&mut self) -> &mut State<'a> {
            self.state
        }
        fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
            if key.item_type == KeyType::DEV_EXTENT
                && let Ok(extent) = DevExtent::ref_from_bytes(bytes)
            {
                let found = ExtentOnDevice {
                    chunk: extent.chunk_offset.get(),
                    length: extent.length.get(),
                    has_stripe: false,
                };
                self.extents.insert((key.objectid, key.offset), found);
            }
            Ok(())
        }
    }
    let mut reader = Reader {
        state,
        extents: DevExtents::new(),
    };
    if let Some(root) = roots.tree_root(RootId::DEV_TREE) {
        walk(volume, &[root], &mut reader)?;
    }
    Ok(reader.extents)
}
