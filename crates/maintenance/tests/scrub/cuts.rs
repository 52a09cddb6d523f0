//! Power cuts during repairs: whatever was written, the next scrub completes the repair.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ubtrfs_device::BlockDevice;
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::RootId;
use ubtrfs_maintenance::scrub::{OfflineOptions, OfflineScrub, ScrubOptions};

use crate::fixture::{Disks, SECTOR, address_of, blocks_of, places};

/// A device that loses its power after a number of writes to any device: later ones have no effect, and the last one is
/// torn.
#[derive(Debug)]
struct CutDevice {
    inner: Arc<dyn BlockDevice>,
    left: Arc<AtomicI64>,
}

impl BlockDevice for CutDevice {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        match self.left.fetch_sub(1, Ordering::AcqRel) {
            ..=0 => Ok(()),
            1 => self.inner.write_at(&buf[..buf.len().min(512)], offset),
            _ => self.inner.write_at(buf, offset),
        }
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn cut_at_any_write_of_a_repair_is_harmless() {
    let sound = Disks::filled(2, Profile::Raid1, Profile::Raid1);
    let bytes = sound.bytes();
    let volume = sound.open();
    let mut damaged = Vec::new();
    for sector in 0..4 {
        damaged.push(places(&volume, address_of(&volume, sector * 16 * SECTOR))[0]);
    }
    damaged.push(places(&volume, blocks_of(&volume, RootId::FS_TREE)[0])[1]);
    drop(volume);
    for writes in 0.. {
        for (devid, bytes) in (1..).zip(&bytes) {
            sound.write(devid, bytes, 0);
        }
        for &(devid, physical) in &damaged {
            sound.write(devid, &[0x5a; 512], physical + 1024);
        }
        let left = Arc::new(AtomicI64::new(writes));
        let cut = sound.named().into_iter().map(|(path, inner)| {
            let left = Arc::clone(&left);
            let device: Arc<dyn BlockDevice> = Arc::new(CutDevice { inner, left });
            (path, device)
        });
        let cut: Vec<(PathBuf, Arc<dyn BlockDevice>)> = cut.collect();
        let scrub = OfflineScrub::from_devices(cut, &OfflineOptions::default()).unwrap();
        // The commit at the end may fail: it reads blocks that it has written.
        let _ = scrub.run(&ScrubOptions::default(), &mut ());
        let is_whole = left.load(Ordering::Acquire) > 0;
        if writes < 5 {
            assert!(!is_whole, "five repairs are five writes");
        }
        if writes <= 5 || is_whole {
            sound.repair();
            sound.assert_sound();
        }
        if is_whole || writes > 60 {
            break;
        }
    }
}
