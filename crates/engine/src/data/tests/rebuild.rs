//! The commit that gives a volume a free-space tree, and chunks that it has in memory only.

use std::sync::Arc;

use ubtrfs_device::MemDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_sim::kernel::{self, Feature, KernelVolume, MkfsSpec};

use super::rig::{MIB, assert_sound, new_device, options};
use crate::mkfs::MkfsOptions;
use crate::{NewInode, Volume};

/// Has space of a new chunk promised to one file, and syncs another.
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
