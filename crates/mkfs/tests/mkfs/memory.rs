//! New volumes as our own reader finds them, also after interrupted writes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicUsize;

use ubtrfs_device::{
    BlockDevice, DeviceSuperblocks, MemDevice, Signature, find_signature, find_signatures,
};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::check::{BlockContext, Expect, check_block};
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_OFFSETS};
use ubtrfs_fs::{FileKind, OpenOptions};
use ubtrfs_mkfs::Plan;
use ubtrfs_sim::Rng;

use crate::cases::{self, Case, GIB, MIB, identity, open};
use crate::failing::Failing;

/// Opens the volume and reads everything in it.
fn assert_reads_back(case: &Case) {
    let (plan, devices) = case.in_memory();
    let volume = open(&devices, &OpenOptions::new());
    let words = &case.words;
    let superblock = volume.superblock();
    assert_eq!(superblock.label(), b"ubtrfs", "{words}");

    let context = BlockContext::new(&superblock);
    let pool = volume.pool();
    let mut last: BTreeMap<RootId, Logical> = BTreeMap::new();
    for block in plan.blocks() {
        // PLACEMENT-1
        let before = last.insert(block.owner, block.logical);
        assert!(
            before.is_none_or(|before| before < block.logical),
            "{words}"
        );
        check_block(&block.bytes, &context, &Expect::at(block.logical))
            .unwrap_or_else(|error| panic!("{words}: {error}"));
        for mirror in 1..=pool.mirrors(block.logical).unwrap() {
            let mut bytes = vec![0; block.bytes.len()];
            pool.read_mirror(block.logical, &mut bytes, mirror).unwrap();
            assert!(
                bytes == block.bytes,
                "{words}: mirror {mirror} of {}",
                block.logical
            );
        }
    }

    let root = volume.default_subvolume().unwrap();
    assert_eq!(root, RootId::FS_TREE);
    let dir = volume.root_dir(root).unwrap();
    let attr = volume.attr(dir).unwrap();
    assert_eq!(
        (attr.mode, attr.nlink, attr.size),
        (0o040_755, 1, 0),
        "{words}"
    );
    let mut entries = 0;
    volume
        .readdir(dir, 0, &mut |_| {
            entries += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(entries, 0);
    assert_eq!(FileKind::from_mode(attr.mode), Some(FileKind::Directory));

    let mut used = 0;
    let mut groups = 0;
    volume
        .for_each_block_group(&mut |group| {
            used += group.used;
            groups += 1;
        })
        .unwrap();
    assert_eq!(groups, plan.layout().chunks.len(), "{words}");
    assert_eq!(used, superblock.bytes_used.get(), "{words}");
    assert_eq!(pool.read_error_count(), 0);
}

#[test]
fn every_profile_reads_back_from_every_mirror() {
    cases::profiles().iter().for_each(assert_reads_back);
}

#[test]
fn every_feature_node_size_and_checksum_reads_back() {
    cases::features().iter().for_each(assert_reads_back);
}

#[test]
fn every_size_reads_back() {
    cases::sizes().iter().for_each(assert_reads_back);
}

#[test]
fn many_devices_make_deep_trees_that_read_back() {
    for case in [
        Case::new(200, GIB).profiles(Profile::Raid0, Profile::Raid1),
        Case::new(300, GIB)
            .profiles(Profile::Raid6, Profile::Raid1c4)
            .nodesize(65536)
            .features("^bgt,^skinny-metadata"),
        Case::new(100, GIB)
            .profiles(Profile::Raid10, Profile::Raid10)
            .nodesize(4096)
            .features("^skinny-metadata"),
    ] {
        assert_reads_back(&case);
    }
}

#[test]
fn volume_survives_the_loss_of_as_many_devices_as_its_profile_allows() {
    for profile in Profile::ALL {
        let case = Case::new(5, GIB).profiles(profile, profile);
        let (_, mut devices) = case.in_memory();
        for _ in 0..profile.tolerated_failures() {
            devices.remove(0);
        }
        let volume = open(&devices, &OpenOptions::new().degraded(true));
        let root = volume.default_subvolume().unwrap();
        volume.root_dir(root).unwrap();
    }
}

#[test]
fn same_inputs_give_the_same_bytes() {
    let case = Case::new(3, GIB).profiles(Profile::Raid5, Profile::Raid1c3);
    let identity = identity(3);
    let writes = || {
        let plan = Plan::new(&case.options, &identity, &case.device_bytes).unwrap();
        let mut writes = plan.block_writes();
        writes.extend(plan.superblock_writes());
        writes
    };
    assert!(writes() == writes());
}

fn pick(rng: &mut Rng, bound: usize) -> usize {
    rng.below(bound as u64) as usize
}

#[test]
fn any_options_give_a_volume_that_reads_back_or_an_error() {
    let seed = ubtrfs_sim::seed("any_options_give_a_volume_that_reads_back_or_an_error");
    let mut rng = Rng::new(seed);
    let mut volumes = 0;
    for _ in 0..400 {
        let features = ["", "^bgt", "^fst", "quota", "squota,^skinny-metadata"];
        let mut case = Case::new(1 + pick(&mut rng, 6), 0)
            .profiles(
                Profile::ALL[pick(&mut rng, 9)],
                Profile::ALL[pick(&mut rng, 9)],
            )
            .csum(CsumType::ALL[pick(&mut rng, 4)])
            .features(features[pick(&mut rng, 5)]);
        case.options.nodesize = Some(1 << (10 + pick(&mut rng, 8)));
        case.options.sectorsize = 1 << (11 + pick(&mut rng, 3));
        if pick(&mut rng, 4) == 0 {
            case = case.mixed();
            case.options.nodesize = None;
            case.options.metadata = case.options.data;
        }
        for bytes in &mut case.device_bytes {
            // Of any magnitude, rarely round.
            let magnitude = 20 + pick(&mut rng, 44);
            *bytes = 1 << magnitude | rng.next_u64() >> (64 - magnitude);
        }
        let identity = identity(case.device_bytes.len());
        let Ok(plan) = Plan::new(&case.options, &identity, &case.device_bytes) else {
            continue;
        };
        // The size of the device in memory is limited to the maximum file size.
        if plan.layout().total_bytes < i64::MAX as u64 {
            volumes += 1;
            assert_reads_back(&case);
        }
    }
    assert!(volumes > 20, "{volumes}");
}

#[test]
fn superblocks_lie_where_there_is_room() {
    for (bytes, copies) in [
        (64 * MIB + 4096, 1),
        (64 * MIB + 8192, 2),
        (256 * GIB, 2),
        (257 * GIB, 3),
    ] {
        let case = Case::new(1, bytes).mixed();
        let (_, devices) = case.in_memory();
        let found = DeviceSuperblocks::read(devices[0].as_ref());
        let good = found.copies.iter().filter(|copy| copy.problem.is_none());
        assert_eq!(good.count(), copies, "{bytes}");
    }
}

#[test]
fn nothing_of_an_older_volume_is_left_to_be_found() {
    let device = MemDevice::new(2 * GIB);
    for offset in [SUPERBLOCK_OFFSETS[0], SUPERBLOCK_OFFSETS[1]] {
        device.write_at(&MAGIC, offset + 64).unwrap();
    }
    device.write_at(b"XFSB", 0).unwrap();
    // A member of an array, which would be detected as one forever.
    let raid = b"\xfc\x4e\x2b\xa9\x01\0\0\0";
    device.write_at(raid, 2 * GIB - 8192).unwrap();
    // Smaller than the device: the copy at 64 MiB belongs to the old volume, and is beyond the new one.
    let case = Case::new(1, 20 * MIB).mixed();
    case.plan().write(&[&device], false).unwrap();
    assert_eq!(
        find_signature(&device).unwrap(),
        Some(Signature::FileSystem("btrfs"))
    );
    assert_eq!(find_signatures(&device).unwrap().len(), 1);
    let mut old = [0; 8];
    device
        .read_at(&mut old, SUPERBLOCK_OFFSETS[1] + 64)
        .unwrap();
    assert_eq!(old, [0; 8]);
}

#[test]
fn interrupted_write_leaves_the_old_volume_or_none_or_the_new_one() {
    let case = Case::new(1, GIB);
    let device = MemDevice::new(GIB);
    let mut writes = 0;
    loop {
        let old = case.plan();
        old.write(&[&device], true).unwrap();
        let failing = Failing {
            device: &device,
            left: AtomicUsize::new(writes),
        };
        let new = case.plan();
        let result = new.write(&[&failing], true);
        let found = DeviceSuperblocks::read(&device);
        let plan = match found.best().map(|best| best.fsid) {
            None => None,
            Some(fsid) if fsid == old.identity().fsid => Some(&old),
            Some(fsid) => {
                assert_eq!(fsid, new.identity().fsid);
                Some(&new)
            }
        };
        // If a superblock is found, all blocks of its volume must be there.
        for write in plan.iter().flat_map(|plan| plan.block_writes()) {
            let mut bytes = vec![0; write.bytes.len()];
            device.read_at(&mut bytes, write.physical.0).unwrap();
            assert!(bytes == write.bytes, "after {writes} writes");
        }
        if result.is_ok() {
            assert!(found.first_has_magic() && found.bad_copies().count() == 0);
            break;
        }
        writes += 1;
    }
    // Wiping, each block twice, superblocks.
    assert!(writes > 2 * case.plan().blocks().len());
}
