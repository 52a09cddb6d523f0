//! Counts of sound volumes, compared with the kernel's scrub of the same volumes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use ubtrfs_device::{DeviceScrub, ScrubCounts};
use ubtrfs_maintenance::scrub::{OfflineOptions, OfflineScrub, ScrubOptions};
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, Profile, or_skip};

/// Returns the counts of `btrfs scrub start -B -d -R` by device.
fn counts_of_kernel(volume: &KernelVolume) -> BTreeMap<u64, ScrubCounts> {
    let mount = volume.mount("").unwrap();
    let run = Command::new("btrfs")
        .args(["scrub", "start", "-B", "-d", "-R"])
        .arg(mount.path())
        .output()
        .unwrap();
    mount.unmount().unwrap();
    assert!(run.status.success(), "{run:?}");
    let mut all = BTreeMap::new();
    let mut counts = ScrubCounts::default();
    let mut devid = 0;
    for line in String::from_utf8(run.stdout).unwrap().lines() {
        if let Some((_, rest)) = line.split_once("(id ") {
            devid = rest.split(')').next().unwrap().parse().unwrap();
            counts = ScrubCounts::default();
        }
        let Some((name, value)) = line.trim().split_once(": ") else {
            continue;
        };
        let value = value.trim().parse().unwrap_or(0);
        match name {
            "data_extents_scrubbed" => counts.data_extents = value,
            "tree_extents_scrubbed" => counts.tree_extents = value,
            "data_bytes_scrubbed" => counts.data_bytes = value,
            "tree_bytes_scrubbed" => counts.tree_bytes = value,
            "no_csum" => counts.no_csum = value,
            "last_physical" => {
                counts.last_physical = value;
                all.insert(devid, counts);
            }
            _ => {}
        }
    }
    all
}

fn counts_of_ours(devices: &[PathBuf]) -> BTreeMap<u64, ScrubCounts> {
    let scrub = OfflineScrub::open(devices, &OfflineOptions::default()).unwrap();
    let report = scrub.run(&ScrubOptions::default(), &mut ()).unwrap();
    let by_device = |device: &DeviceScrub| (device.device_id, device.counts);
    report.devices.iter().map(by_device).collect()
}

#[test]
fn counts_are_those_of_the_kernel() {
    if !or_skip("counts_are_those_of_the_kernel") {
        return;
    }
    for (data, metadata, devices) in [
        (Profile::Single, Profile::Dup, 1),
        (Profile::Raid0, Profile::Raid1, 2),
        (Profile::Raid10, Profile::Raid1c3, 4),
    ] {
        let spec = MkfsSpec::new()
            .devices(devices)
            .data(data)
            .metadata(metadata);
        let volume = KernelVolume::make(&spec).unwrap();
        let mount = volume.mount("").unwrap();
        let top = mount.path();
        std::fs::write(top.join("large"), vec![7; 9_000_000]).unwrap();
        for number in 0..30 {
            std::fs::write(top.join(format!("small {number}")), vec![number; 9000]).unwrap();
        }
        let run = Command::new("chattr").arg("+C").arg(top).status().unwrap();
        assert!(run.success());
        std::fs::write(top.join("no sums"), vec![8; 500_000]).unwrap();
        mount.unmount().unwrap();
        assert_eq!(
            counts_of_ours(volume.devices()),
            counts_of_kernel(&volume),
            "{data:?}"
        );
    }
}
