//! Seeded damage to devices: to a whole device, or to one mirror.
//!
//! Physical ranges come from `kernel::chunks`, which uses btrfs-progs, or from the caller.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::error::At;
use crate::kernel::Chunk;
use crate::zeros::is_zero;
use crate::{Result, Rng};

const SECTOR: u64 = 4096;

/// Physical ranges by devid.
pub type Ranges = BTreeMap<u64, Vec<Range<u64>>>;

/// Overwrites the whole device with zeros, including superblocks; its size does not change.
pub fn wipe(device: &Path) -> Result<()> {
    let file = File::options()
        .write(true)
        .open(device)
        .at("open", device)?;
    let len = file.metadata().at("stat", device)?.len();
    file.set_len(0).at("truncate", device)?;
    file.set_len(len).at("truncate", device)
}

/// Returns the ranges of copy `mirror`, from 0, of every chunk with redundancy. For DUP and RAID1* it is stripe
/// `mirror`, for RAID10 this stripe of every group. For RAID5 and RAID6 it is everything on devid `mirror` + 1.
/// Chunks without redundancy are not included.
pub fn mirror_ranges(chunks: &[Chunk], mirror: usize) -> Ranges {
    let mut ranges = Ranges::new();
    for chunk in chunks {
        let len = chunk.stripe_bytes();
        let group = usize::from(chunk.sub_stripes.max(1));
        for (number, stripe) in chunk.stripes.iter().enumerate() {
            let hit = if chunk.has_flag("RAID5") || chunk.has_flag("RAID6") {
                stripe.devid == mirror as u64 + 1
            } else if chunk.has_flag("RAID10") {
                number % group == mirror
            } else if chunk.has_flag("DUP") || chunk.flags.contains("RAID1") {
                number == mirror
            } else {
                false
            };
            if hit {
                let range = stripe.physical..stripe.physical + len;
                ranges.entry(stripe.devid).or_default().push(range);
            }
        }
    }
    ranges
}

/// Overwrites about one in `one_in` of the nonzero sectors in `ranges` with noise. Returns their number. Sectors of
/// zeros are skipped, because most of them are free space.
pub fn corrupt(device: &Path, ranges: &[Range<u64>], one_in: u64, rng: &mut Rng) -> Result<usize> {
    let file = File::options()
        .read(true)
        .write(true)
        .open(device)
        .at("open", device)?;
    let mut sector = vec![0; SECTOR as usize];
    let mut hit = 0;
    for range in ranges {
        let mut at = range.start.next_multiple_of(SECTOR);
        while at + SECTOR <= range.end {
            at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(data) => data - data % SECTOR,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error).at("seek", device),
            };
            if at + SECTOR > range.end {
                break;
            }
            file.read_exact_at(&mut sector, at).at("read", device)?;
            if !is_zero(&sector) && rng.one_in(one_in) {
                // A few bytes or the whole sector: both fail the checksum.
                let len = if rng.one_in(2) { 16 } else { sector.len() };
                rng.fill(&mut sector[..len]);
                file.write_all_at(&sector, at).at("write", device)?;
                hit += 1;
            }
            at += SECTOR;
        }
    }
    Ok(hit)
}
