//! GUID partition tables.
//!
//! Source: UEFI specification 2.10, section 5.3. The backup table at the end of a disk is used if the first one is
//! damaged.

use std::io;

use ubtrfs_device::BlockDevice;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Partition;
use crate::crc32::crc32;

const SIGNATURE: [u8; 8] = *b"EFI PART";
/// More than any tool creates.
const MAX_ENTRIES: usize = 1024;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    signature: [u8; 8],
    revision: U32,
    header_size: U32,
    header_crc32: U32,
    reserved: U32,
    my_lba: U64,
    alternate_lba: U64,
    first_usable_lba: U64,
    last_usable_lba: U64,
    disk_guid: [u8; 16],
    partition_entry_lba: U64,
    number_of_entries: U32,
    entry_size: U32,
    entries_crc32: U32,
}
const HEADER_BYTES: usize = 92;
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    type_guid: [u8; 16],
    unique_guid: [u8; 16],
    starting_lba: U64,
    /// Inclusive.
    ending_lba: U64,
    attributes: U64,
    name: [U16; 36],
}
const ENTRY_BYTES: usize = 128;
const _: () = assert!(size_of::<Entry>() == ENTRY_BYTES);

/// Reads the table of a disk. Returns None if neither copy is valid.
pub(crate) fn read(device: &dyn BlockDevice) -> io::Result<Option<Vec<Partition>>> {
    for sector_bytes in [512, 4096] {
        let last = (device.len_bytes() / sector_bytes).saturating_sub(1);
        for lba in [1, last] {
            if let Some(partitions) = read_copy(device, sector_bytes, lba)? {
                return Ok(Some(partitions));
            }
        }
    }
    Ok(None)
}

fn read_copy(
    device: &dyn BlockDevice,
    sector_bytes: u64,
    lba: u64,
) -> io::Result<Option<Vec<Partition>>> {
    let Some(sector) = read_range(device, lba * sector_bytes, sector_bytes as usize)? else {
        return Ok(None);
    };
    let Ok((header, _)) = Header::read_from_prefix(&sector) else {
        return Ok(None);
    };
    let header_bytes = header.header_size.get() as usize;
    let is_plausible = header.signature == SIGNATURE && header.my_lba.get() == lba;
    if !is_plausible || !(HEADER_BYTES..=sector.len()).contains(&header_bytes) {
        return Ok(None);
    }
    let unsealed = Header {
        header_crc32: 0.into(),
        ..header.clone()
    };
    let summed = [unsealed.as_bytes(), &sector[HEADER_BYTES..header_bytes]].concat();
    if crc32(&summed) != header.header_crc32.get() {
        return Ok(None);
    }
    let (count, entry_bytes) = (
        header.number_of_entries.get() as usize,
        header.entry_size.get() as usize,
    );
    if count > MAX_ENTRIES || !(ENTRY_BYTES..=4096).contains(&entry_bytes) {
        return Ok(None);
    }
    let Some(start) = header.partition_entry_lba.get().checked_mul(sector_bytes) else {
        return Ok(None);
    };
    let Some(entries) = read_range(device, start, count * entry_bytes)? else {
        return Ok(None);
    };
    if crc32(&entries) != header.entries_crc32.get() {
        return Ok(None);
    }
    let entries = entries.chunks_exact(entry_bytes).enumerate();
    let partitions = entries.filter_map(|(index, bytes)| {
        let (entry, _) = Entry::ref_from_prefix(bytes).ok()?;
        let (first, last) = (entry.starting_lba.get(), entry.ending_lba.get());
        let sectors = last.checked_sub(first)?.checked_add(1)?;
        let is_used = entry.type_guid != [0; 16];
        let name: Vec<u16> = entry.name.iter().map(|unit| unit.get()).collect();
        let name = String::from_utf16_lossy(&name);
        is_used.then_some(Partition {
            number: index as u32 + 1,
            label: name.trim_end_matches('\0').to_owned(),
            start: first.checked_mul(sector_bytes)?,
            len: sectors.checked_mul(sector_bytes)?,
        })
    });
    Ok(Some(partitions.collect()))
}

/// Reads a range. Returns None if it exceeds the device.
fn read_range(device: &dyn BlockDevice, start: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
    let end = start.checked_add(len as u64);
    if end.is_none_or(|end| end > device.len_bytes()) {
        return Ok(None);
    }
    let mut bytes = vec![0; len];
    device.read_at(&mut bytes, start)?;
    Ok(Some(bytes))
}
