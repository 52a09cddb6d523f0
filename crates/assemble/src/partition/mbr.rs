//! Partition tables in boot sectors, with logical partitions.

use std::io;

use ubtrfs_device::BlockDevice;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::Partition;

const SECTOR: u64 = 512;
const TABLE_AT: usize = 446;
/// The first number of a logical partition.
const FIRST_LOGICAL: u32 = 5;
/// The kernel has the same limit.
const MAX_LOGICAL: u32 = 256;

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    status: u8,
    first_chs: [u8; 3],
    kind: u8,
    last_chs: [u8; 3],
    /// In sectors, from the table for a logical partition.
    start: U32,
    sectors: U32,
}
const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.sectors.get() != 0
    }

    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    fn is_gpt(&self) -> bool {
        self.kind == 0xee
    }

    fn partition(&self, number: u32, base_sector: u64) -> Partition {
        Partition {
            number,
            label: String::new(),
            start: (base_sector + u64::from(self.start.get())) * SECTOR,
            len: u64::from(self.sectors.get()) * SECTOR,
        }
    }
}

/// Reads the table of a disk. Returns None without a table.
pub(crate) fn read(device: &dyn BlockDevice) -> io::Result<Option<Vec<Partition>>> {
    let Some(entries) = table(device, 0)? else {
        return Ok(None);
    };
    let is_sound = entries.iter().all(|entry| matches!(entry.status, 0 | 0x80));
    if !is_sound || !entries.iter().any(Entry::is_used) {
        return Ok(None);
    }
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(&entries) {
        if !entry.is_used() || entry.is_gpt() {
            continue;
        }
        if entry.is_extended() {
            logical(device, entry.start.get().into(), &mut partitions)?;
        } else {
            partitions.push(entry.partition(number, 0));
        }
    }
    Ok(Some(partitions))
}

/// Reads the chain of tables in an extended partition. Each has one partition and the place of the next table.
fn logical(
    device: &dyn BlockDevice,
    extended: u64,
    partitions: &mut Vec<Partition>,
) -> io::Result<()> {
    let mut at = extended;
    // A damaged chain may be a circle.
    for number in FIRST_LOGICAL..FIRST_LOGICAL + MAX_LOGICAL {
        let Some(entries) = table(device, at)? else {
            break;
        };
        let used = || entries.iter().filter(|entry| entry.is_used());
        if let Some(entry) = used().find(|entry| !entry.is_extended()) {
            partitions.push(entry.partition(number, at));
        }
        match used().find(|entry| entry.is_extended()) {
            Some(next) => at = extended + u64::from(next.start.get()),
            None => break,
        }
    }
    Ok(())
}

fn table(device: &dyn BlockDevice, sector: u64) -> io::Result<Option<[Entry; 4]>> {
    let offset = sector * SECTOR;
    if offset + SECTOR > device.len_bytes() {
        return Ok(None);
    }
    let mut bytes = [0; SECTOR as usize];
    device.read_at(&mut bytes, offset)?;
    let is_table = bytes[510..] == [0x55, 0xaa];
    let entries = <[Entry; 4]>::read_from_prefix(&bytes[TABLE_AT..]).ok();
    Ok(entries.map(|(entries, _)| entries).filter(|_| is_table))
}
