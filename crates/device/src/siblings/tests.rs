//! Files of a folder that are and are not used as devices of a volume.

use std::fs::File;

use ubtrfs_format::superblock::{Superblock, flags};
use ubtrfs_format::uuid::Uuid;

use super::*;
use crate::file::FileDevice;
use crate::superblock::write_superblocks;
use crate::test_volume::{DEVICE_BYTES, superblock};

/// A generation that leaves room for older ones, above the chunk tree's.
const NOW: u64 = 20;

/// A folder with images.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Adds one of three devices.
    fn add(&self, name: &str, devid: u64, generation: u64) -> PathBuf {
        self.add_with(name, devid, |superblock| {
            superblock.generation = generation.into();
        })
    }

    fn add_with(&self, name: &str, devid: u64, edit: impl FnOnce(&mut Superblock)) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(DEVICE_BYTES).unwrap();
        let device = FileDevice::open(&path, Access::Write).unwrap();
        let mut superblock = superblock(devid, 3);
        edit(&mut superblock);
        superblock.seal();
        write_superblocks(&device, &path, &superblock).unwrap();
        path
    }

    fn found(&self, named: &str, access: Access) -> Result<Vec<PathBuf>, DeviceError> {
        siblings(&[self.path(named)], access)
    }
}

const BOTH: [Access; 2] = [Access::Read, Access::Write];

#[test]
fn devices_in_the_folder_are_found_once() {
    let folder = Folder::new();
    let wanted = [2, 3].map(|devid| folder.add(&format!("d{devid}"), devid, NOW));
    folder.add("d1", 1, NOW);
    std::os::unix::fs::symlink(folder.path("d2"), folder.path("link")).unwrap();
    std::fs::write(folder.path("d4"), "something else").unwrap();
    for access in BOTH {
        assert_eq!(folder.found("d1", access).unwrap(), wanted);
    }
    let all = ["d1", "d2", "d3"].map(|name| folder.path(name));
    assert!(siblings(&all, Access::Read).unwrap().is_empty());
    let other = siblings(&all[..2], Access::Read).unwrap();
    assert_eq!(other, wanted[1..]);
}

// SIBLING-2
#[test]
fn clones_as_new_as_each_other_are_refused() {
    let folder = Folder::new();
    for (name, devid) in [("d1", 1), ("d2", 2), ("d2.copy", 2), ("d3", 3)] {
        folder.add(name, devid, NOW);
    }
    for access in BOTH {
        let found = folder.found("d1", access);
        let Err(DeviceError::Ambiguous { devid, .. }) = found else {
            panic!("{found:?}");
        };
        assert_eq!(devid, DevId(2));
    }
}

#[test]
fn clone_of_another_time_is_passed_over() {
    let folder = Folder::new();
    folder.add("d1", 1, NOW);
    let wanted = [2, 3].map(|devid| folder.add(&format!("d{devid}"), devid, NOW));
    folder.add("d2.old", 2, NOW - 2);
    folder.add("d3.new", 3, NOW + 2);
    for access in BOTH {
        assert_eq!(folder.found("d1", access).unwrap(), wanted);
    }
}

// SIBLING-3: the state after a power cut between the superblock writes of two devices.
#[test]
fn device_of_another_generation_is_taken_if_it_is_the_only_one() {
    for other in [NOW - 5, NOW - 1, NOW + 1, NOW + 5] {
        let folder = Folder::new();
        folder.add("d1", 1, NOW);
        let wanted = [folder.add("d2", 2, other), folder.add("d3", 3, NOW)];
        for access in BOTH {
            assert_eq!(folder.found("d1", access).unwrap(), wanted);
        }
    }
}

// SIBLING-2, SIBLING-3
#[test]
fn none_of_two_devices_of_another_generation_is_guessed() {
    let folder = Folder::new();
    folder.add("d1", 1, NOW);
    folder.add("d2", 2, NOW - 1);
    folder.add("d2.old", 2, NOW - 2);
    folder.add("d3", 3, NOW);
    for access in BOTH {
        let found = folder.found("d1", access);
        assert!(
            matches!(found, Err(DeviceError::Ambiguous { .. })),
            "{found:?}"
        );
    }
}

// SIBLING-3: a backup must not be written together with devices that were written after it.
#[test]
fn newer_device_is_not_taken_beside_a_copy_of_an_earlier_time() {
    let folder = Folder::new();
    folder.add("d1", 1, NOW);
    folder.add("d1.old", 1, NOW - 3);
    let third = folder.add("d3", 3, NOW - 3);
    let second = folder.add("d2", 2, NOW);
    assert_eq!(
        folder.found("d1.old", Access::Write).unwrap(),
        std::slice::from_ref(&third)
    );
    let both = [third, second.clone()];
    assert_eq!(
        folder.found("d1", Access::Write).unwrap(),
        [second, both[0].clone()]
    );
}

// SIBLING-1
#[test]
fn similar_names_are_met_in_a_folder_of_many_files() {
    let folder = Folder::new();
    for number in 0..MAX_FILES + 10 {
        File::create(folder.path(&format!("another{number}"))).unwrap();
    }
    folder.add("disk1", 1, NOW);
    let wanted = [2, 3].map(|devid| folder.add(&format!("disk{devid}"), devid, NOW));
    assert_eq!(folder.found("disk1", Access::Read).unwrap(), wanted);
}

#[test]
fn device_of_a_seed_is_no_device_of_the_volume() {
    let folder = Folder::new();
    let first = folder.add("d1", 1, NOW);
    let second = [folder.add("d2", 2, NOW)];
    let other_fsid = Uuid([0x5e; 16]);
    let seed = folder.add_with("d3", 3, |superblock| {
        superblock.fsid = other_fsid;
        superblock.dev_item.fsid = other_fsid;
        superblock.flags = flags::SEEDING.into();
    });
    folder.add_with("d4", 3, |superblock| {
        superblock.fsid = other_fsid;
        superblock.dev_item.fsid = other_fsid;
    });
    let paths = |found: Vec<FoundDevice>| -> Vec<PathBuf> {
        found.into_iter().map(|device| device.path).collect()
    };
    let beside = all_siblings(&[first]);
    assert_eq!(paths(beside.of_volume), second);
    assert_eq!(paths(beside.seeds), [seed]);
    for access in BOTH {
        assert_eq!(folder.found("d1", access).unwrap(), second);
    }
}
