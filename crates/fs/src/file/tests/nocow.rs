//! Data that is overwritten in place, and data that is copied on write.

use std::thread;
use std::time::Duration;

use ubtrfs_format::ids::Logical;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::record::Event;
use ubtrfs_storage::FileId;

use super::fixture::{MIB, Recorded, Rig, is_write, options};
use crate::file::Fallocate;
use crate::file::extent::Extent;
use crate::file::extent_edit::ExtentEdit;
use crate::{Result, Volume};

const NOCOW: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);
const SECTOR: u64 = 4096;

fn rig() -> Rig {
    Rig::on(&MkfsOptions::default(), 512 * MIB, options())
}

/// Returns the file's extents: file offset, address, length, and whether it was never written.
fn places(rig: &Rig, id: FileId) -> Vec<(u64, Logical, u64, bool)> {
    let volume = rig.volume();
    let inode = volume.inodes.get(id).unwrap();
    let extent_edit = ExtentEdit::load(&inode, SECTOR, 0..1 << 40).unwrap();
    let place = |(range, extent): (std::ops::Range<u64>, &Extent)| match extent {
        Extent::Disk(part) => Some((range.start, part.logical(), part.len, part.prealloc)),
        _ => None,
    };
    extent_edit.extents().filter_map(place).collect()
}

fn read(rig: &Rig, id: FileId, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xaa; len];
    let len = rig.volume().read(id, offset, &mut buf).unwrap();
    buf.truncate(len);
    buf
}

fn write(rig: &Rig, id: FileId, offset: u64, byte: u8, len: usize) {
    rig.volume().write(id, offset, &vec![byte; len]).unwrap();
    rig.volume().files.write_back_all().unwrap();
}

#[test]
fn files_without_copy_on_write_keep_their_extents() {
    let mut rig = rig();
    let id = rig.file(NOCOW);
    write(&rig, id, 0, 1, MIB as usize);
    let before = places(&rig, id);
    for round in 0..3 {
        write(&rig, id, 8192, 2 + round, 4096);
        write(&rig, id, 5000, 3, 77);
        rig.volume().write_direct(id, 64 << 10, &[4; 8192]).unwrap();
        assert_eq!(places(&rig, id), before);
        rig.assert_sound();
    }
    rig.reopen();
    write(&rig, id, 300_000, 9, 100);
    assert_eq!(places(&rig, id), before);
    assert_eq!(read(&rig, id, 299_999, 3), [1, 9, 9]);
    assert_eq!(read(&rig, id, 64 << 10, 2), [4, 4]);
}

#[test]
fn others_are_written_elsewhere() {
    let rig = rig();
    let id = rig.file(InodeFlags::empty());
    write(&rig, id, 0, 1, MIB as usize);
    write(&rig, id, 8192, 2, 4096);
    let places = places(&rig, id);
    assert_eq!(places.len(), 3);
    assert_ne!(places[1].1.0, places[0].1.0 + places[0].2);
    rig.assert_sound();
}

// NOCOW-1
#[test]
fn a_snapshot_keeps_what_it_shows() {
    let mut rig = rig();
    let id = rig.file(NOCOW);
    write(&rig, id, 0, 1, MIB as usize);
    let volume = rig.volume().clone();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let before = places(&rig, id);
    let snapshot = volume
        .snapshot(RootId::FS_TREE, top, b"snap", false)
        .unwrap();
    let there = FileId::new(snapshot, id.ino);
    write(&rig, id, 4096, 2, 8192);
    write(&rig, there, 16384, 3, 4096);
    assert_eq!(places(&rig, id).len(), 3);
    assert_eq!(read(&rig, there, 4096, 1), [1]);
    assert_eq!(read(&rig, id, 16384, 1), [1]);
    rig.assert_sound();
    // Data written since the snapshot is exclusive to the file, and is overwritten in place again.
    let after = places(&rig, id);
    write(&rig, id, 4096, 4, 8192);
    assert_eq!(places(&rig, id), after);
    assert_ne!(after, before);
    drop(volume);
    rig.reopen();
    assert_eq!(read(&rig, there, 4096, 1), [1]);
    assert_eq!(read(&rig, id, 4096, 1), [4]);
    rig.assert_sound();
}

// NOCOW-3
#[test]
fn nothing_is_overwritten_while_a_snapshot_is_made() {
    let rig = rig();
    let id = rig.file(NOCOW);
    write(&rig, id, 0, 1, MIB as usize);
    let before = places(&rig, id);
    let tree = rig.volume().subvolume_tree(RootId::FS_TREE).unwrap();
    {
        let _snapshot = tree.nocow_lock.write();
        write(&rig, id, 8192, 2, 4096);
    }
    assert_ne!(places(&rig, id), before);
    let after = places(&rig, id);
    write(&rig, id, 8192, 3, 4096);
    assert_eq!(places(&rig, id), after);
    rig.assert_sound();
}

