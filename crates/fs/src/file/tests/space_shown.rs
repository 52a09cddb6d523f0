//! The values of `statfs`, and when they change.

use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_storage::FileId;

use super::fixture::{MIB, Rig, options};
use crate::file::Fallocate;

/// A few tree blocks more or less.
const NEAR: u64 = MIB;

struct World {
    rig: Rig,
}

impl World {
    fn new() -> World {
        World {
            rig: Rig::on(&MkfsOptions::default(), 512 * MIB, options()),
        }
    }

    fn file(&self) -> FileId {
        self.rig.file(InodeFlags::empty())
    }

    /// Asserts that `free_bytes` and `available_bytes` are less than `before` by about `taken`.
    #[track_caller]
    fn assert_taken(&self, before: (u64, u64), taken: u64) {
        let now = self.shown();
        for (now, before) in [(now.0, before.0), (now.1, before.1)] {
            let found = before - now;
            assert!(found.abs_diff(taken) <= NEAR, "{found}, not {taken}");
        }
    }

    fn shown(&self) -> (u64, u64) {
        let statfs = self.rig.volume().statfs().unwrap();
        (statfs.free_bytes, statfs.available_bytes)
    }

    fn used_data(&self) -> u64 {
        let infos = self.rig.volume().profile_usages().unwrap();
        infos[0].used
    }
}

#[test]
fn allocated_space_counts_before_it_is_committed() {
    let world = World::new();
    let volume = world.rig.volume();
    let (before, commits) = (world.shown(), volume.writer_stats().unwrap().commits);
    let direct = world.file();
    volume
        .write_direct(direct, 0, &vec![1; 40 * MIB as usize])
        .unwrap();
    world.assert_taken(before, 40 * MIB);
    assert_eq!(world.used_data(), 40 * MIB);
    let reserved = world.file();
    let reserve = Fallocate::Reserve { keep_size: false };
    volume.fallocate(reserved, reserve, 0, 30 * MIB).unwrap();
    world.assert_taken(before, 70 * MIB);
    // New chunks are created for it.
    let large = world.file();
    volume.fallocate(large, reserve, 0, 200 * MIB).unwrap();
    world.assert_taken(before, 270 * MIB);
    assert_eq!(volume.writer_stats().unwrap().commits, commits);
    volume.sync().unwrap();
    world.assert_taken(before, 270 * MIB);
    assert_eq!(world.used_data(), 270 * MIB);
}

#[test]
fn buffered_data_counts_once_it_is_written_back() {
    let world = World::new();
    let volume = world.rig.volume();
    let before = world.shown();
    let file = world.file();
    volume.write(file, 0, &vec![1; MIB as usize / 2]).unwrap();
    assert_eq!(world.shown(), before);
    volume.files.write_back_all().unwrap();
    assert_eq!(world.used_data(), MIB / 2);
}

#[test]
fn freed_space_counts_with_the_first_commit() {
    let mut world = World::new();
    let before = world.shown();
    for name in [b"f0", b"f1"] {
        let file = world.file();
        let volume = world.rig.volume();
        volume
            .write_direct(file, 0, &vec![1; 40 * MIB as usize])
            .unwrap();
        if name == b"f0" {
            // This group is not loaded when space in it is freed.
            world.rig.reopen();
        }
    }
    let volume = world.rig.volume();
    let top = volume
        .root_dir(ubtrfs_format::ids::RootId::FS_TREE)
        .unwrap();
    for name in [b"f0", b"f1"] {
        volume.unlink(top, name).unwrap();
    }
    volume.sync().unwrap();
    world.assert_taken(before, 0);
    assert_eq!(world.used_data(), 0);
}
