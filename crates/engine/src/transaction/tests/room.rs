//! Volumes whose metadata is full.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::QgroupStatusItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_sim::kernel::{self, KernelVolume, MkfsSpec};
use ubtrfs_tree::Edit;

use super::{device_of, open, open_files, options, xattr};
use crate::roots::Tree;
use crate::space::SpaceTotals;
use crate::transaction::{EditEstimate, Reservation};
use crate::{Fallocate, FileId, NewInode, OpenOptions, SpaceKind, Volume};

const DEVICE_BYTES: u64 = 128 << 20;

/// Sets attributes until there is no room for an edit.
fn fill_up(volume: &Volume, tree: &Arc<Tree>) {
    let mut number = 0;
    for value_bytes in [7600, 100] {
        loop {
            let (key, item) = xattr(256, &format!("user.{number}"), &vec![1; value_bytes]);
            number += 1;
            match volume.inodes.reserve_metadata(EditEstimate::items(1)) {
                Ok(reservation) => volume
                    .inodes
                    .join_transaction(reservation)
                    .unwrap()
                    .put(tree, key, item),
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    break;
                }
            }
        }
    }
}

/// Deletes attributes that lie side by side.
fn delete_some(volume: &Volume, tree: &Arc<Tree>, count: usize) {
    let mut keys = Vec::new();
    let mut cursor = tree.view.cursor();
    let mut more = cursor.seek(&Key::new(256, KeyType::XATTR_ITEM, 0)).unwrap();
    while more && keys.len() < count {
        keys.extend(cursor.current().map(|(key, _)| key));
        more = cursor.advance().unwrap();
    }
    drop(cursor);
    for key in keys {
        let reservation = volume
            .inodes
            .reserve_metadata(EditEstimate::items(1).freeing())
            .unwrap();
        volume
            .inodes
            .join_transaction(reservation)
            .unwrap()
            .edit(tree, [Edit::Delete(key)]);
    }
}

#[test]
fn space_that_a_reader_holds_for_a_moment_is_waited_for() {
    let device = device_of(DEVICE_BYTES, "");
    let volume = open(&device, &options());
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    fill_up(&volume, &tree);
    let manager = volume.inodes.transactions().unwrap();
    delete_some(&volume, &tree, 80);
    assert!(!manager.fits_now(EditEstimate::items(1)));
    let (looked_at, before) = (volume.node_store().epoch(), manager.committed());
    thread::scope(|scope| {
        scope.spawn(move || {
            while manager.committed() == before {
                thread::yield_now();
            }
            // For longer than it takes to be refused.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(5) {
                thread::yield_now();
            }
            drop(looked_at);
        });
        let _ = volume
            .inodes
            .reserve_metadata(EditEstimate::items(1))
            .unwrap();
    });
}

/// Opening sets the INCONSISTENT flag of the quotas, because their sums are not kept.
#[test]
fn full_volume_with_quotas_is_opened_for_writing() {
    let device = device_of(DEVICE_BYTES, "quota");
    let volume = open(&device, &options());
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    fill_up(&volume, &tree);
    // As if they were kept: the next one must say it again.
    let quotas = volume.tree(RootId::QUOTA_TREE).unwrap();
    let key = Key::new(0, KeyType::QGROUP_STATUS, 0);
    let status = |volume: &Volume| {
        let quotas = volume.tree(RootId::QUOTA_TREE).unwrap();
        quotas.view.get(&key).unwrap().unwrap().to_vec()
    };
    let at = std::mem::offset_of!(QgroupStatusItem, flags);
    let mut kept = status(&volume);
    assert_eq!(kept[at], 0b101);
    kept[at] = 0b1;
    volume
        .inodes
        .join_transaction(Reservation::already_made())
        .unwrap()
        .put(&quotas, key, kept);
    volume.sync().unwrap();
    drop((tree, quotas, volume));

    let volume = open(&device, &options());
    assert_eq!(status(&volume)[at], 0b101);
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    delete_some(&volume, &tree, 1000);
    volume.sync().unwrap();
    let _ = volume
        .inodes
        .reserve_metadata(EditEstimate::items(1))
        .unwrap();
    drop((tree, volume));
    assert_eq!(status(&open(&device, &OpenOptions::new()))[at], 0b101);
}

