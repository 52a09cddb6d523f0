//! Volumes of the kernel: each group is emptied, on all kinds of volumes.

use std::process::Command;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_sim::fill::Scale;
use ubtrfs_sim::kernel::{self, KernelVolume, Profile};
use ubtrfs_sim::matrix::{self, Case};
use ubtrfs_sim::{Progress, seed};

use crate::fixture::{check_both, check_contents, groups, is_soak, open, relocate, used};

const TEST: &str = "relocation on volumes of the kernel";
const CASES: usize = 8;
const DEVICE_BYTES: u64 = 1 << 30;

/// Empties each group that the volume has now.
fn empty_all_groups(case: &Case, seed: u64) {
    let scale = if is_soak() {
        Scale::small()
    } else {
        Scale::tiny()
    };
    let filled = case.build_on(DEVICE_BYTES, &scale, seed).unwrap();
    let devices = filled.volume.devices();
    let before = open(devices);
    let all = groups(&before);
    let (data, blocks) = used(&before);
    before.close().unwrap();
    drop(before);
    for group in all {
        let volume = open(devices);
        let there = groups(&volume);
        if !there.iter().any(|other| other.start == group.start) {
            // It was empty.
            continue;
        }
        let report = relocate(&volume, group.start);
        let is_last = there
            .iter()
            .filter(|other| kind(other.flags) == kind(group.flags))
            .count()
            == 1;
        assert!(
            report.is_removed || is_last,
            "{case} {:?}: {report:?}",
            group.flags
        );
        volume.close().unwrap();
        drop(volume);
        check_both(&filled.volume);
        check_contents(&filled.volume, &filled.manifest);
    }
    let after = open(devices);
    let (data_after, blocks_after) = used(&after);
    // Nothing is unshared. With a group its old free-space cache goes away, which is data.
    assert!(data_after <= data, "{case}: {data_after} of {data}");
    assert!(
        blocks_after <= blocks + blocks / 8 + 24,
        "{case}: {blocks_after} of {blocks}"
    );
}

fn kind(flags: BlockGroupFlags) -> BlockGroupFlags {
    flags & (BlockGroupFlags::DATA | BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM)
}

#[test]
fn groups_of_kernel_volumes_are_emptied() {
    if !kernel::or_skip(TEST) {
        return;
    }
    let all = matrix::writable();
    let count = if is_soak() { 200 } else { CASES };
    let wanted = std::env::var("UBTRFS_CASE").ok();
    let cases = matrix::sample(&all, count, seed(TEST));
    let progress = Progress::new(TEST, cases.len());
    for case in &cases {
        if wanted
            .as_ref()
            .is_none_or(|wanted| *wanted == case.to_string())
        {
            eprintln!("{case}");
            empty_all_groups(case, seed(TEST));
        }
        progress.step(|| case.to_string());
    }
}

/// Lets the kernel balance everything.
fn balance(volume: &KernelVolume) {
    let mount = volume.mount("").unwrap();
    let path = mount.path().to_str().unwrap();
    let args = ["balance", "start", "--full-balance", path];
    let output = Command::new("btrfs").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    mount.unmount().unwrap();
}

/// The kernel marks every block that it moves. Both understand the marks of the other.
#[test]
fn kernel_and_engine_relocate_in_turns() {
    if !kernel::or_skip(TEST) {
        return;
    }
    let case = Case::of_profile(Profile::Single);
    let scale = if is_soak() {
        Scale::small()
    } else {
        Scale::tiny()
    };
    let filled = case.build_on(DEVICE_BYTES, &scale, seed(TEST)).unwrap();
    for _ in 0..2 {
        balance(&filled.volume);
        check_both(&filled.volume);
        let volume = open(filled.volume.devices());
        for group in groups(&volume) {
            relocate(&volume, group.start);
        }
        volume.close().unwrap();
        drop(volume);
        check_both(&filled.volume);
    }
    check_contents(&filled.volume, &filled.manifest);
}
