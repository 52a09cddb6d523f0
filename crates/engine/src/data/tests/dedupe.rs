//! Comparing files, which may take long.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use ubtrfs_format::ids::RootId;
use ubtrfs_sim::{HookedDevice, Request};

use super::rig::{MIB, new_device, options};
use crate::mkfs::MkfsOptions;
use crate::{NewInode, Volume};

/// What is freed while one part is compared is given out while the others are.
#[test]
fn comparing_keeps_back_nothing_that_is_freed_meanwhile() {
    let memory = new_device(&MkfsOptions::default(), 512 * MIB);
    let device = Arc::new(HookedDevice::new(memory));
    let devices = vec![(PathBuf::from("memory"), device.clone() as _)];
    let volume = Volume::from_devices(devices, &options()).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let [src, dst, _] = [b"src", b"dst", b"old"].map(|name| {
        let id = volume.create(top, name, &NewInode::file(0o644)).unwrap();
        volume.write(id, 0, &vec![1; 4 * MIB as usize]).unwrap();
        id
    });
    volume.sync().unwrap();
    let (reads, pinned) = (AtomicUsize::new(0), Arc::new(AtomicU64::new(0)));
    let (weak, least) = (Arc::downgrade(&volume), Arc::clone(&pinned));
    // Those within the hook count for nothing.
    let alone = Mutex::new(());
    device.hook(move |request| {
        let (Ok(_alone), Request::Read) = (alone.try_lock(), request) else {
            return;
        };
        let volume = weak.upgrade().unwrap();
        let pinned = || {
            let totals = volume.writer().unwrap().space.totals();
            totals.iter().map(|class| class.pinned).sum::<u64>()
        };
        match reads.fetch_add(1, Relaxed) {
            8 => {
                volume.unlink(top, b"old").unwrap();
                volume.commit_running().unwrap();
                assert!(pinned() > 4 * MIB);
                least.store(pinned(), Relaxed);
            }
            number if number > 8 => {
                volume.release_freed();
                least.fetch_min(pinned(), Relaxed);
            }
            _ => {}
        }
    });
    assert!(volume.dedupe_range(src, 0, 4 * MIB, dst, 0).unwrap());
    device.unhook();
    assert_eq!(pinned.load(Relaxed), 0);
}