/// Sums of metadata.
fn metadata(volume: &Volume) -> SpaceTotals {
    let totals = volume.inodes.transactions().unwrap().space.totals();
    let metadata = |sums: &SpaceTotals| sums.kind == SpaceKind::Metadata;
    totals.into_iter().find(metadata).unwrap()
}

/// RESERVATION-2
#[test]
fn reservations_count_as_part_of_the_running_transaction() {
    let device = device_of(DEVICE_BYTES, "");
    let volume = open(&device, &options());
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    fill_up(&volume, &tree);
    let mut inside = Vec::new();
    while inside.len() < 200
        && let Ok(reservation) = volume.inodes.reserve_metadata(EditEstimate::of_freeing())
    {
        inside.push(reservation);
    }
    assert!((1..200).contains(&inside.len()), "{}", inside.len());
    drop(inside);
    let _ = volume
        .inodes
        .reserve_metadata(EditEstimate::of_freeing())
        .unwrap();
}

/// RESERVATION-CACHE-1
#[test]
fn small_operations_share_one_reservation() {
    let device = device_of(8 << 30, "");
    let volume = open(&device, &options());
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    let manager = volume.inodes.transactions().unwrap();
    let before = metadata(&volume).reserved;
    let first = volume
        .inodes
        .reserve_metadata(EditEstimate::items(5))
        .unwrap();
    let reserved = metadata(&volume).reserved;
    assert!(reserved > before);
    for number in 0..10 {
        let (key, item) = xattr(256, &format!("user.{number}"), &[1; 300]);
        let reservation = volume
            .inodes
            .reserve_metadata(EditEstimate::items(5).bytes(300))
            .unwrap();
        volume
            .inodes
            .join_transaction(reservation)
            .unwrap()
            .put(&tree, key, item);
    }
    drop(first);
    assert_eq!(metadata(&volume).reserved, reserved);
    // What it was for is there by now, and takes no more.
    manager.shrink_reservation();
    assert!((before + 1..reserved).contains(&metadata(&volume).reserved));
}

/// RESERVATION-CACHE-2
#[test]
fn unused_units_are_drained_for_other_operations() {
    let device = device_of(8 << 30, "");
    let volume = open(&device, &options());
    let manager = volume.inodes.transactions().unwrap();
    let _ = volume
        .inodes
        .reserve_metadata(EditEstimate::items(1))
        .unwrap();
    // As much as there is room for beside nothing else.
    let (mut least, mut most) = (1, u64::MAX / 2);
    while most - least > 1 {
        let bytes = least + (most - least) / 2;
        match manager.fits_now(EditEstimate::default().bytes(bytes)) {
            true => least = bytes,
            false => most = bytes,
        }
    }
    manager.shrink_reservation();
    let _ = volume
        .inodes
        .reserve_metadata(EditEstimate::items(1))
        .unwrap();
    assert!(manager.fits_now(EditEstimate::default().bytes(least)));
}

/// Half full of metadata that a snapshot shares; there are two files, of which the first has an extent.
fn share_half(volume: &Volume) -> [FileId; 2] {
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = |name: &[u8]| volume.create(top, name, &NewInode::file(0o644)).unwrap();
    let files = [b"one", b"two"].map(|name| file(name));
    volume.write(files[0], 0, &[1; 1 << 16]).unwrap();
    for number in 0.. {
        if number % 500 == 0 {
            volume.sync().unwrap();
            let space = metadata(volume);
            if space.used > space.free_bytes + space.unallocated_bytes {
                break;
            }
        }
        let (key, item) = xattr(256, &format!("user.{number}"), &[1; 7600]);
        let reservation = volume
            .inodes
            .reserve_metadata(EditEstimate::items(1))
            .unwrap();
        volume
            .inodes
            .join_transaction(reservation)
            .unwrap()
            .put(&tree, key, item);
    }
    volume
        .snapshot(RootId::FS_TREE, top, b"snap", true)
        .unwrap();
    files
}

