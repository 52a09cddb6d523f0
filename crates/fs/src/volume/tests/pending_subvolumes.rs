//! Subvolumes and snapshots that a commit creates, with concurrent changes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ubtrfs_device::MemDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_sim::HookedDevice;

use super::{new_device, open, options};
use crate::{NewInode, OpenOptions, Volume};

/// The items of trees without edits.
#[test]
fn source_of_a_snapshot_is_committed_as_it_was_at_the_freeze() {
    let memory = new_device("");
    let volume = open(&memory, &options());
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let dir = NewInode::directory(0o755);
    let source = volume.create_subvolume(top, b"source", &dir).unwrap();
    drop(volume);
    let device = Arc::new(HookedDevice::new(memory.clone()));
    let devices = vec![(PathBuf::from("memory"), device.clone() as _)];
    let volume = Volume::from_devices(devices, &options()).unwrap();
    // Allocate a block before the commit looks at pending subvolumes, so that the free space is loaded.
    volume.create(top, b"file", &NewInode::file(0o644)).unwrap();
    let is_done = Arc::new(AtomicBool::new(false));
    let frozen = volume.inodes.transactions().unwrap().running_transid();
    let (weak, done) = (Arc::downgrade(&volume), Arc::clone(&is_done));
    device.hook(move |_| {
        let Some(volume) = weak.upgrade() else {
            return;
        };
        let is_frozen = volume.inodes.transactions().unwrap().running_transid() > frozen;
        if is_frozen && !done.swap(true, Ordering::Relaxed) {
            volume.set_read_only(source, true).unwrap();
        }
    });
    volume.snapshot(source, top, b"copy", false).unwrap();
    device.unhook();
    assert!(is_done.load(Ordering::Relaxed));
    let is_read_only = || {
        let durable = open(&Arc::new(MemDevice::clone(&memory)), &OpenOptions::new());
        durable.subvolume_tree(source).unwrap().is_read_only()
    };
    assert!(!is_read_only());
    volume.sync().unwrap();
    assert!(is_read_only());
}
