//! The superblocks: validity of each copy, consistency of all copies, and of their device items and system chunks.
//!
//! Not here: missing devices and totals over devices (`chunks`), totals over extents (`run`).

use ubtrfs_device::{CopyProblem, DeviceInfo, DeviceSuperblocks, SuperblockCopy};
use ubtrfs_format::superblock::{SUPERBLOCK_SIZE, Superblock, flags};
use zerocopy::IntoBytes;

use crate::fault::Fault;
use crate::issue::Place;
use crate::state::State;
use crate::volume::CheckedVolume;

/// Fields that may differ between valid copies: the checksum, the address, and the log root, which is only written to
/// copy 0.
const MAY_DIFFER: [std::ops::Range<usize>; 4] = {
    const fn field(start: usize, len: usize) -> std::ops::Range<usize> {
        start..start + len
    }
    [
        field(std::mem::offset_of!(Superblock, csum), 32),
        field(std::mem::offset_of!(Superblock, bytenr), 8),
        field(std::mem::offset_of!(Superblock, log_root), 8),
        field(std::mem::offset_of!(Superblock, log_root_level), 1),
    ]
};

/// Flags that btrfstune clears after a conversion.
const CONVERTING: u64 = flags::CHANGING_FSID
    | flags::CHANGING_FSID_V2
    | flags::CHANGING_BG_TREE
    | flags::CHANGING_DATA_CSUM
    | flags::CHANGING_META_CSUM;

pub(crate) fn check(state: &mut State<'_>, volume: &CheckedVolume) {
    state.report.has_log = volume.superblock().log_root.get() != 0;
    let converting = volume.superblock().flags.get() & CONVERTING;
    if converting != 0 {
        let flags = converting;
        state.add(Place::default(), Fault::ConversionUnfinished { flags });
    }
    for device in volume.pool().devices() {
        check_device(state, volume, &device);
    }
}

fn check_device(state: &mut State<'_>, volume: &CheckedVolume, info: &DeviceInfo) {
    let at = Place::device(info.devid);
    let Some(device) = volume.pool().device(info.devid) else {
        return;
    };
    let superblocks = DeviceSuperblocks::read(device.as_ref());
    let newest = volume.pool().superblock().generation.get();
    let Some(used) = in_use(&superblocks) else {
        return;
    };
    let generation = used.generation.get();
    if generation < newest && used.fsid == volume.pool().superblock().fsid {
        state.add(at, Fault::DeviceStale { generation, newest });
    }
    // The kernel writes no copy that reaches the end of the device according to its item.
    let end = used.dev_item.total_bytes.get();
    for copy in &superblocks.copies {
        if copy.mirror == 0 || copy.offset + (SUPERBLOCK_SIZE as u64) < end {
            check_copy(state, at, used, copy);
        }
    }
}

/// Returns the copy that the kernel uses, or another one if that is invalid.
fn in_use(superblocks: &DeviceSuperblocks) -> Option<&Superblock> {
    let first = superblocks.copies.first();
    let first = first.filter(|copy| copy.mirror == 0 && copy.problem.is_none());
    first
        .and_then(|copy| copy.block.as_deref())
        .or_else(|| superblocks.best())
}

fn check_copy(state: &mut State<'_>, at: Place, used: &Superblock, copy: &SuperblockCopy) {
    let mirror = copy.mirror;
    let at = at.at(copy.offset);
    match (&copy.problem, &copy.block) {
        (Some(CopyProblem::Invalid(reason)), _) => {
            let reason = reason.clone();
            state.add(at, Fault::SuperblockDamaged { mirror, reason });
        }
        // A remnant of an older volume, which the kernel never reads.
        (Some(CopyProblem::OtherVolume(_)), _) => {}
        (Some(CopyProblem::Read(_)), _) | (None, None) => {
            state.add(at, Fault::SuperblockUnreadable { mirror });
        }
        (None, Some(block)) => {
            let (generation, wanted) = (block.generation.get(), used.generation.get());
            if generation != wanted {
                let fault = Fault::SuperblockStale {
                    mirror,
                    generation,
                    used: wanted,
                };
                state.add(at, fault);
            } else if let Some(offset) = first_difference(used, block) {
                state.add(at, Fault::SuperblockDiffers { mirror, offset });
            }
        }
    }
}

fn first_difference(one: &Superblock, other: &Superblock) -> Option<usize> {
    let pairs = one.as_bytes().iter().zip(other.as_bytes());
    pairs
        .enumerate()
        .filter(|(_, (one, other))| one != other)
        .map(|(offset, _)| offset)
        .find(|offset| !MAY_DIFFER.iter().any(|range| range.contains(offset)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn copies_may_differ_in_place_and_log_only() {
        let one = Superblock::new_zeroed();
        let mut other = one.clone();
        other.bytenr = (64 << 20).into();
        other.csum = [1; 32];
        other.log_root = (1 << 20).into();
        other.log_root_level = 1;
        assert_eq!(first_difference(&one, &other), None);
        other.label[3] = b'x';
        let label = std::mem::offset_of!(Superblock, label);
        assert_eq!(first_difference(&one, &other), Some(label + 3));
    }
}