/// What few extents cost is counted by these, whatever the snapshot shares besides.
#[test]
fn files_share_and_reserve_a_little_on_a_volume_half_full_of_shared_metadata() {
    let device = device_of(DEVICE_BYTES, "");
    let volume = open(&device, &options());
    let [one, two] = share_half(&volume);
    let reserve = Fallocate::Reserve { keep_size: false };
    volume.fallocate(two, reserve, 1 << 20, 1 << 20).unwrap();
    assert_eq!(volume.clone_range(one, 0, 0, two, 0).unwrap(), 1 << 16);
    volume.close().unwrap();

    if !kernel::or_skip("sharing on a volume half full of metadata") {
        return;
    }
    let spec = MkfsSpec::new().device_bytes(DEVICE_BYTES);
    let made = KernelVolume::make(&spec).unwrap();
    let volume = open_files(&made);
    share_half(&volume);
    drop(volume);
    let mount = made.mount("").unwrap();
    let run = |command: &mut Command| assert!(command.status().unwrap().success());
    let [one, two] = ["one", "two"].map(|name| mount.path().join(name));
    run(Command::new("fallocate").args(["-o1M", "-l1M"]).arg(&two));
    run(Command::new("cp").arg("--reflink=always").args([one, two]));
}

/// RESERVATION-3
#[test]
fn global_reserve_is_reserved_from_opening_on() {
    let device = device_of(DEVICE_BYTES, "");
    let volume = open(&device, &options());
    assert!(metadata(&volume).reserved >= 2 << 20);
}

#[test]
fn operations_that_free_space_leave_the_global_reserve_to_no_chunk_of_data() {
    let device = device_of(DEVICE_BYTES, "");
    let volume = open(&device, &options());
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    fill_up(&volume, &tree);
    let before = metadata(&volume).reserved;
    let reservation = volume
        .inodes
        .reserve_metadata(EditEstimate::of_freeing())
        .unwrap();
    assert!(metadata(&volume).reserved >= before);
    drop(reservation);
}

#[test]
fn cleaner_takes_nothing_that_other_work_has_reserved() {
    let device = device_of(DEVICE_BYTES, "");
    let volume = open(&device, &options());
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let dir = NewInode::directory(0o755);
    let id = volume.create_subvolume(top, b"old", &dir).unwrap();
    let tree = volume.subvolume_tree(id).unwrap();
    for number in 0..400 {
        let (key, item) = xattr(256, &format!("user.{number}"), &[1; 7600]);
        let reservation = volume
            .inodes
            .reserve_metadata(EditEstimate::items(1))
            .unwrap();
        volume
            .inodes
            .join_transaction(reservation)
            .unwrap()
            .put(&tree, key, item);
    }
    volume.sync().unwrap();
    fill_up(&volume, &volume.subvolume_tree(RootId::FS_TREE).unwrap());
    drop(tree);
    volume.delete_subvolume(top, b"old").unwrap();
    let nothing_dropped = || {
        let tree = volume.find_tree(id).unwrap();
        tree.is_some_and(|tree| tree.item().drop_level == 0)
    };
    volume
        .inodes
        .transactions()
        .unwrap()
        .commit_running()
        .unwrap();
    assert!(nothing_dropped());
    // With nothing beside it, it goes on.
    volume
        .inodes
        .transactions()
        .unwrap()
        .commit_running()
        .unwrap();
    assert!(!nothing_dropped());
    volume.free_deleted_subvolumes().unwrap();
    assert!(volume.find_tree(id).unwrap().is_none());
}

#[test]
fn truncation_on_a_full_volume_reserves_what_it_is_about_to_change() {
    let device = device_of(DEVICE_BYTES, "");
    let volume = open(&device, &options());
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.create(top, b"f", &NewInode::file(0o644)).unwrap();
    volume.write(file, 0, &[1; 100_000]).unwrap();
    volume.sync().unwrap();
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    fill_up(&volume, &tree);
    let inode = volume.inodes.get(file).unwrap();
    let manager = volume.inodes.transactions().unwrap();
    let held = inode.extents.lock();
    thread::scope(|scope| {
        let cut = scope.spawn(|| volume.truncate(file, 0));
        // Others may be reserved something for a moment.
        let mut owing_since = Instant::now();
        let begin = owing_since;
        while owing_since.elapsed() < Duration::from_millis(300) {
            if !manager.reservations.has_reserved() {
                owing_since = Instant::now();
            }
            assert!(begin.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
        drop(held);
        cut.join().unwrap().unwrap();
    });
    assert!(!manager.reservations.has_reserved());
}
