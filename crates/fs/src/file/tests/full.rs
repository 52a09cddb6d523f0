//! Full volumes: the write fails with ENOSPC, and nothing fails later.

use std::thread;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{Rng, seed};
use ubtrfs_storage::{EditEstimate, FileId};

use super::fixture::{MIB, Rig, options};
use crate::BlockGroupType;
use crate::file::Fallocate;

const NOCOW: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);

fn rig() -> Rig {
    Rig::on(&MkfsOptions::default(), 128 * MIB, options())
}

/// Writes until there is no space, and returns the files.
fn fill(rig: &Rig, write_bytes: usize) -> Vec<(FileId, u64)> {
    let volume = rig.volume();
    let mut files = Vec::new();
    loop {
        let id = rig.file(InodeFlags::empty());
        let mut size = 0;
        while size < 16 * MIB {
            match volume.write(id, size, &vec![files.len() as u8; write_bytes]) {
                Ok(()) => size += write_bytes as u64,
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    files.push((id, size));
                    return files;
                }
            }
        }
        files.push((id, size));
    }
}

fn assert_holds(rig: &Rig, files: &[(FileId, u64)]) {
    for (number, &(id, size)) in files.iter().enumerate() {
        assert_eq!(rig.volume().attr(id).unwrap().size, size);
        let mut buf = vec![0; size as usize];
        assert_eq!(rig.volume().read(id, 0, &mut buf).unwrap(), buf.len());
        assert!(buf.iter().all(|&byte| byte == number as u8));
    }
}

#[test]
fn all_that_was_accepted_is_kept() {
    for write_bytes in [5000, 128 << 10, 2 << 20] {
        let mut rig = rig();
        let files = fill(&rig, write_bytes);
        let written: u64 = files.iter().map(|(_, size)| size).sum();
        assert!(written > 40 * MIB, "{written}");
        rig.volume().sync().unwrap();
        rig.assert_sound();
        rig.reopen();
        assert_holds(&rig, &files);
    }
}

#[test]
fn deleting_on_a_full_volume_makes_room_at_once() {
    let rig = rig();
    let files = fill(&rig, 128 << 10);
    let volume = rig.volume();
    for &(id, size) in &files {
        volume.truncate(id, 0).unwrap();
        volume
            .write(id, 0, &vec![7; size.min(MIB) as usize])
            .unwrap();
    }
    rig.assert_sound();
}

#[test]
fn a_full_volume_is_overwritten_without_copy_on_write() {
    let rig = rig();
    let volume = rig.volume();
    let id = rig.file(NOCOW);
    volume.write(id, 0, &vec![1; 8 * MIB as usize]).unwrap();
    let reserved = rig.file(InodeFlags::empty());
    let reserve = Fallocate::Reserve { keep_size: false };
    volume.fallocate(reserved, reserve, 0, 4 * MIB).unwrap();
    fill(&rig, MIB as usize);
    fill(&rig, 4096);
    let mut rng = Rng::new(seed("a_full_volume_is_overwritten_without_copy_on_write"));
    let mut model = vec![1; 8 * MIB as usize];
    for _ in 0..200 {
        let offset = rng.below(8 * MIB - 10_000) as usize;
        let len = 1 + rng.below(10_000) as usize;
        volume.write(id, offset as u64, &vec![2; len]).unwrap();
        model[offset..offset + len].fill(2);
    }
    volume
        .write(reserved, 0, &vec![3; 4 * MIB as usize])
        .unwrap();
    let mut buf = vec![0; 8 * MIB as usize];
    volume.read(id, 0, &mut buf).unwrap();
    assert!(buf == model);
    let error = volume.write(id, 8 * MIB, &vec![1; 4 * MIB as usize]);
    assert!(error.unwrap_err().is_no_space());
    rig.assert_sound();
}

#[test]
fn reserving_more_than_there_is_reserves_nothing_that_stays_taken() {
    let rig = rig();
    let volume = rig.volume();
    let id = rig.file(InodeFlags::empty());
    let reserve = Fallocate::Reserve { keep_size: true };
    let error = volume.fallocate(id, reserve, 0, 1 << 30).unwrap_err();
    assert!(error.is_no_space());
    volume.write(id, 0, &vec![1; 32 * MIB as usize]).unwrap();
    rig.assert_sound();
}

