//! The superblocks: each copy of each device by itself, all copies among themselves, and what they say about
//! devices and system chunks.
//!
//! Not here: devices that are missing and sums over devices (`chunks`), sums over extents (`run`).

use ubtrfs_device::{CopyProblem, DeviceInfo, DeviceSuperblocks, SuperblockCopy};
use ubtrfs_format::superblock::Superblock;
use zerocopy::IntoBytes;

use crate::fault::Fault;
use crate::issue::Place;
use crate::state::State;
use crate::volume::CheckedVolume;

/// Parts of a superblock in which sound copies may differ: their sum and place, and the log's root, which is
/// written to the first copy only.
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

pub(crate) fn check(state: &mut State<'_>, volume: &CheckedVolume) {
    state.report.has_log = volume.superblock().log_root.get() != 0;
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
    let Some(best) = superblocks.best() else {
        return;
    };
    let generation = best.generation.get();
    if generation < newest && best.fsid == volume.pool().superblock().fsid {
        state.add(at, Fault::DeviceStale { generation, newest });
    }
    for copy in &superblocks.copies {
        check_copy(state, at, best, copy);
    }
}

fn check_copy(state: &mut State<'_>, at: Place, best: &Superblock, copy: &SuperblockCopy) {
    let mirror = copy.mirror;
    let at = at.at(copy.offset);
    match (&copy.problem, &copy.block) {
        (Some(CopyProblem::Invalid(reason)), _) => {
            let reason = reason.clone();
            state.add(at, Fault::SuperblockDamaged { mirror, reason });
        }
        // A leftover of an older volume: the kernel never looks at it.
        (Some(CopyProblem::OtherVolume(_)), _) => {}
        (Some(CopyProblem::Read(_)), _) | (None, None) => {
            state.add(at, Fault::SuperblockUnreadable { mirror });
        }
        (None, Some(block)) => {
            let (generation, newest) = (block.generation.get(), best.generation.get());
            if generation < newest {
                let fault = Fault::SuperblockStale {
                    mirror,
                    generation,
                    newest,
                };
                state.add(at, fault);
            } else if let Some(offset) = first_difference(best, block) {
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
