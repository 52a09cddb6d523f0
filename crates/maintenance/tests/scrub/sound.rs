//! Scrubs of volumes without damage.

use std::ops::ControlFlow;

use ubtrfs_device::progress::Event;
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_maintenance::ScrubError;
use ubtrfs_maintenance::scrub::{OfflineOptions, OfflineScrub, ScrubOptions};

use crate::fixture::Disks;

const PROFILES: [(usize, Profile, Profile); 7] = [
    (1, Profile::Single, Profile::Dup),
    (1, Profile::Dup, Profile::Dup),
    (2, Profile::Raid0, Profile::Raid1),
    (2, Profile::Raid1, Profile::Raid1),
    (3, Profile::Raid1c3, Profile::Raid1c3),
    (4, Profile::Raid10, Profile::Raid10),
    (4, Profile::Raid0, Profile::Raid1c4),
];

#[test]
fn each_copy_is_verified_once_and_nothing_is_written() {
    for (devices, data, metadata) in PROFILES {
        let disks = Disks::filled(devices, data, metadata);
        let before = disks.bytes();
        let report = disks.repair();
        assert!(report.is_clean(), "{data:?}: {report:?}");
        assert!(!report.is_cancelled);
        assert!(before == disks.bytes(), "{data:?}");
        let figures = disks.report().figures;
        let totals = report.totals();
        let copies = data.copies() as u64;
        assert_eq!(
            totals.data_bytes,
            figures.data_bytes_allocated * copies,
            "{data:?}"
        );
        // The system chunks have the profile of metadata.
        let tree_bytes = figures.tree_bytes * metadata.copies() as u64;
        assert_eq!(totals.tree_bytes, tree_bytes, "{metadata:?}");
        assert_eq!(totals.no_csum, 0);
        assert_eq!(report.devices.len(), devices);
        assert!(report.devices.iter().all(|device| device.is_finished));
    }
}

#[test]
fn cancelled_scrub_is_resumed_where_it_ended() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let whole = disks.repair().totals();
    let opened = OfflineOptions::default();
    let scrub = OfflineScrub::from_devices(disks.named(), &opened).unwrap();
    let options = ScrubOptions {
        bytes_per_second: 4 << 20,
        ..ScrubOptions::default()
    };
    let mut cancel = |event: &Event<'_>| match event {
        Event::Scrub(devices) if devices.iter().any(|of| of.counts.data_bytes > 1 << 20) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    let part = scrub.run(&options, &mut cancel).unwrap();
    assert!(part.is_cancelled);
    assert!(part.totals().data_bytes < whole.data_bytes);
    let resumed = part.devices.iter().filter(|device| !device.is_finished);
    let resumed = resumed.map(|device| (device.device_id, device.counts));
    let options = ScrubOptions {
        resumed: resumed.collect(),
        devices: Some(vec![1, 2]),
        ..ScrubOptions::default()
    };
    let rest = disks.scrub(&options);
    assert!(!rest.is_cancelled);
    assert_eq!(rest.totals(), whole);
}

#[test]
fn limit_is_kept_by_each_device() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let options = ScrubOptions {
        bytes_per_second: 2 << 20,
        ..ScrubOptions::default()
    };
    let start = std::time::Instant::now();
    let report = disks.scrub(&options);
    let device = report.devices[0].counts;
    let seconds = (device.data_bytes + device.tree_bytes) as f64 / (2 << 20) as f64;
    let elapsed = start.elapsed().as_secs_f64();
    assert!(
        seconds > 1.0 && elapsed > 0.8 * seconds,
        "{elapsed} of {seconds}"
    );
}

#[test]
fn one_device_can_be_scrubbed_alone() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let options = ScrubOptions {
        devices: Some(vec![2]),
        ..ScrubOptions::default()
    };
    let devices = disks.scrub(&options).devices;
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0].device_id, 2);
    assert!(devices[0].is_finished && devices[0].counts.data_bytes > 0);
}

#[test]
fn unknown_device_is_refused() {
    let disks = Disks::filled(1, Profile::Single, Profile::Dup);
    let scrub = OfflineScrub::from_devices(disks.named(), &OfflineOptions::default()).unwrap();
    let options = ScrubOptions {
        devices: Some(vec![7]),
        ..ScrubOptions::default()
    };
    let refused = scrub.run(&options, &mut ()).unwrap_err();
    assert!(matches!(refused, ScrubError::NoDevice(7)));
}
