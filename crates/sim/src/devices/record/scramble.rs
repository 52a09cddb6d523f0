//! The garbage left by a discard.

use std::io;
use std::ops::Range;

use ubtrfs_device::{BlockDevice, MemDevice};

use crate::Rng;

const BLOCK_BYTES: u64 = 4096;
/// Size of the garbage at both ends of an unallocated range: enough to detect a reader that is off by a block.
const EDGE_BYTES: u64 = 64 << 10;

/// Fills a range with garbage derived from `event`.
///
/// Inside of the range, unallocated parts stay zeros, so that a discard of terabytes takes no memory.
pub(super) fn scramble(device: &MemDevice, event: usize, range: Range<u64>) -> io::Result<()> {
    let head = range.start..range.end.min(range.start + EDGE_BYTES);
    let tail = head.end.max(range.end.saturating_sub(EDGE_BYTES))..range.end;
    let mut parts = device.allocated_in(head.end..tail.start);
    parts.extend([head, tail]);
    let mut garbage = [0; BLOCK_BYTES as usize];
    for part in parts {
        let mut at = part.start;
        while at < part.end {
            let block = at - at % BLOCK_BYTES;
            let end = part.end.min(block + BLOCK_BYTES);
            Rng::new((event as u64) << 44 ^ block ^ 0xd15c_a2d5).fill(&mut garbage);
            let within = (at - block) as usize..(end - block) as usize;
            device.write_at(&garbage[within], at)?;
            at = end;
        }
    }
    Ok(())
}