#[test]
fn overwriting_a_full_volume_fails_cleanly() {
    let rig = rig();
    let files = fill(&rig, 4096);
    let mut rng = Rng::new(seed("overwriting_a_full_volume_fails_cleanly"));
    let volume = rig.volume();
    for _ in 0..2000 {
        let &(id, size) = &files[rng.below(files.len() as u64) as usize];
        let number = files.iter().position(|file| file.0 == id).unwrap() as u8;
        if size < 5000 {
            continue;
        }
        let offset = rng.below(size - 4096);
        match volume.write(id, offset, &[number; 4096]) {
            Err(error) if !error.is_no_space() => panic!("{error}"),
            _ => {}
        }
    }
    assert_holds(&rig, &files);
    rig.assert_sound();
    assert_holds(&rig, &files);
}

#[test]
fn reserving_more_than_there_is_leaves_room_for_names() {
    let rig = Rig::on(&MkfsOptions::default(), 1024 * MIB, options());
    let volume = rig.volume();
    let growth = || {
        let totals = volume.inodes.transactions().unwrap().space.totals();
        let metadata = totals
            .iter()
            .find(|sums| sums.kind == BlockGroupType::Metadata);
        metadata.unwrap().unallocated_bytes
    };
    let id = rig.file(InodeFlags::empty());
    let before = growth();
    let reserve = Fallocate::Reserve { keep_size: true };
    let error = volume.fallocate(id, reserve, 0, 10 << 40).unwrap_err();
    assert!(error.is_no_space());
    assert_eq!(growth(), before);
    rig.assert_sound();
}

/// Fills the remaining data space, to the last sector.
fn fill_up(rig: &Rig) {
    fill(rig, MIB as usize);
    fill(rig, 4096);
    rig.volume().sync().unwrap();
    let id = rig.file(InodeFlags::empty());
    let mut size = 0;
    while rig.volume().write_direct(id, size, &[1; 4096]).is_ok() {
        size += 4096;
    }
    rig.volume().sync().unwrap();
}

/// Sharing extents and punching holes work on a full volume, as in the kernel.
#[test]
fn holes_and_sharing_take_no_data_space() {
    let rig = rig();
    let volume = rig.volume();
    let [a, b] = [0, 1].map(|_| {
        let id = rig.file(InodeFlags::empty());
        volume.write(id, 0, &vec![1; 4 * MIB as usize]).unwrap();
        id
    });
    let new = rig.file(InodeFlags::empty());
    fill_up(&rig);
    assert_eq!(volume.clone_range(a, MIB, MIB, b, MIB).unwrap(), MIB);
    assert!(volume.dedupe_range(a, 2 * MIB, MIB, b, 2 * MIB).unwrap());
    assert_eq!(volume.clone_range(a, 0, 0, new, 0).unwrap(), 4 * MIB);
    fill_up(&rig);
    volume.fallocate(a, Fallocate::PunchHole, 0, MIB).unwrap();
    let mut buf = vec![9; 4 * MIB as usize];
    volume.read(a, 0, &mut buf).unwrap();
    assert!(buf[..MIB as usize].iter().all(|&byte| byte == 0));
    assert!(buf[MIB as usize..].iter().all(|&byte| byte == 1));
    rig.assert_sound();
}

/// The sectors that a hole cuts are overwritten in place.
#[test]
fn hole_that_cuts_sectors_of_a_nocow_file_takes_no_space() {
    const LEN: usize = 8 * 4096;
    let mut rig = rig();
    let (nocow, cow) = (rig.file(NOCOW), rig.file(InodeFlags::empty()));
    for id in [nocow, cow] {
        rig.volume().write(id, 0, &[5; LEN]).unwrap();
    }
    rig.volume().sync().unwrap();
    fill_up(&rig);
    let volume = rig.volume();
    let punch = |id, range: std::ops::Range<u64>| {
        volume.fallocate(
            id,
            Fallocate::PunchHole,
            range.start,
            range.end - range.start,
        )
    };
    assert!(punch(cow, 100..200).unwrap_err().is_no_space());
    let mut wanted = vec![5; LEN];
    for range in [100..200, 5000..13000, 16384..16400, 20481..40000] {
        punch(nocow, range.clone()).unwrap();
        let end = (range.end as usize).min(LEN);
        wanted[range.start as usize..end].fill(0);
    }
    assert_eq!(volume.seek_hole(nocow, 0).unwrap(), Some(8192));
    rig.reopen();
    let mut found = vec![1; LEN + 1];
    assert_eq!(rig.volume().read(nocow, 0, &mut found).unwrap(), LEN);
    assert!(found[..LEN] == wanted);
    rig.assert_sound();
}