// NOCOW-1
#[test]
fn a_clone_keeps_what_it_shares() {
    for synced in [false, true] {
        let rig = rig();
        let volume = rig.volume();
        let (one, two) = (rig.file(NOCOW), rig.file(NOCOW));
        write(&rig, one, 0, 1, MIB as usize);
        // Fill the cache of exclusive extents.
        write(&rig, one, 0, 1, 4096);
        if synced {
            volume.sync().unwrap();
        }
        volume.clone_range(one, 0, 0, two, 0).unwrap();
        for round in 0..2 {
            write(&rig, one, 4096, 2, 4096);
            write(&rig, two, 8192, 3, 4096);
            assert_eq!(read(&rig, two, 4096, 1), [1], "round {round}");
            assert_eq!(read(&rig, one, 8192, 1), [1], "round {round}");
            rig.assert_sound();
        }
    }
}

#[test]
fn reserved_space_is_written_where_it_lies() {
    for flags in [InodeFlags::empty(), NOCOW] {
        let mut rig = rig();
        let id = rig.file(flags);
        let reserve = Fallocate::Reserve { keep_size: true };
        rig.volume().fallocate(id, reserve, 0, MIB).unwrap();
        let before = places(&rig, id);
        assert_eq!(before.len(), 1);
        assert_eq!(read(&rig, id, 0, 10), []);
        write(&rig, id, 16384, 7, 8192);
        let after = places(&rig, id);
        let written = (16384, Logical(before[0].1.0 + 16384), 8192, false);
        assert_eq!(after[1], written);
        assert!(after[0].3 && after[2].3 && after.len() == 3);
        assert_eq!(read(&rig, id, 16383, 2), [0, 7]);
        // Written in pieces, it becomes a single extent again.
        write(&rig, id, 0, 7, 16384);
        write(&rig, id, 24576, 7, MIB as usize - 24576);
        assert_eq!(places(&rig, id), [(0, before[0].1, MIB, false)]);
        rig.assert_sound();
        rig.reopen();
        assert_eq!(read(&rig, id, 0, MIB as usize), vec![7; MIB as usize]);
        let again = places(&rig, id);
        write(&rig, id, 4096, 8, 4096);
        assert_eq!(places(&rig, id) == again, flags == NOCOW);
        rig.assert_sound();
    }
}

#[test]
fn reserving_twice_takes_no_more_space() {
    let rig = rig();
    let id = rig.file(InodeFlags::empty());
    let reserve = Fallocate::Reserve { keep_size: false };
    write(&rig, id, 100_000, 1, 5000);
    rig.volume().fallocate(id, reserve, 0, MIB).unwrap();
    let before = places(&rig, id);
    rig.volume().fallocate(id, reserve, 4096, MIB / 2).unwrap();
    assert_eq!(places(&rig, id), before);
    assert_eq!(rig.volume().attr(id).unwrap().nbytes, MIB);
    rig.assert_sound();
}

/// A nocow write finds its block group with one look-up. It takes neither the group's lock nor the lock of
/// all groups, so concurrent writes, allocations and new chunks do not slow it down.
#[test]
fn a_nocow_write_looks_for_its_block_group_once_and_takes_no_lock_of_it() {
    let rig = rig();
    let (one, two) = (rig.file(NOCOW), rig.file(NOCOW));
    // More than one block group.
    for id in [one, two] {
        write(&rig, id, 0, 1, 60 * MIB as usize);
    }
    rig.volume().sync().unwrap();
    let space = &rig.volume().inodes.transactions().unwrap().space;
    let group = |id| space.find(places(&rig, id)[0].1).unwrap().start();
    assert_ne!(group(one), group(two));
    let writes = |id| {
        let lookups = |write: &dyn Fn()| {
            let before = space.group_lookups();
            write();
            space.group_lookups() - before
        };
        let volume = rig.volume();
        let small = || volume.write_direct(id, SECTOR, &[2; 4096]).unwrap();
        let large = || volume.write(id, 2 * MIB, &vec![3; 2 << 20]).unwrap();
        let buffered = || write(&rig, id, MIB + 100, 4, 10);
        [lookups(&small), lookups(&large), lookups(&buffered)]
    };
    let before = places(&rig, one);
    // Each extent is looked up once before it is cached as exclusive.
    writes(one);
    writes(two);
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        space.with_groups_locked(|| {
            scope.spawn(|| send.send([one, two].map(writes)));
            let counts = receive.recv_timeout(Duration::from_secs(60));
            assert_eq!(counts.expect("no lock is waited for"), [[1; 3]; 2]);
        });
    });
    assert_eq!(places(&rig, one), before);
    assert_eq!(read(&rig, two, 2 * MIB - 1, 2), [1, 3]);
    rig.assert_sound();
}

