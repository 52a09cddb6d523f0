//! Writes without space: the caller gets the error, and no other data is lost. No write fails because other
//! threads hold space for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{Request, Rng, seed};
use ubtrfs_storage::{EditEstimate, FileId};

use super::fixture::{MIB, Rig, options};
use crate::file::Fallocate;
use crate::file::write::WriteTarget;
use crate::inode::DelallocReservation;
use crate::{BlockGroupType, Volume};

const NOCOW: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);
const SECTOR: u64 = 4096;

fn rig() -> Rig {
    Rig::on(&MkfsOptions::default(), 128 * MIB, options())
}

fn file_of(rig: &Rig, flags: InodeFlags, bytes: &[u8]) -> FileId {
    let id = rig.file(flags);
    rig.volume().write(id, 0, bytes).unwrap();
    rig.volume().sync().unwrap();
    id
}

fn read(volume: &Volume, id: FileId, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xaa; len];
    let len = volume.read(id, offset, &mut buf).unwrap();
    buf.truncate(len);
    buf
}

/// Reserves all data space except `left` bytes, rounded to whole sectors.
pub(super) fn take_all_but(volume: &Volume, left: u64) -> Vec<DelallocReservation> {
    let left = left.next_multiple_of(SECTOR);
    let kept = DelallocReservation::make(
        &volume.inodes,
        RootId::FS_TREE,
        left,
        EditEstimate::default(),
    )
    .unwrap();
    let mut taken = Vec::new();
    for step in [MIB, SECTOR] {
        while let Ok(delalloc) = DelallocReservation::make(
            &volume.inodes,
            RootId::FS_TREE,
            step,
            EditEstimate::default(),
        ) {
            taken.push(delalloc);
        }
    }
    drop(kept);
    taken
}

fn is_no_space<T: std::fmt::Debug>(outcome: crate::Result<T>) -> bool {
    outcome.unwrap_err().is_no_space()
}

/// Data is buffered again after each write-back.
#[test]
fn refused_write_takes_nothing_along_while_others_go_on_writing() {
    let rig = rig();
    let volume = Arc::clone(rig.volume());
    let id = file_of(&rig, NOCOW, &vec![1; MIB as usize]);
    let taken = take_all_but(&volume, 64 * SECTOR);
    let round = Arc::new(AtomicU64::new(0));
    let write = {
        let (volume, round) = (Arc::clone(&volume), Arc::clone(&round));
        move || {
            let value = round.fetch_add(1, Ordering::Relaxed) + 1;
            volume.write(id, 5000, &value.to_le_bytes()).unwrap();
        }
    };
    write();
    rig.hooked.hook(move |request| {
        if request == Request::Write {
            write();
        }
    });
    // The write finds no space beyond the file's end.
    let refused = volume.write(id, MIB - 1, &vec![9; MIB as usize]);
    rig.hooked.unhook();
    assert!(is_no_space(refused));
    volume.fsync(id).unwrap();
    let last = round.load(Ordering::Relaxed);
    assert_eq!(read(&volume, id, 5000, 8), last.to_le_bytes());
    assert_eq!(volume.attr(id).unwrap().size, MIB);
    drop(taken);
    rig.assert_sound();
}

#[test]
fn nocow_write_joins_what_is_buffered() {
    for is_appended in [false, true] {
        let mut rig = rig();
        let volume = Arc::clone(rig.volume());
        let id = file_of(&rig, NOCOW, &[1; 80_000]);
        let mut model = vec![1; 80_000];
        for at in [5000, 21_000, 40_960] {
            volume.write(id, at as u64, &[2; 3000]).unwrap();
            model[at..at + 3000].fill(2);
        }
        if is_appended {
            volume.write(id, 80_000, &[4; 5000]).unwrap();
            model.resize(85_000, 4);
        }
        let taken = take_all_but(&volume, 0);
        let inode = volume.inodes.get(id).unwrap();
        let write = |offset: usize, len: usize| {
            let need = DelallocReservation::nocow(
                &volume.inodes,
                RootId::FS_TREE,
                100_000,
                volume.inodes.cost_of_times(),
            )
            .unwrap();
            let target = WriteTarget::At(offset as u64);
            volume
                .files
                .write_nocow_only(&inode, target, &vec![3; len], need)
        };
        write(6000, 50_001).unwrap();
        model[6000..56_001].fill(3);
        assert!(read(&volume, id, 0, 100_000) == model);
        // All of its sectors are dirty.
        write(5100, 100).unwrap();
        model[5100..5200].fill(3);
        assert!(is_no_space(write(70_000, 50_000)));
        assert!(read(&volume, id, 0, 100_000) == model);
        drop((taken, inode));
        rig.assert_sound();
        assert!(read(&volume, id, 0, 100_000) == model);
        drop(volume);
        rig.reopen();
        assert!(read(rig.volume(), id, 0, 100_000) == model);
    }
}

