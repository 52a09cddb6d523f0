//! Commits on a volume with cold caches.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::SlowDevice;

use super::fixture::{MIB, Rig, assert_sound, options};
use crate::{NewInode, Volume};

const FILES: usize = 6000;

#[test]
fn commit_reads_many_blocks_at_a_time() {
    let mkfs = MkfsOptions {
        nodesize: Some(4096),
        ..MkfsOptions::default()
    };
    let rig = Rig::on(&mkfs, 512 * MIB, options());
    let volume = rig.volume();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let name = |number: usize| format!("file {number}");
    for number in 0..FILES {
        let new = NewInode::file(0o644);
        let id = volume.create(top, name(number).as_bytes(), &new).unwrap();
        volume.write(id, 0, &[number as u8; 4096]).unwrap();
    }
    volume.sync().unwrap();
    let memory = Arc::clone(&rig.device);
    drop(rig);

    // Delete extents all over the extent tree and checksum tree, first without and then with a snapshot.
    for (round, most) in [(0, 40), (1, 40)] {
        let device = Arc::new(SlowDevice::new(memory.clone(), Duration::ZERO));
        let devices: Vec<(PathBuf, Arc<dyn BlockDevice>)> =
            vec![(PathBuf::from("memory"), device.clone())];
        let volume = Volume::from_devices(devices, &options()).unwrap();
        if round == 1 {
            volume
                .snapshot(RootId::FS_TREE, top, b"snapshot", true)
                .unwrap();
        }
        for number in (round..FILES).step_by(20) {
            volume.unlink(top, name(number).as_bytes()).unwrap();
        }
        let (waits, misses) = (device.waits(), volume.node_store().stats());
        volume.sync().unwrap();
        let waits = device.waits() - waits;
        let read = volume.node_store().stats();
        let blocks = read.misses - misses.misses + read.read_ahead - misses.read_ahead;
        println!("{blocks} blocks read in {waits} waits");
        assert!(blocks > 100, "{blocks}");
        assert!(waits < most, "{waits}");
        volume.close().unwrap();
    }
    assert_sound(&memory);
}
