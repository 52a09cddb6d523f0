//! Volumes after they have been closed.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;

use super::fixture::{MIB, Recorded, Rig, assert_sound, is_write, options};
use crate::file::Fallocate;
use crate::{BlockGroupType, Error, OpenOptions, Volume};

#[test]
fn emptied_block_groups_do_not_outlive_the_volume() {
    let rig = Rig::on(&MkfsOptions::default(), 512 * MIB, options());
    let (volume, id) = (Arc::clone(rig.volume()), rig.file(InodeFlags::empty()));
    let reserve = Fallocate::Reserve { keep_size: false };
    volume.fallocate(id, reserve, 0, 300 * MIB).unwrap();
    volume.sync().unwrap();
    volume.truncate(id, 0).unwrap();
    volume.close().unwrap();
    assert_sound(&rig.device);
    let devices = vec![(PathBuf::from("memory"), rig.device.clone() as _)];
    let found = Volume::from_devices(devices, &OpenOptions::new()).unwrap();
    let mut empty = 0;
    let mut count = |group: crate::BlockGroupRecord| {
        empty +=
            usize::from(BlockGroupType::of(group.flags) == BlockGroupType::Data && group.used == 0);
    };
    found.for_each_block_group(&mut count).unwrap();
    assert!(empty <= 1, "{empty} block groups are empty");
    // There is nothing left to do.
    let generation = found.superblock().generation.get();
    volume.close().unwrap();
    assert_eq!(volume.superblock().generation.get(), generation);
}

const CLOSED: u64 = 1;

fn close(recorded: &Recorded) {
    recorded.volume.close().unwrap();
    recorded.recorder.mark(CLOSED);
}

/// Asserts that a closed volume does not write to its devices, which another process may use by then.
fn assert_left_alone(recorded: &Recorded) {
    assert!(!recorded.requests_since(CLOSED).iter().any(is_write));
}

/// WRITER-3
#[test]
fn data_that_comes_too_late_is_not_written() {
    let recorded = Recorded::open(&options());
    let volume = &recorded.volume;
    let file = recorded.file("f", MIB);
    volume.sync().unwrap();
    let inode = volume.inodes.get(file).unwrap();
    let held = inode.extents.lock().unwrap();
    let written = thread::scope(|scope| {
        let writing = scope.spawn(|| volume.write_direct(file, 0, &[7; 4096]));
        let is_promised = || {
            let totals = volume.inodes.transactions().unwrap().space.totals();
            let mut data = totals
                .iter()
                .filter(|sums| sums.kind == BlockGroupType::Data);
            data.any(|sums| sums.reserved > 0)
        };
        while !is_promised() {
            thread::yield_now();
        }
        close(&recorded);
        drop(held);
        writing.join().unwrap()
    });
    assert!(matches!(written, Err(Error::Closed)), "{written:?}");
    assert_left_alone(&recorded);
}

#[test]
fn data_on_its_way_is_waited_for() {
    let recorded = Recorded::open(&options());
    let (device, volume) = (&recorded.device, &recorded.volume);
    let file = recorded.file("f", MIB);
    let before = recorded.flushes();
    volume.files.write_back_all().unwrap();
    device.hold_next();
    thread::scope(|scope| {
        scope.spawn(|| volume.write_direct(file, 0, &[7; 4096]));
        device.wait_for_waiter();
        scope.spawn(|| close(&recorded));
        // The commit does not wait for the data.
        while recorded.flushes() < before + 2 {
            thread::yield_now();
        }
        device.release();
    });
    assert_left_alone(&recorded);
}