/// The sector of its old end would have to be rewritten.
#[test]
fn file_that_cannot_grow_has_lost_nothing() {
    let rig = rig();
    let volume = rig.volume();
    let source = file_of(&rig, InodeFlags::empty(), &[2; 3 * SECTOR as usize]);
    let ids = [(); 3].map(|()| file_of(&rig, InodeFlags::empty(), &[1; 5000]));
    let taken = take_all_but(volume, 0);
    assert!(is_no_space(volume.truncate(ids[0], 100_000)));
    let reserve = Fallocate::Reserve { keep_size: false };
    assert!(is_no_space(volume.fallocate(ids[1], reserve, 0, 100_000)));
    assert!(is_no_space(volume.clone_range(source, 0, 0, ids[2], MIB)));
    for id in ids {
        volume.fsync(id).unwrap();
        assert_eq!(read(volume, id, 0, 10_000), [1; 5000]);
    }
    drop(taken);
    volume.truncate(ids[0], 100_000).unwrap();
    volume.fsync(ids[0]).unwrap();
    rig.assert_sound();
}

#[test]
fn copy_that_ends_for_want_of_space_tells_how_much_it_copied() {
    let rig = rig();
    let volume = rig.volume();
    let whole = 3 * SECTOR;
    let from = file_of(&rig, InodeFlags::empty(), &[2; 3 * SECTOR as usize + 100]);
    let to = file_of(&rig, InodeFlags::empty(), &[1; 10 * SECTOR as usize]);
    let taken = take_all_but(volume, 0);
    // A partial sector cannot be shared.
    assert_eq!(
        volume.copy_range(from, 0, whole + 100, to, 0).unwrap(),
        whole
    );
    assert!(is_no_space(volume.copy_range(from, whole, 100, to, whole)));
    assert_eq!(read(volume, to, whole - 1, 2), [2, 1]);
    drop(taken);
    rig.assert_sound();
}

#[test]
fn space_that_is_reserved_or_buffered_is_not_asked_for_again() {
    let rig = rig();
    let volume = rig.volume();
    let reserve = Fallocate::Reserve { keep_size: false };
    let id = rig.file(InodeFlags::empty());
    volume.write(id, 0, &vec![1; MIB as usize]).unwrap();
    let taken = take_all_but(volume, 16 * SECTOR);
    // First the range is buffered, then it has extents.
    volume.fallocate(id, reserve, 0, MIB).unwrap();
    volume.sync().unwrap();
    drop(taken);
    let other = rig.file(InodeFlags::empty());
    volume.fallocate(other, reserve, 0, MIB).unwrap();
    let taken = take_all_but(volume, 0);
    volume.fallocate(id, reserve, 0, MIB).unwrap();
    volume.fallocate(other, reserve, 5000, 100_000).unwrap();
    drop(taken);
    volume
        .write(other, 64 * SECTOR, &[3; SECTOR as usize])
        .unwrap();
    volume.sync().unwrap();
    let taken = take_all_but(volume, 16 * SECTOR);
    let zeros = Fallocate::ZeroRange { keep_size: true };
    volume.fallocate(other, zeros, 0, MIB).unwrap();
    assert_eq!(read(volume, other, 64 * SECTOR - 1, 3), [0; 3]);
    assert_eq!(read(volume, id, 0, 1), [1]);
    drop(taken);
    rig.assert_sound();
}

