//! Scrubs of an open volume while other threads change it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ubtrfs_device::progress::Event;
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, RootId};
use ubtrfs_fs::{DeviceSetError, Error};
use ubtrfs_maintenance::ScrubError;
use ubtrfs_maintenance::scrub::{ScrubOptions, scrub_volume};

use crate::fixture::{Disks, FILE_BYTES, SECTOR, address_of, content, create, places};

// SCRUB-1, SCRUB-2
#[test]
fn writers_and_scrubs_do_not_disturb_each_other() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let volume = disks.open_for_writing();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2u8 {
            let (volume, ends) = (&volume, &ends);
            scope.spawn(move || {
                let top = volume.root_dir(RootId::FS_TREE).unwrap();
                let mut round = 0u32;
                while !ends.load(Ordering::Acquire) {
                    round += 1;
                    let name = format!("written {writer} {}", round % 8);
                    if round > 8 {
                        volume.unlink(top, name.as_bytes()).unwrap();
                    }
                    let file = create(volume, &name);
                    volume
                        .write(file, 0, &content(round as u8, 200_000))
                        .unwrap();
                    volume.sync().unwrap();
                }
            });
        }
        for round in 0..6 {
            let (devid, physical) = places(&volume, address_of(&volume, round * SECTOR))[0];
            disks.write(devid, &[0xee; 40], physical);
            let report = scrub_volume(&volume, &ScrubOptions::default(), &mut ()).unwrap();
            let found = report.totals();
            assert_eq!(
                (found.csum_errors, found.corrected_errors),
                (1, 1),
                "{report:?}"
            );
            assert_eq!(
                (found.verify_errors, found.super_errors),
                (0, 0),
                "{report:?}"
            );
            assert_eq!(found.uncorrectable_errors, 0);
        }
        ends.store(true, Ordering::Release);
    });
    volume.close().unwrap();
    drop(volume);
    disks.assert_sound();
}

#[test]
fn error_counts_and_superblocks_are_saved_by_a_commit() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let volume = disks.open_for_writing();
    let offset = ubtrfs_format::superblock::SUPERBLOCK_OFFSETS[1];
    disks.write(2, &[1; 100], offset + 2000);
    let (devid, physical) = places(&volume, address_of(&volume, FILE_BYTES as u64 / 2))[1];
    disks.write(devid, &[1; 100], physical);
    let report = scrub_volume(&volume, &ScrubOptions::default(), &mut ()).unwrap();
    assert_eq!(report.totals().super_errors, 1);
    assert!(report.damage.is_empty());
    assert_eq!(volume.pool().error_counts(devid.into()).unwrap()[3], 1);
    let again = scrub_volume(&volume, &ScrubOptions::default(), &mut ()).unwrap();
    assert!(again.is_clean(), "{again:?}");
    drop(volume);
    let volume = disks.open();
    assert_eq!(volume.pool().error_counts(devid.into()).unwrap()[3], 1);
}

#[test]
fn volume_that_is_open_for_reading_is_not_repaired() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let volume = disks.open();
    let refused = scrub_volume(&volume, &ScrubOptions::default(), &mut ()).unwrap_err();
    assert!(matches!(refused, ScrubError::ReadOnly));
    let options = ScrubOptions {
        read_only: true,
        ..ScrubOptions::default()
    };
    assert!(scrub_volume(&volume, &options, &mut ()).unwrap().is_clean());
}

/// A scrub keeps using its devices, so that they stay until it has ended.
#[test]
fn devices_do_not_change_during_a_scrub() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let volume = disks.open_for_writing();
    let bytes = volume.pool().devices()[0].len_bytes.unwrap();
    let mut refused = 0;
    let mut try_to_change = |_: &Event<'_>| {
        let resized = volume.resize_device(DevId(1), bytes, &mut ());
        assert!(
            matches!(resized, Err(Error::DeviceSet(DeviceSetError::InProgress))),
            "{resized:?}"
        );
        refused += 1;
        ControlFlow::Continue(())
    };
    let report = scrub_volume(&volume, &ScrubOptions::default(), &mut try_to_change).unwrap();
    assert!(report.is_clean() && refused > 0);
    volume.resize_device(DevId(1), bytes, &mut ()).unwrap();
}
