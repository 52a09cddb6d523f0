//! The kernel mounts new volumes, fills, snapshots and scrubs them, and leaves them clean.

use std::fs;
use std::path::Path;
use std::process::Command;

use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::csum::CsumType;
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{self, KernelMount};

use crate::cases::{self, Case, GIB, MIB};
use crate::progs::{assert_clean, assert_clean_but_for_data};

fn btrfs(args: &[&str], paths: &[&Path]) -> String {
    let output = Command::new("btrfs")
        .args(args)
        .args(paths)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}{complaint}");
    said
}

/// Returns bytes that do not compress or repeat.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = ubtrfs_sim::Rng::new(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// Mounts, writes `mib` of data and many small files, snapshots, scrubs, and checks again after a remount.
fn assert_kernel_uses(case: &Case, mib: usize) {
    let words = &case.words;
    let scratch = Scratch::new().unwrap();
    let devices = case.on_files(&scratch);
    let content = noise(mib << 20, 42);
    {
        let mount =
            KernelMount::new(&devices, "").unwrap_or_else(|error| panic!("{words}: {error}"));
        let top = mount.path();
        fs::write(top.join("large"), &content).unwrap_or_else(|error| panic!("{words}: {error}"));
        for number in 0..200 {
            fs::write(top.join(format!("small{number}")), noise(3000, number)).unwrap();
        }
        let snapshot = top.join("snapshot");
        btrfs(&["subvolume", "snapshot"], &[top, &snapshot]);
        mount.sync().unwrap();
        let report = btrfs(&["scrub", "start", "-B"], &[top]);
        assert!(report.contains("no errors found"), "{words}: {report}");
        mount.unmount().unwrap();
    }
    if matches!(case.options.data, Some(Profile::Raid5 | Profile::Raid6)) {
        assert_clean_but_for_data(words, &devices);
    } else {
        assert_clean(words, &devices);
    }
    let mount = KernelMount::new(&devices, "").unwrap();
    let found = fs::read(mount.path().join("snapshot/large")).unwrap();
    assert!(found == content, "{words}");
}

#[test]
fn kernel_uses_volumes_of_every_feature() {
    if !kernel::or_skip("kernel_uses_volumes_of_every_feature") {
        return;
    }
    for case in [
        Case::new(1, GIB),
        Case::new(1, GIB).csum(CsumType::XxHash64).nodesize(4096),
        Case::new(1, GIB)
            .csum(CsumType::Sha256)
            .nodesize(65536)
            .features("^bgt"),
        Case::new(1, GIB).csum(CsumType::Blake2b).features("quota"),
        Case::new(1, GIB).features("^fst,^no-holes,^skinny-metadata,^extref"),
        Case::new(1, GIB).mixed(),
    ] {
        assert_kernel_uses(&case, 100);
    }
}

#[test]
fn kernel_uses_volumes_of_every_profile() {
    if !kernel::or_skip("kernel_uses_volumes_of_every_profile") {
        return;
    }
    for profile in Profile::ALL {
        let devices = profile.min_devices();
        let case = Case::new(devices, GIB).profiles(profile, profile);
        assert_kernel_uses(&case, 40);
        if cases::soak() {
            let case = Case::new(devices + 2, 3 * GIB).profiles(profile, profile);
            assert_kernel_uses(&case.nodesize(65536), 300);
        }
    }
}

#[test]
fn kernel_uses_volumes_of_the_smallest_and_of_great_size() {
    if !kernel::or_skip("kernel_uses_volumes_of_the_smallest_and_of_great_size") {
        return;
    }
    for (case, mib) in [
        (Case::new(1, 16 * MIB).mixed(), 2),
        (Case::new(1, 109 * MIB), 12),
        (Case::new(1, 100 * GIB), 50),
        (Case::new(1, 4 << 40), 50),
        (
            Case::new(3, 300 * GIB).profiles(Profile::Raid5, Profile::Raid1c3),
            50,
        ),
    ] {
        assert_kernel_uses(&case, mib);
    }
}
