//! The copies of the superblock of one device.

use std::time::Duration;

use ubtrfs_device::{DeviceSuperblocks, ScrubCounts, SuperblockCopy, clock};

use super::device_pass::DevicePass;
use super::report::{Damage, DamageKind};

/// Number of times that copies are read again which a commit may be writing.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// A copy that is damaged, or not of the last commit.
struct BadCopy {
    offset: u64,
    message: String,
}

impl DevicePass<'_> {
    /// Counts and lists the damaged copies. They are repaired at the end of the scrub.
    pub(super) fn check_superblocks(&self) {
        let mut bad = self.bad_copies();
        // A commit writes the copies one after the other.
        let mut tries = if self.shared.is_exclusive { 0 } else { TRIES };
        while !bad.is_empty() && tries > 0 && !self.shared.is_cancelled() {
            clock::sleep(PAUSE);
            bad = self.bad_copies();
            tries -= 1;
        }
        let mut counts = ScrubCounts::default();
        for copy in bad {
            counts.super_errors += 1;
            self.shared.damage.lock().push(Damage {
                kind: DamageKind::Superblock,
                logical: 0,
                len_bytes: ubtrfs_format::superblock::SUPERBLOCK_SIZE as u64,
                device_id: self.devid.0,
                physical: copy.offset,
                message: copy.message,
            });
        }
        self.shared.advance(self.devid, &counts, 0);
    }

    fn bad_copies(&self) -> Vec<BadCopy> {
        let committed = self.shared.roots.superblock();
        let end = self.end_of_device();
        let copies = DeviceSuperblocks::read(&*self.block).copies;
        let first = copies.first().and_then(|copy| copy.block.as_deref());
        // A seed keeps the superblock of its own volume.
        let is_seed = first.is_some_and(|first| {
            copies[0].problem.is_none() && first.metadata_fsid() != committed.metadata_fsid()
        });
        let wanted = match first {
            Some(first) if is_seed => first.generation.get(),
            _ => committed.generation.get(),
        };
        let is_within = |copy: &&SuperblockCopy| copy.offset < end;
        let bad = copies.iter().filter(is_within).filter_map(|copy| {
            let message = match (&copy.problem, &copy.block) {
                (Some(problem), _) => problem.to_string(),
                (None, Some(block)) if block.generation.get() != wanted => format!(
                    "its generation is {}, that of the volume is {wanted}",
                    block.generation.get()
                ),
                _ => return None,
            };
            Some(BadCopy {
                offset: copy.offset,
                message,
            })
        });
        bad.collect()
    }

    /// Returns the end of the superblock copies that are written. A file may be longer than its volume.
    fn end_of_device(&self) -> u64 {
        let devices = self.shared.pool().devices().into_iter();
        let item = devices.filter(|device| device.devid == self.devid);
        let total = item.filter_map(|device| Some(device.item?.total_bytes.get()));
        let total = total.max().unwrap_or(u64::MAX);
        let end = self.block.len_bytes().min(total);
        end.saturating_sub(ubtrfs_format::superblock::SUPERBLOCK_SIZE as u64)
    }
}
