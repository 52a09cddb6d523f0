//! Damage of each kind: counts, repairs and lists.

use std::path::Path;

use ubtrfs_device::ScrubCounts;
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::superblock::SUPERBLOCK_OFFSETS;
use ubtrfs_maintenance::scrub::{DamageKind, DamagedRange, ScrubOptions};

use crate::fixture::{Disks, SECTOR, address_of, blocks_of, places};

const REDUNDANT: [(usize, Profile); 5] = [
    (1, Profile::Dup),
    (2, Profile::Raid1),
    (3, Profile::Raid1c3),
    (4, Profile::Raid1c4),
    (4, Profile::Raid10),
];
/// Sectors of a tree block.
const NODE_SECTORS: u64 = 4;

fn read_only() -> ScrubOptions {
    ScrubOptions {
        read_only: true,
        ..ScrubOptions::default()
    }
}

#[test]
fn data_of_one_copy_is_repaired_from_another() {
    for (devices, profile) in REDUNDANT {
        let disks = Disks::filled(devices, profile, profile);
        let sound = disks.bytes();
        let volume = disks.open();
        let mirrors = places(&volume, address_of(&volume, 0)).len();
        for sector in [3, 4, 5, 100] {
            let copies = places(&volume, address_of(&volume, sector * SECTOR));
            let (devid, physical) = copies[sector as usize % mirrors];
            disks.write(devid, &[0xa5; SECTOR as usize], physical);
        }
        drop(volume);
        // SCRUB-3
        let damaged = disks.bytes();
        let found = disks.scrub(&read_only()).totals();
        assert_eq!(
            (found.csum_errors, found.corrected_errors),
            (4, 4),
            "{profile:?}"
        );
        assert!(damaged == disks.bytes(), "{profile:?}");

        let report = disks.repair();
        let found = report.totals();
        assert_eq!(
            (found.csum_errors, found.corrected_errors),
            (4, 4),
            "{profile:?}"
        );
        assert_eq!(found.uncorrectable_errors, 0);
        assert_eq!(report.unsaved, None);
        assert!(report.files.is_empty());
        let volume = disks.open();
        for sector in [3, 4, 5, 100] {
            for (devid, physical) in places(&volume, address_of(&volume, sector * SECTOR)) {
                let at = physical as usize..(physical + SECTOR) as usize;
                let now = &disks.bytes()[devid as usize - 1][at.clone()];
                assert!(now == &sound[devid as usize - 1][at], "{profile:?}");
            }
        }
        let errors: u64 = (1..=devices as u64)
            .map(|devid| volume.pool().error_counts(devid.into()).unwrap()[3])
            .sum();
        assert_eq!(errors, 4);
        drop(volume);
        disks.assert_sound();
        assert!(disks.repair().is_clean());
    }
}

#[test]
fn data_that_no_copy_has_is_listed_with_its_file() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let volume = disks.open();
    for sector in [7, 8, 20] {
        for (devid, physical) in places(&volume, address_of(&volume, sector * SECTOR)) {
            disks.write(devid, &[1; 100], physical + 50);
        }
    }
    drop(volume);
    let report = disks.repair();
    let found = report.totals();
    // Each copy is scrubbed by its own device.
    assert_eq!((found.csum_errors, found.uncorrectable_errors), (6, 6));
    assert_eq!(found.corrected_errors, 0);
    assert!(report.damage.iter().all(|of| of.kind == DamageKind::Data));
    assert!(report.are_all_files);
    assert_eq!(report.files.len(), 1);
    let file = &report.files[0];
    assert_eq!(file.subvolume_id, RootId::FS_TREE.0);
    assert_eq!(file.paths, [Path::new("file")]);
    let range = |first: u64, count: u64| DamagedRange {
        offset: first * SECTOR,
        len_bytes: count * SECTOR,
    };
    assert_eq!(file.ranges, [range(7, 2), range(20, 1)]);
}

#[test]
fn sectors_that_are_bad_on_different_copies_are_all_repaired() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let volume = disks.open();
    for sector in 0..32 {
        let copies = places(&volume, address_of(&volume, sector * SECTOR));
        let (devid, physical) = copies[sector as usize % 2];
        disks.write(devid, &[0; 8], physical + 8);
    }
    drop(volume);
    let found = disks.repaired_counts();
    assert_eq!((found.csum_errors, found.corrected_errors), (32, 32));
    disks.assert_sound();
}

fn with_damaged_blocks(disks: &Disks, damage: impl Fn(&mut [u8])) -> ScrubCounts {
    let volume = disks.open();
    let nodesize = volume.superblock().nodesize.get() as usize;
    for tree in [RootId::FS_TREE, RootId::EXTENT_TREE, RootId::CSUM_TREE] {
        for block in blocks_of(&volume, tree) {
            let (devid, physical) = places(&volume, block)[0];
            let mut bytes =
                disks.bytes()[devid as usize - 1][physical as usize..][..nodesize].to_vec();
            damage(&mut bytes);
            disks.write(devid, &bytes, physical);
        }
    }
    drop(volume);
    disks.repaired_counts()
}

#[test]
fn tree_blocks_are_repaired() {
    for (devices, profile) in REDUNDANT {
        let disks = Disks::filled(devices, profile, profile);
        let found = with_damaged_blocks(&disks, |bytes| bytes[300..400].fill(7));
        assert!(found.verify_errors >= 3 * NODE_SECTORS, "{profile:?}");
        assert_eq!(found.corrected_errors, found.verify_errors, "{profile:?}");
        disks.assert_sound();
    }
}

#[test]
fn wrong_owner_with_a_good_checksum_is_found_and_repaired() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let found = with_damaged_blocks(&disks, |bytes| {
        bytes[88..96].copy_from_slice(&RootId::UUID_TREE.0.to_le_bytes());
        CsumType::Crc32c.seal_block(bytes);
    });
    assert!(found.verify_errors >= 3 * NODE_SECTORS);
    assert_eq!(found.corrected_errors, found.verify_errors);
    disks.assert_sound();
}

#[test]
fn older_copy_of_a_tree_block_is_an_error_of_generation() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let found = with_damaged_blocks(&disks, |bytes| {
        bytes[80..88].copy_from_slice(&1u64.to_le_bytes());
        CsumType::Crc32c.seal_block(bytes);
    });
    assert_eq!(found.corrected_errors, found.verify_errors);
    let volume = disks.open();
    let counts = volume.pool().error_counts(1.into()).unwrap();
    assert!(counts[4] >= 3, "{counts:?}");
}

#[test]
fn superblock_copies_are_written_by_the_commit_at_the_end() {
    let disks = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    for devid in [1, 2] {
        disks.write(devid, &[9; 64], SUPERBLOCK_OFFSETS[1] + 1000);
    }
    let found = disks.scrub(&read_only());
    assert_eq!(found.totals().super_errors, 2);
    assert_eq!(found.damage.len(), 2);
    let report = disks.repair();
    assert_eq!(report.totals().super_errors, 2);
    assert!(report.damage.is_empty());
    assert_eq!(report.unsaved, None);
    disks.assert_sound();
    assert!(disks.repair().is_clean());
}

#[test]
fn single_copy_of_data_is_not_repaired() {
    let disks = Disks::filled(1, Profile::Single, Profile::Dup);
    let volume = disks.open();
    let (devid, physical) = places(&volume, address_of(&volume, 0))[0];
    drop(volume);
    disks.write(devid, &[3; 10], physical);
    let report = disks.repair();
    let found = report.totals();
    assert_eq!((found.csum_errors, found.uncorrectable_errors), (1, 1));
    assert_eq!(report.files.len(), 1);
}
