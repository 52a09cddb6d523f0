//! A commit that creates a free-space tree, and chunks that exist only in memory.

use std::sync::Arc;

use ubtrfs_device::MemDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::kernel::{self, Feature, KernelVolume, MkfsSpec};

use super::fixture::{MIB, assert_sound, new_device, options};
use crate::{NewInode, Volume};

/// Reserves space of a new chunk for one file, and syncs another file.
fn promise_and_sync(volume: &Volume) {
    let chunks = || volume.pool().chunk_map().len();
    let before = chunks();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let create = |name: &[u8]| volume.create(top, name, &NewInode::file(0o644)).unwrap();
    let large = create(b"large");
    for at in 0..16 {
        let bytes = vec![at as u8; MIB as usize - 1];
        volume.write(large, at * MIB, &bytes).unwrap();
    }
    assert!(chunks() > before);
    let small = create(b"small");
    volume.write(small, 0, b"small").unwrap();
    volume.fsync(small).unwrap();
}

#[test]
fn nothing_is_said_of_chunks_that_are_not_committed() {
    let mut mkfs = MkfsOptions::default();
    let features = "^free-space-tree,^block-group-tree";
    mkfs.features.apply_list(features).unwrap();
    let device = new_device(&mkfs, 256 * MIB);
    let devices = vec![("memory".into(), device.clone() as _)];
    let volume = Volume::from_devices(devices, &options()).unwrap();
    promise_and_sync(&volume);
    assert_sound(&Arc::new(MemDevice::clone(&device)));
    volume.close().unwrap();
    assert_sound(&device);

    if !kernel::or_skip("a free-space tree beside new chunks") {
        return;
    }
    let spec = MkfsSpec::new()
        .device_bytes(256 << 20)
        .without(Feature::FreeSpaceTree);
    let made = KernelVolume::make(&spec).unwrap();
    let volume = Volume::open(made.devices(), &options()).unwrap();
    promise_and_sync(&volume);
    // As after a power cut.
    made.check().unwrap();
    drop(volume);
    made.check().unwrap();
}

#[test]
fn a_free_space_tree_is_made_anew_when_it_is_not_trusted() {
    let device = new_device(&MkfsOptions::default(), 256 * MIB);
    let open = |clears: bool| {
        let devices = vec![("memory".into(), device.clone() as _)];
        Volume::from_devices(devices, &options().clear_free_space_tree(clears)).unwrap()
    };
    open(false).close().unwrap();
    let volume = open(false);
    promise_and_sync(&volume);
    volume.close().unwrap();
    let place = |volume: &Volume| {
        let tree = volume.tree(RootId::FREE_SPACE_TREE).unwrap();
        tree.view.committed().bytenr
    };
    let before = place(&volume);
    drop(volume);

    // Nothing else has changed.
    let volume = open(true);
    volume.close().unwrap();
    assert_ne!(place(&volume), before);
    assert_eq!(volume.writer_stats().unwrap().commits, 1);
    drop(volume);
    assert_sound(&device);

    let volume = open(true);
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.unlink(top, b"large").unwrap();
    let file = volume.create(top, b"more", &NewInode::file(0o644)).unwrap();
    for at in 0..64 {
        volume.write(file, at * MIB, &[at as u8; 4096]).unwrap();
        volume.fsync(file).unwrap();
        assert_sound(&Arc::new(MemDevice::clone(&device)));
    }
    volume.close().unwrap();
    drop(volume);
    assert_sound(&device);
}
