//! Operations on volumes with full metadata, or with half of it shared.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ubtrfs_format::ids::RootId;
use ubtrfs_sim::kernel::{self, KernelVolume, MkfsSpec};
use ubtrfs_storage::EditEstimate;
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::space::SpaceTotals;

use super::{device_of, open, open_files, options, xattr};
use crate::{BlockGroupType, Fallocate, FileId, NewInode, Volume};

const DEVICE_BYTES: u64 = 128 << 20;

/// Sets attributes until there is no room for an edit.
fn fill_up(volume: &Volume, tree: &Arc<Tree>) {
    let mut number = 0;
    for value_bytes in [7600, 100] {
        loop {
            let (key, item) = xattr(256, &format!("user.{number}"), &vec![1; value_bytes]);
            number += 1;
            match volume
                .inodes
                .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
            {
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

/// Returns the space totals of metadata.
fn metadata(volume: &Volume) -> SpaceTotals {
    let totals = volume.inodes.transactions().unwrap().space.totals();
    let metadata = |sums: &SpaceTotals| sums.kind == BlockGroupType::Metadata;
    totals.into_iter().find(metadata).unwrap()
}

/// Fills half of the volume with metadata that a snapshot shares. Returns two files, the first with an
/// extent.
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
            .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
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

/// A file with few extents reserves only for these, regardless of other shared metadata.
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
            .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
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
    // When the reservations are gone, it continues.
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
    let held = inode.extents.lock().unwrap();
    thread::scope(|scope| {
        let cut = scope.spawn(|| volume.truncate(file, 0));
        // Other threads may briefly hold reservations.
        let mut owing_since = Instant::now();
        let begin = owing_since;
        while owing_since.elapsed() < Duration::from_millis(300) {
            if !manager.has_reserved() {
                owing_since = Instant::now();
            }
            assert!(begin.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
        drop(held);
        cut.join().unwrap().unwrap();
    });
    assert!(!manager.has_reserved());
}
