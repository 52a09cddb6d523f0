//! Snapshots that are held while they are compared, deleted or made writable.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::item::{FileTime, RootItemFlags};
use ubtrfs_format::key::KeyType;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;

use super::*;
use crate::{NewInode, OpenOptions, ReceivedFrom};

const DEVICE_BYTES: u64 = 256 << 20;
const FILES: usize = 2000;

/// Creates a volume with files, and a snapshot of its top level.
fn volume() -> (Arc<Volume>, RootId) {
    let device = new_volume(&MkfsOptions::default(), DEVICE_BYTES);
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let volume = Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    for number in 0..FILES {
        create(&volume, top, &format!("file {number}"));
    }
    let first = snapshot(&volume, "first");
    (volume, first)
}

fn create(volume: &Volume, dir: FileId, name: &str) -> FileId {
    volume
        .create(dir, name.as_bytes(), &NewInode::file(0o644))
        .unwrap()
}

fn snapshot(volume: &Volume, name: &str) -> RootId {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let snapshot = volume.snapshot(RootId::FS_TREE, top, name.as_bytes(), true);
    snapshot.unwrap()
}

fn count(mut comparison: Comparison, item_type: KeyType) -> usize {
    let mut count = 0;
    while let Some(difference) = comparison.next_difference().unwrap() {
        count += usize::from(difference.key().item_type == item_type);
    }
    count
}

#[test]
fn a_comparison_shows_what_was_changed_between() {
    let (volume, first) = volume();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let new = create(&volume, top, "new");
    volume.write(new, 0, b"data").unwrap();
    let second = snapshot(&volume, "second");

    let first = Snapshot::open(&volume, first).unwrap();
    let second = Snapshot::open(&volume, second).unwrap();
    // The new file and the root directory.
    let items = |comparison| count(comparison, KeyType::INODE_ITEM);
    assert_eq!(items(second.compare_with(Some(&first))), 2);
    assert_eq!(items(first.compare_with(Some(&second))), 2);
    assert_eq!(items(second.compare_with(None)), FILES + 2);
    let extents = |comparison| count(comparison, KeyType::EXTENT_DATA);
    assert_eq!(extents(second.compare_with(Some(&first))), 1);
}

#[test]
fn a_deleted_snapshot_stays_until_it_is_released() {
    let (volume, first) = volume();
    let held = Snapshot::open(&volume, first).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.delete_subvolume(top, b"first").unwrap();
    for number in 0..FILES {
        let name = format!("file {number}");
        volume.unlink(top, name.as_bytes()).unwrap();
        if number % 100 == 0 {
            volume.sync().unwrap();
        }
    }
    assert_eq!(
        count(held.compare_with(None), KeyType::INODE_ITEM),
        FILES + 1
    );
    held.check_unchanged().unwrap();
    assert!(Snapshot::open(&volume, first).is_err());
}

#[test]
fn writable_subvolumes_are_refused() {
    let (volume, _) = volume();
    let refused = Snapshot::open(&volume, RootId::FS_TREE).unwrap_err();
    assert!(matches!(refused, Error::WritableSubvolume(RootId::FS_TREE)));
}

#[test]
fn snapshots_stay_read_only_while_they_are_held() {
    let (volume, first) = volume();
    let held = [(); 2].map(|()| Snapshot::open(&volume, first).unwrap());
    for held in held {
        let refused = volume.set_read_only(first, false).unwrap_err();
        assert!(matches!(refused, Error::HeldSubvolume(id) if id == first));
        volume.set_read_only(first, true).unwrap();
        held.check_unchanged().unwrap();
    }
    volume.set_read_only(first, false).unwrap();
    create(&volume, volume.root_dir(first).unwrap(), "new");
    let refused = Snapshot::open(&volume, first).unwrap_err();
    assert!(matches!(refused, Error::WritableSubvolume(id) if id == first));
    volume.set_read_only(first, false).unwrap();
    volume.set_read_only(first, true).unwrap();
    Snapshot::open(&volume, first).unwrap();
}

#[test]
fn a_write_under_way_ends_when_its_subvolume_becomes_read_only() {
    const PARTS: u64 = 4;
    const PART_BYTES: u64 = 32 << 20;
    let device: Arc<dyn BlockDevice> = Arc::new(new_volume(&MkfsOptions::default(), 1 << 30));
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let volume = Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let root = NewInode::directory(0o755);
    let id = volume.create_subvolume(top, b"sub", &root).unwrap();
    let dir = volume.root_dir(id).unwrap();
    let file = create(&volume, dir, "file");
    let size = || volume.attr(file).unwrap().size;
    let bytes = vec![1; (PARTS * PART_BYTES) as usize];
    thread::scope(|scope| {
        let writer = scope.spawn(|| volume.write(file, 0, &bytes));
        while size() == 0 {
            thread::yield_now();
        }
        volume.set_read_only(id, true).unwrap();
        let held = Snapshot::open(&volume, id).unwrap();
        let before = size();
        let written = writer.join().unwrap();
        assert_eq!(size(), before);
        held.check_unchanged().unwrap();
        match written {
            // The last part was entered before the change.
            Ok(()) => assert_eq!(before, PARTS * PART_BYTES),
            Err(error) => assert!(matches!(error, Error::ReadOnlySubvolume(_)), "{error}"),
        }
    });
}

/// A failed receive clears the received UUID, even if another thread has opened the subvolume.
#[test]
fn held_snapshots_can_forget_what_they_were_received_from() {
    let (volume, first) = volume();
    let from = ReceivedFrom {
        uuid: Uuid([7; 16]),
        transid: Transid(3),
        time: FileTime::default(),
    };
    volume.set_read_only(first, false).unwrap();
    volume.set_received(first, &from).unwrap();
    volume.set_read_only(first, true).unwrap();
    let held = Snapshot::open(&volume, first).unwrap();
    let refused = volume.set_received(first, &from).unwrap_err();
    assert!(matches!(refused, Error::ReadOnlySubvolume(id) if id == first));
    volume.forget_received(first).unwrap();
    held.check_unchanged().unwrap();
    let all = volume.subvolumes().unwrap();
    let info = all.iter().find(|info| info.id == first).unwrap();
    assert!(info.item.received_uuid.is_nil());
    assert!(info.item.flags().contains(RootItemFlags::RDONLY));
}
