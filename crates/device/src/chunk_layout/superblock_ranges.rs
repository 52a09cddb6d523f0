//! Ranges of a chunk that contain superblock copies.
//!
//! These are never allocated, although the free-space tree lists them as free.

use std::ops::Range;

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};

use crate::{MappedChunk, STRIPE_LEN};

/// Returns the logical ranges that must not be allocated because they map to a superblock copy; ascending and
/// disjoint. With RAID5 or RAID6 the whole row is excluded, as in the kernel's `btrfs_rmap_block`. If the chunk
/// begins below the address of the first copy, everything up to that address is excluded, too.
pub fn superblock_ranges(chunk: &MappedChunk) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let (start, end) = (chunk.logical().0, chunk.end().0);
    let first_copy = SUPERBLOCK_OFFSETS[0];
    if start < first_copy {
        ranges.push(start..first_copy.min(end));
    }
    for (column, stripe) in chunk.stripes().iter().enumerate() {
        let physical = stripe.physical.0;
        for offset in SUPERBLOCK_OFFSETS {
            if offset < physical || offset - physical >= chunk.stripe_bytes() {
                continue;
            }
            // With an unaligned stripe, the copy may span two rows.
            let within = offset - physical;
            let last = within + SUPERBLOCK_SIZE as u64 - 1;
            for row in within / STRIPE_LEN..=last / STRIPE_LEN {
                let range = row_of_column(chunk, column, row);
                ranges.push(range.start.min(end)..range.end.min(end));
            }
        }
    }
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|later, range| {
        let joined = later.start <= range.end;
        if joined {
            range.end = range.end.max(later.end);
        }
        joined
    });
    ranges
}

/// Returns the logical addresses of one column in one of its rows.
fn row_of_column(chunk: &MappedChunk, column: usize, row: u64) -> Range<u64> {
    let data_stripes = chunk.data_stripes() as u64;
    let profile = chunk.profile();
    let (first_piece, pieces) = match profile {
        Profile::Raid5 | Profile::Raid6 => (row * data_stripes, data_stripes),
        Profile::Raid0 | Profile::Raid10 => {
            let group = (column / profile.copies()) as u64;
            (row * data_stripes + group, 1)
        }
        _ => (row, 1),
    };
    let from = chunk.logical().0.saturating_add(first_piece * STRIPE_LEN);
    from..from.saturating_add(pieces * STRIPE_LEN)
}