/// The item of an extent does not change with a nocow write.
#[test]
fn a_nocow_write_leaves_the_extent_tree_alone() {
    let rig = rig();
    let id = rig.file(NOCOW);
    write(&rig, id, 0, 1, MIB as usize);
    rig.volume().sync().unwrap();
    let [(_, logical, ..)] = places(&rig, id)[..] else {
        panic!("one extent");
    };
    let tree = rig.volume().tree(RootId::EXTENT_TREE).unwrap();
    let key = Key::new(logical.0, KeyType::EXTENT_ITEM, MIB);
    let before = tree.view.get(&key).unwrap().unwrap().to_vec();
    let root = tree.view.committed();
    write(&rig, id, 4096, 2, 4096);
    assert_eq!(tree.view.committed(), root);
    rig.volume().sync().unwrap();
    assert_eq!(*tree.view.get(&key).unwrap().unwrap(), before[..]);
}

// NOCOW-2
#[test]
fn extents_that_a_clone_shared_are_remembered_until_the_commit_only() {
    const EXTENTS: u64 = 3 * 4096;
    let rig = rig();
    let (volume, [src, dst]) = (rig.volume(), [0, 1].map(|_| rig.file(InodeFlags::empty())));
    let reserve = Fallocate::Reserve { keep_size: false };
    for at in 0..EXTENTS {
        volume
            .fallocate(src, reserve, at * 2 * SECTOR, SECTOR)
            .unwrap();
    }
    volume.sync().unwrap();
    volume.clone_range(src, 0, 0, dst, 0).unwrap();
    assert_eq!(
        volume.inodes.transactions().unwrap().shared_extents.len(),
        EXTENTS as usize
    );
    volume.sync().unwrap();
    assert_eq!(
        volume.inodes.transactions().unwrap().shared_extents.len(),
        0
    );
    write(&rig, src, 0, 7, SECTOR as usize);
    assert!(
        read(&rig, dst, 0, SECTOR as usize)
            .iter()
            .all(|&byte| byte == 0)
    );
    rig.assert_sound();
}

/// Creates a volume with two files that are overwritten in place.
fn recorded() -> (Recorded, [FileId; 2]) {
    let recorded = Recorded::open(&options().no_data_cow(true));
    let files = ["a", "b"].map(|name| recorded.file(name, MIB));
    recorded.volume.sync().unwrap();
    (recorded, files)
}

/// Buffers new contents of a sector in each file, and commits everything except that data.
fn overwrite(volume: &Volume, files: [FileId; 2]) {
    for file in files {
        volume.write(file, 0, &[2; 4096]).unwrap();
    }
    volume
        .inodes
        .transactions()
        .unwrap()
        .commit_running()
        .unwrap();
}

#[test]
fn data_written_in_place_is_flushed_before_it_is_called_durable() {
    type End = fn(&Volume, FileId) -> Result<()>;
    let ends: [(&str, End); 4] = [
        ("fsync", |volume, file| volume.fsync(file)),
        ("sync", |volume, _| volume.sync()),
        ("write-back, sync", |volume, _| {
            volume.files.write_back_all()?;
            volume.sync()
        }),
        ("close", |volume, _| volume.close()),
    ];
    let (recorded, files) = recorded();
    for (mark, (name, end)) in (1..).zip(ends) {
        overwrite(&recorded.volume, files);
        recorded.recorder.mark(mark);
        end(&recorded.volume, files[0]).unwrap();
        let mut events = recorded.requests_since(mark).into_iter();
        assert!(events.any(|event| is_write(&event)), "{name}");
        let is_flush = |event| matches!(event, Event::Flush { .. });
        assert!(events.any(is_flush), "{name}");
    }
}

/// WRITER-4
#[test]
fn a_flush_is_for_writes_before_its_beginning() {
    let (recorded, files) = recorded();
    let (device, volume) = (&recorded.device, &recorded.volume);
    overwrite(volume, files);
    let first = volume.inodes.get(files[0]).unwrap();
    volume.files.write_back(&first).unwrap();
    let before = recorded.flushes();
    device.hold_next();
    thread::scope(|scope| {
        scope.spawn(|| volume.fsync(files[0]).unwrap());
        device.wait_for_waiter();
        volume.files.write_back_all().unwrap();
        for _ in 0..3 {
            scope.spawn(|| volume.fsync(files[1]).unwrap());
        }
        device.release();
    });
    assert_eq!(recorded.flushes() - before, 2);
}
