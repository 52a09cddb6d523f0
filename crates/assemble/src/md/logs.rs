//! Logs of arrays with parity: the journal of raid5-cache, and the partial parity log of each member.
//!
//! Neither is replayed here. A log that is known to be empty has nothing that the members lack. Sources:
//! `r5l_load_log`, `r5l_recovery_log`, `ppl_load_distributed` and the structures of Linux.

use std::io;
use std::mem::size_of;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::csum::CsumType;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock::{SECTOR, Superblock};

const BLOCK_BYTES: usize = 4096;
const JOURNAL_MAGIC: u32 = 0x6433_c509;
const JOURNAL_VERSION: u8 = 1;

/// The head of a block in a journal. Its payloads follow.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MetaBlock {
    magic: U32,
    checksum: U32,
    version: u8,
    zero1: u8,
    zero2: U16,
    /// Bytes of the head and of the descriptions of payloads.
    meta_size: U32,
    seq: U64,
    /// The sector of the block in the journal.
    position: U64,
}
const _: () = assert!(size_of::<MetaBlock>() == 32);

/// The head of a partial parity log.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PplHeader {
    reserved: [u8; 512],
    signature: U32,
    zero: U32,
    generation: U64,
    entries_count: U32,
    checksum: U32,
    entries: [u8; 3560],
}
const _: () = assert!(size_of::<PplHeader>() == BLOCK_BYTES);

/// Returns whether the journal on a device has no entries. The oldest block must be valid and without payloads, and no
/// block may follow it.
pub(crate) fn is_journal_empty(
    device: &dyn BlockDevice,
    superblock: &Superblock,
) -> io::Result<bool> {
    let header = &superblock.header;
    let uuid = &header.set_uuid;
    let tail = header.recovery_offset.get();
    let block_sectors = BLOCK_BYTES as u64 / SECTOR;
    let sectors = header.data_size.get() / block_sectors * block_sectors;
    if tail >= sectors || !tail.is_multiple_of(block_sectors) {
        return Ok(false);
    }
    let start = header.data_offset.get();
    let Some(first) = MetaBlock::read(device, start, tail, uuid)? else {
        return Ok(false);
    };
    let next = (tail + block_sectors) % sectors;
    let follows = |second: MetaBlock| second.seq.get() == first.seq.get().wrapping_add(1);
    let has_next = MetaBlock::read(device, start, next, uuid)?.is_some_and(follows);
    let is_bare = first.meta_size.get() as usize == size_of::<MetaBlock>();
    Ok(is_bare && !has_next)
}

impl MetaBlock {
    /// Reads the block at a sector of a journal. Returns None if it is not valid.
    fn read(
        device: &dyn BlockDevice,
        start: u64,
        position: u64,
        uuid: &[u8; 16],
    ) -> io::Result<Option<MetaBlock>> {
        let Some(block) = read_block(device, start + position)? else {
            return Ok(None);
        };
        let Ok((head, _)) = MetaBlock::read_from_prefix(&block) else {
            return Ok(None);
        };
        let mut zeroed = block;
        zeroed[4..8].fill(0);
        // The sum begins with the UUID of the array, and is not inverted at its end.
        let found = !crc32c(&[&uuid[..], &zeroed].concat());
        let is_valid = head.magic.get() == JOURNAL_MAGIC
            && head.version == JOURNAL_VERSION
            && head.position.get() == position
            && head.checksum.get() == found;
        Ok(is_valid.then_some(head))
    }
}

/// Returns whether the partial parity log of a member has no entries. It is emptied whenever an array is started, and
/// the first write after that replaces its first block.
pub(crate) fn is_ppl_empty(device: &dyn BlockDevice, superblock: &Superblock) -> io::Result<bool> {
    let header = &superblock.header;
    // The lower half of the field is a signed offset from the superblock.
    let offset = header.bitmap_offset.get() as u16;
    let sector = header.super_offset.get();
    let Some(sector) = sector.checked_add_signed(offset.cast_signed().into()) else {
        return Ok(false);
    };
    let Some(block) = read_block(device, sector)? else {
        return Ok(false);
    };
    let Ok(mut head) = PplHeader::read_from_bytes(&block) else {
        return Ok(false);
    };
    let stored = head.checksum.get();
    head.checksum = 0.into();
    Ok(stored == crc32c(head.as_bytes())
        && head.signature.get() == crc32c(&header.set_uuid)
        && head.entries_count.get() == 0)
}

/// Reads a block. Returns None if it is not on the device.
fn read_block(device: &dyn BlockDevice, sector: u64) -> io::Result<Option<Vec<u8>>> {
    let end = sector
        .checked_mul(SECTOR)
        .and_then(|offset| offset.checked_add(BLOCK_BYTES as u64));
    let Some(end) = end.filter(|&end| end <= device.len_bytes()) else {
        return Ok(None);
    };
    let mut block = vec![0; BLOCK_BYTES];
    device.read_at(&mut block, end - BLOCK_BYTES as u64)?;
    Ok(Some(block))
}

fn crc32c(bytes: &[u8]) -> u32 {
    let csum = CsumType::Crc32c.compute(bytes);
    let [a, b, c, d, ..] = *csum.as_bytes();
    u32::from_le_bytes([a, b, c, d])
}
