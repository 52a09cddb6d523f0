//! `ubtrfs inspect-internal min-dev-size`: the smallest size that a device could be shrunk to.
//!
//! The rule is from btrfs-progs and models the kernel's shrinking. Chunks beyond the new end move into holes
//! between other chunks, one at a time, and each needs room for a copy during the move.

use std::io::Write;
use std::ops::Range;

use anyhow::Context;
use serde::Serialize;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::DevExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::SUPERBLOCK_OFFSETS;
use ubtrfs_fs::Volume;
use zerocopy::FromBytes;

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::units::Units;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location};

/// Nothing is allocated below this offset.
const FIRST_BYTE: u64 = 1 << 20;
/// Moving chunks may create another system chunk, of at most this size.
const SYSTEM_CHUNK_BYTES: u64 = 32 << 20;

/// Show the size that a device could be shrunk to
#[derive(Debug, clap::Args)]
pub(crate) struct MinDevSize {
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// The device
    #[arg(long, value_name = "DEVID", default_value_t = 1)]
    id: u64,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Debug, Serialize)]
struct MinDevSizeJson {
    devid: u64,
    bytes: u64,
}

impl MinDevSize {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.devices.as_committed().open(&self.location)?;
        self.print(console, &extents_on(volume.engine(), self.id)?)
    }

    fn print(&self, console: &mut Console, extents: &[Range<u64>]) -> anyhow::Result<()> {
        let bytes = min_bytes(extents);
        if console.is_json() {
            let devid = self.id;
            let map = MinDevSizeJson { devid, bytes };
            return Ok(json::write_map(&mut console.out, "min-dev-size", &map)?);
        }
        let human = Units::default().size(bytes);
        Ok(writeln!(console.out, "{bytes} bytes ({human})")?)
    }
}

impl ByIoctls for MinDevSize {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let extents = Asked::open(&self.location)?.device_extents(self.id)?;
        self.print(console, &extents)
    }
}

/// Returns the allocated ranges of a device, in ascending order.
fn extents_on(volume: &Volume, devid: u64) -> anyhow::Result<Vec<Range<u64>>> {
    let tree = volume.tree(RootId::DEV_TREE)?;
    let mut extents = Vec::new();
    let mut cursor = tree.view.cursor().sequential();
    let mut more = cursor.seek(&Key::new(devid, KeyType::DEV_EXTENT, 0))?;
    while more
        && let Some((key, bytes)) = cursor.current()
        && (key.objectid, key.item_type) == (devid, KeyType::DEV_EXTENT)
    {
        let extent = DevExtent::ref_from_prefix(bytes).ok();
        let (extent, _) = extent.with_context(|| format!("device extent {key:?} is too short"))?;
        extents.push(key.offset..key.offset.saturating_add(extent.length.get()));
        more = cursor.advance()?;
    }
    Ok(extents)
}

fn min_bytes(extents: &[Range<u64>]) -> u64 {
    let len = |range: &Range<u64>| range.end.saturating_sub(range.start);
    let all: u64 = extents.iter().map(len).fold(0, u64::saturating_add);
    let mut min = all.saturating_add(FIRST_BYTE);
    let mut holes: Vec<Range<u64>> = extents
        .windows(2)
        .map(|pair| pair[0].end..pair[1].start)
        .filter(|hole| !hole.is_empty())
        .collect();
    let mut largest_moved = 0;
    for extent in extents.iter().rev() {
        if extent.end <= min {
            break;
        }
        let needed = len(extent);
        let Some(hole) = holes.iter_mut().find(|hole| len(hole) >= needed) else {
            min = extent.end;
            break;
        };
        let place = hole.start..hole.start.saturating_add(needed);
        // A superblock copy takes room there that the chunk may need.
        if SUPERBLOCK_OFFSETS.iter().any(|copy| place.contains(copy)) {
            min = min.saturating_add(needed);
        }
        hole.start = place.end;
        largest_moved = largest_moved.max(needed);
    }
    match largest_moved {
        0 => min,
        copy => min.saturating_add(copy).saturating_add(SYSTEM_CHUNK_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn packed_chunks_stay() {
        assert_eq!(min_bytes(&[]), MIB);
        assert_eq!(min_bytes(&[MIB..9 * MIB, 9 * MIB..17 * MIB]), 17 * MIB);
    }

    #[test]
    fn a_chunk_that_fits_into_a_hole_moves_and_needs_room_for_a_copy() {
        let extents = [MIB..9 * MIB, 17 * MIB..25 * MIB, 25 * MIB..33 * MIB];
        assert_eq!(min_bytes(&extents), (25 + 8 + 32) * MIB);
    }

    #[test]
    fn a_chunk_that_fits_nowhere_is_the_end() {
        let extents = [MIB..9 * MIB, 17 * MIB..33 * MIB];
        assert_eq!(min_bytes(&extents), 33 * MIB);
    }

    #[test]
    fn copy_of_the_superblock_in_the_hole_costs_as_much_again() {
        let extents = [MIB..60 * MIB, 70 * MIB..100 * MIB, 100 * MIB..110 * MIB];
        assert_eq!(min_bytes(&extents), (100 + 10 + 10 + 32) * MIB);
    }
}
