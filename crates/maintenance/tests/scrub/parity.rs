//! RAID5 and RAID6: damage of data, of P and of Q.
//!
//! The kernel makes and fills the volumes, and never sees them again.

use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice, STRIPE_LEN};
use ubtrfs_format::ids::Logical;
use ubtrfs_maintenance::scrub::ScrubOptions;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, Profile, or_skip};

use crate::fixture::{Disks, FILE_BYTES, SECTOR, address_of, content, places};

fn of_kernel(profile: Profile, devices: usize) -> Disks {
    let spec = MkfsSpec::new().devices(devices).device_bytes(300 << 20);
    let spec = spec.data(profile).metadata(profile);
    let made = KernelVolume::make(&spec).unwrap();
    let mount = made.mount("").unwrap();
    std::fs::write(mount.path().join("file"), content(1, FILE_BYTES)).unwrap();
    mount.unmount().unwrap();
    let disks = made.devices().iter().map(|path| {
        let bytes = std::fs::read(path).unwrap();
        let disk = MemDevice::new(bytes.len() as u64);
        disk.write_at(&bytes, 0).unwrap();
        Arc::new(disk)
    });
    Disks(disks.collect())
}

/// Returns the places of the members of the row with a byte of the large file: data, then P, then Q.
fn row_of(disks: &Disks, offset: u64) -> Vec<(u64, u64)> {
    let volume = disks.open();
    let logical = address_of(&volume, offset);
    let chunk = volume.pool().chunk_map().get(Logical(logical)).unwrap();
    let row = chunk.row(logical - chunk.logical().0);
    (0..row.members)
        .map(|member| {
            let within = (logical - chunk.logical().0) % STRIPE_LEN;
            let (devid, physical) = chunk.row_place(row, member, within);
            (devid.0, physical.0)
        })
        .collect()
}

fn damage(disks: &Disks, place: (u64, u64)) {
    disks.write(place.0, &[0x77; SECTOR as usize], place.1);
}

fn read_only() -> ScrubOptions {
    ScrubOptions {
        read_only: true,
        ..ScrubOptions::default()
    }
}

// MIRROR-REPAIR-4
#[test]
fn parity_and_data_are_repaired_and_counted_apart() {
    if !or_skip("parity_and_data_are_repaired_and_counted_apart") {
        return;
    }
    for (profile, devices) in [(Profile::Raid5, 3), (Profile::Raid6, 4)] {
        let disks = of_kernel(profile, devices);
        let sound = disks.bytes();
        let clean = disks.repair();
        assert!(clean.is_clean(), "{clean:?}");
        assert!(sound == disks.bytes());
        // The data of one row, P of another, and Q of a third.
        let volume = disks.open();
        let bad_data = places(&volume, address_of(&volume, 5 * SECTOR))[0];
        drop(volume);
        let far = row_of(&disks, 1 << 20);
        let farther = row_of(&disks, 2 << 20);
        let data = devices - if profile == Profile::Raid6 { 2 } else { 1 };
        damage(&disks, bad_data);
        damage(&disks, far[data]);
        let mut q_errors = 0;
        if let Some(&q) = farther.get(data + 1) {
            damage(&disks, q);
            q_errors = 1;
        }
        let damaged = disks.bytes();
        let found = disks.scrub(&read_only()).totals();
        assert_eq!(
            (found.csum_errors, found.corrected_errors),
            (1, 1),
            "{profile:?}"
        );
        assert_eq!(
            (found.p_errors, found.q_errors),
            (1, q_errors),
            "{profile:?}"
        );
        assert!(damaged == disks.bytes(), "a read-only scrub writes nothing");
        let report = disks.repair();
        let found = report.totals();
        assert_eq!((found.csum_errors, found.corrected_errors), (1, 1));
        assert_eq!((found.p_errors, found.q_errors), (1, q_errors));
        assert_eq!(found.parity_corrected, 1 + q_errors);
        assert_eq!(found.uncorrectable_errors, 0);
        // The error counts need a commit, and such volumes are only read.
        assert!(report.unsaved.is_some());
        assert!(sound == disks.bytes(), "{profile:?}");
        disks.assert_sound();
    }
}

#[test]
fn two_damaged_members_of_a_row_are_repaired_by_raid6_only() {
    if !or_skip("two_damaged_members_of_a_row_are_repaired_by_raid6_only") {
        return;
    }
    for (profile, devices) in [(Profile::Raid5, 3), (Profile::Raid6, 4)] {
        let disks = of_kernel(profile, devices);
        let sound = disks.bytes();
        let row = row_of(&disks, 1 << 20);
        damage(&disks, row[0]);
        damage(&disks, row[1]);
        let damaged = disks.bytes();
        let found = disks.repaired_counts();
        assert_eq!(found.csum_errors, 2);
        if profile == Profile::Raid6 {
            assert_eq!((found.corrected_errors, found.uncorrectable_errors), (2, 0));
            assert!(sound == disks.bytes());
        } else {
            assert_eq!((found.corrected_errors, found.uncorrectable_errors), (0, 2));
            // The parity of damaged data is the means of its repair.
            assert_eq!(found.p_errors, 0);
            assert!(damaged == disks.bytes());
        }
    }
}