/// Other threads briefly read freed blocks, or have reserved more than they need.
#[test]
fn space_that_others_hold_for_a_moment_is_waited_for() {
    let rig = rig();
    let volume = rig.volume();
    let freed = file_of(&rig, InodeFlags::empty(), &vec![1; 4 * MIB as usize]);
    let ahead = rig.file(InodeFlags::empty());
    let new = rig.file(InodeFlags::empty());
    let taken = take_all_but(volume, 40 * SECTOR);
    // It continues a long piece, and so reserves ahead.
    volume.write(ahead, 0, &[1; 32 << 10]).unwrap();
    volume.write(ahead, 32 << 10, &[1; 4096]).unwrap();
    let committed = volume.inodes.transactions().unwrap().committed();
    let epoch = volume.node_store().epoch();
    thread::scope(|scope| {
        volume.truncate(freed, 0).unwrap();
        let manager = scope.spawn(|| volume.write(new, 0, &vec![2; 3 * MIB as usize]));
        while volume.inodes.transactions().unwrap().committed() == committed {
            thread::yield_now();
        }
        drop(epoch);
        manager.join().unwrap().unwrap();
    });
    drop(taken);
    rig.assert_sound();
}

/// The commit that the refused write makes has begun by then: only the next one makes the space available.
#[test]
fn space_that_others_free_during_a_commit_is_waited_for() {
    let rig = rig();
    let volume = Arc::clone(rig.volume());
    let freed = file_of(&rig, InodeFlags::empty(), &vec![1; 4 * MIB as usize]);
    let room = file_of(&rig, InodeFlags::empty(), &[1; 40 * SECTOR as usize]);
    let full = rig.file(InodeFlags::empty());
    let reserve = Fallocate::Reserve { keep_size: true };
    let mut len = 0;
    for step in [MIB, 4 * SECTOR] {
        while volume.fallocate(full, reserve, len, step).is_ok() {
            len += step;
        }
    }
    volume.truncate(room, 0).unwrap();
    volume.sync().unwrap();
    let new = rig.file(InodeFlags::empty());
    let is_freed = AtomicBool::new(false);
    let other = Arc::clone(&volume);
    rig.hooked.hook(move |request| {
        if request == Request::Flush && !is_freed.swap(true, Ordering::Relaxed) {
            other.truncate(freed, 0).unwrap();
        }
    });
    let written = volume.write(new, 0, &vec![2; 3 * MIB as usize]);
    rig.hooked.unhook();
    written.unwrap();
    assert_eq!(volume.attr(freed).unwrap().size, 0);
    rig.assert_sound();
}

/// The files of all threads use at most two thirds of the volume. Freed space becomes available after
/// commits, and after readers.
#[test]
fn writers_find_the_room_that_there_is() {
    const THREADS: u64 = 8;
    let options = options().commit_interval(Some(Duration::from_millis(20)));
    let rig = Rig::on(&MkfsOptions::default(), 128 * MIB, options);
    let volume = rig.volume();
    let totals = volume.inodes.transactions().unwrap().space.totals();
    let data = totals.iter().find(|sums| sums.kind == BlockGroupType::Data);
    let data = data.unwrap();
    let each = (data.free_bytes + data.unallocated_bytes) * 2 / 3 / THREADS;
    let ids: Vec<FileId> = (0..THREADS)
        .map(|_| rig.file(InodeFlags::empty()))
        .collect();
    let seed = seed("writers_find_the_room_that_there_is");
    thread::scope(|scope| {
        for (number, &id) in ids.iter().enumerate() {
            let mut rng = Rng::new(seed + number as u64);
            scope.spawn(move || {
                for _ in 0..8 {
                    let mut size = 0;
                    while size + (256 << 10) < each {
                        let len = 1 + rng.below(256 << 10);
                        match rng.below(4) {
                            0 => {
                                let mode = Fallocate::Reserve { keep_size: false };
                                volume.fallocate(id, mode, size, len).unwrap();
                            }
                            1 => {
                                let at = size.next_multiple_of(SECTOR);
                                let bytes = vec![1; len.next_multiple_of(SECTOR) as usize];
                                volume.write_direct(id, at, &bytes).unwrap();
                            }
                            _ => {
                                volume.append(id, &vec![1; len as usize]).unwrap();
                            }
                        }
                        size = volume.attr(id).unwrap().size;
                    }
                    match rng.below(2) {
                        0 => volume.truncate(id, 0).unwrap(),
                        _ => {
                            let mode = Fallocate::PunchHole;
                            volume.fallocate(id, mode, 0, size).unwrap();
                            volume.truncate(id, 0).unwrap();
                        }
                    }
                }
            });
        }
    });
    rig.assert_sound();
}