#[test]
fn hole_over_buffered_data_of_a_full_volume_leaves_the_size() {
    let rig = rig();
    let volume = rig.volume();
    let id = rig.file(InodeFlags::empty());
    volume.write(id, 0, &[1; 5000]).unwrap();
    volume.sync().unwrap();
    volume.write(id, 8192, &vec![2; 3 * 4096]).unwrap();
    fill(&rig, MIB as usize);
    fill(&rig, 4096);
    let mode = Fallocate::PunchHole;
    volume.fallocate(id, mode, 8192, 3 * 4096).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.attr(id).unwrap().size, 5 * 4096);
    let mut buf = vec![9; 5 * 4096];
    volume.read(id, 0, &mut buf).unwrap();
    assert!(buf[..5000].iter().all(|&byte| byte == 1));
    assert!(buf[5000..].iter().all(|&byte| byte == 0));
    rig.assert_sound();
}

#[test]
fn write_that_finds_no_space_takes_nothing_along_that_others_write() {
    let rig = rig();
    let volume = rig.volume();
    let id = rig.file(NOCOW);
    volume.write(id, 0, &vec![1; 4 * MIB as usize]).unwrap();
    let spare = rig.file(InodeFlags::empty());
    volume.write(spare, 0, &vec![1; 256 << 10]).unwrap();
    let filler = rig.file(InodeFlags::empty());
    let mut size = 0;
    for step in [MIB, 64 << 10, 4096] {
        let bytes = vec![1; step as usize];
        while volume.write_direct(filler, size, &bytes).is_ok() {
            size += step;
        }
    }
    volume.sync().unwrap();
    volume.truncate(spare, 0).unwrap();
    volume.sync().unwrap();
    let inode = volume.inodes.get(id).unwrap();
    let large = vec![9; 6 * MIB as usize];
    let holds = |offset, value: &[u8]| {
        let mut buf = vec![0; value.len()];
        volume.read(id, offset, &mut buf).unwrap();
        buf == value
    };
    for round in 0..10u8 {
        let value = [round; 8];
        thread::scope(|scope| {
            let refused = scope.spawn(|| volume.write(id, 1, &large));
            // Only the copy of the bytes locks the file for long.
            let mut looks = 0;
            while looks < 1000 && !refused.is_finished() {
                let is_locked = inode.extents.is_locked() && inode.lock.is_locked_exclusive();
                looks = if is_locked { looks + 1 } else { 0 };
                std::hint::spin_loop();
            }
            volume.write(id, 4100, &value).unwrap();
            assert!(refused.join().unwrap().unwrap_err().is_no_space());
        });
        volume.fsync(id).unwrap();
        assert!(holds(4100, &value), "round {round}");
    }
    rig.assert_sound();
}

/// In mixed groups, the used bytes do not indicate the size of the trees.
#[test]
fn names_are_made_on_mixed_groups_that_data_fills() {
    let mut mkfs = MkfsOptions::default();
    mkfs.features.apply_list("mixed-bg").unwrap();
    let mut rig = Rig::on(&mkfs, 192 * MIB, options());
    let id = rig.file(InodeFlags::empty());
    let write = |rig: &Rig, part: u64| rig.volume().write(id, part * MIB, &[1; MIB as usize]);
    for part in 0..160 {
        write(&rig, part).unwrap();
    }
    // First with counters kept since mkfs, then with those read at mount.
    for _ in 0..2 {
        rig.volume().sync().unwrap();
        for _ in 0..100 {
            rig.file(InodeFlags::empty());
        }
        rig.assert_sound();
        rig.reopen();
    }
    let more = (160..).find(|&part| write(&rig, part).is_err()).unwrap();
    assert!(more > 175, "{more} MiB");
    rig.volume().truncate(id, 0).unwrap();
    rig.assert_sound();
}

/// ORPHAN-QUEUE-3
#[test]
fn eviction_without_space_is_made_up_for() {
    let rig = rig();
    let volume = rig.volume();
    let id = rig.file(InodeFlags::empty());
    volume.write(id, 0, &[1; 10_000]).unwrap();
    let held = volume.open_file(id).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.unlink(top, b"f0").unwrap();
    volume.sync().unwrap();
    let manager = volume.inodes.transactions().unwrap();
    let mut reservations = Vec::new();
    for items in [100_000, 1000, 100, 10, 1] {
        let cost = EditEstimate::items(items).with_global_reserve();
        reservations.extend(std::iter::from_fn(|| manager.try_reserve(cost)));
    }
    drop(held);
    // It has no hold, but its items still exist.
    assert_eq!(volume.attr(id).unwrap().nlink, 0);
    drop(reservations);
    volume.sync().unwrap();
    assert!(volume.attr(id).is_err());
    rig.assert_sound();
}
