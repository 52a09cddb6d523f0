//! RAID1 volumes with one device that fails during writes. No synced data is lost, and no stale data is read
//! from that device.

use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, RootId};
use ubtrfs_format::item::InodeFlags;
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use ubtrfs_fs::{FileId, FullCommitReason, NewInode, OpenOptions, Volume};
use ubtrfs_sim::fault::{Fault, FaultDevice};
use ubtrfs_storage::testing::{Failpoint, at_failpoints};

use crate::devices::{Devices, Layout, MIB, MIRROR_FAULTS, check_but, named, open, quiet};

const LEN: usize = 9000;

struct Mirrored {
    good: Vec<Arc<MemDevice>>,
    faulty: Vec<Arc<FaultDevice>>,
}

impl Mirrored {
    fn new() -> Mirrored {
        let layout = Layout::new(2, 256 * MIB).profiles(Profile::Raid1, Profile::Raid1);
        Self::on(layout.make().into_iter().map(Arc::new).collect())
    }

    fn on(good: Vec<Arc<MemDevice>>) -> Mirrored {
        let faulty = good.iter().cloned();
        let faulty = faulty.map(|device| Arc::new(FaultDevice::new(device)));
        Mirrored {
            faulty: faulty.collect(),
            good,
        }
    }

    fn open(&self) -> Arc<Volume> {
        let devices = self.faulty.iter().cloned();
        let devices: Devices = devices
            .map(|device| device as Arc<dyn BlockDevice>)
            .collect();
        open(&devices, &options()).unwrap()
    }

    /// Copies the current contents of the devices.
    fn cut(&self) -> Devices {
        let copies = self.good.iter().map(|device| MemDevice::clone(device));
        copies
            .map(|device| Arc::new(device) as Arc<dyn BlockDevice>)
            .collect()
    }
}

fn options() -> OpenOptions {
    quiet().fsync_log(true)
}

/// Opens the volume without the device at an index.
fn open_without(devices: &Devices, lost: usize) -> Arc<Volume> {
    let mut left = named(devices);
    left.remove(lost);
    Volume::from_devices(left, &options().degraded(true)).unwrap()
}

fn create(volume: &Volume, name: &str, flags: InodeFlags) -> FileId {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let new = NewInode::file(0o644);
    let id = volume.create(top, name.as_bytes(), &new).unwrap();
    volume.set_inode_flags(id, flags).unwrap();
    id
}

fn content(number: u8) -> Vec<u8> {
    vec![number; LEN]
}

fn read(volume: &Volume, name: &str) -> Vec<u8> {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let id = volume.lookup(top, name.as_bytes()).unwrap().unwrap();
    let mut bytes = vec![0; LEN];
    let len = volume.read(id, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// WRITE-3, LOG-6
#[test]
fn every_fsync_succeeds_and_holds_while_one_device_fails() {
    let everything = 0..u64::MAX;
    let first = SUPERBLOCK_OFFSETS[0];
    let superblock = first..first + SUPERBLOCK_SIZE as u64;
    type Planted = Box<dyn Fn(&FaultDevice) -> Fault>;
    let kinds: [(&str, Planted); 4] = [
        (
            "writes",
            Box::new(move |_| Fault::WriteRange {
                range: everything.clone(),
            }),
        ),
        (
            "superblocks",
            Box::new(move |_| Fault::WriteRange {
                range: superblock.clone(),
            }),
        ),
        (
            "one flush",
            Box::new(|device| Fault::Flush {
                nth: device.counts().flushes,
            }),
        ),
        ("everything", Box::new(|_| Fault::Gone)),
    ];
    for (kind, fault) in &kinds {
        for failing in 0..2 {
            let devices = Mirrored::new();
            let volume = devices.open();
            let write = |number: u8| {
                let file = create(&volume, &format!("f{number}"), InodeFlags::empty());
                volume.write(file, 0, &content(number)).unwrap();
                let synced = volume.fsync(file);
                synced.unwrap_or_else(|error| panic!("{kind} of {failing}, {number}: {error}"));
                let after_cut = open(&devices.cut(), &options()).unwrap();
                for number in 1..=number {
                    assert_eq!(read(&after_cut, &format!("f{number}")), content(number));
                }
            };
            write(1);
            let device = &devices.faulty[failing];
            device.add(fault(device));
            (2..8).for_each(write);
            let counts = volume
                .pool()
                .error_counts(DevId(failing as u64 + 1))
                .unwrap();
            assert!(counts[0] + counts[2] > 0, "{kind}: {counts:?}");
            device.heal();
            (8..12).for_each(write);
            volume.sync().unwrap();
            drop(volume);
            check_but(&devices.cut(), &MIRROR_FAULTS).unwrap();
            let left = open_without(&devices.cut(), failing);
            assert_eq!(read(&left, "f11"), content(11));
        }
    }
}

/// WRITE-3
#[test]
fn volume_is_aborted_if_the_only_copy_may_be_lost() {
    let layout = Layout::new(2, 256 * MIB).profiles(Profile::Raid0, Profile::Raid1);
    let devices = Mirrored::on(layout.make().into_iter().map(Arc::new).collect());
    let volume = devices.open();
    let file = create(&volume, "f", InodeFlags::empty());
    volume.write(file, 0, &content(1)).unwrap();
    let device = &devices.faulty[1];
    let nth = device.counts().flushes;
    device.add(Fault::Flush { nth });
    assert!(volume.fsync(file).is_err());
    assert!(volume.fsync(file).is_err());
}

/// LOG-6: another thread's flush between the log's blocks and the log's own flush was the one to report their
/// loss.
#[test]
fn no_log_is_written_whose_blocks_a_tolerated_flush_may_have_lost() {
    let devices = Mirrored::new();
    let volume = devices.open();
    let file = create(&volume, "f", InodeFlags::empty());
    volume.sync().unwrap();
    volume.write(file, 0, &content(1)).unwrap();
    let (flushing, device) = (Arc::clone(&volume), Arc::clone(&devices.faulty[1]));
    let hooked = at_failpoints(move |step| {
        if step == Failpoint::LogBlocksWritten {
            let nth = device.counts().flushes;
            device.add(Fault::Flush { nth });
            assert!(flushing.pool().flush().unwrap().all().is_err());
        }
        Ok(())
    });
    volume.fsync(file).unwrap();
    drop(hooked);
    let stats = volume.writer_stats().unwrap();
    assert_eq!(stats.full_commits[FullCommitReason::Failed as usize], 1);
    assert_eq!(stats.logs, 0);
}

/// MISSED-2
#[test]
fn overwrite_without_checksums_that_a_mirror_missed_is_an_error() {
    let nodatacow = InodeFlags::NODATACOW;
    for failing in 0..2 {
        for is_flush in [false, true] {
            let devices = Mirrored::new();
            let volume = devices.open();
            let file = create(&volume, "unsummed", nodatacow);
            let summed = create(&volume, "summed", InodeFlags::empty());
            volume.write(file, 0, &content(1)).unwrap();
            volume.fsync(file).unwrap();
            let device = &devices.faulty[failing];
            if is_flush {
                let nth = device.counts().flushes;
                device.add(Fault::Flush { nth });
            } else {
                let range = MIB..u64::MAX;
                device.add(Fault::WriteRange { range });
            }
            if !is_flush {
                volume.write(summed, 0, &content(1)).unwrap();
                volume.fsync(summed).unwrap();
            }
            volume.write(file, 0, &content(2)).unwrap();
            assert!(volume.fsync(file).is_err(), "{failing}, flush: {is_flush}");
            device.heal();
            if !is_flush {
                volume.write(file, 0, &content(3)).unwrap();
                volume.fsync(file).unwrap();
                drop(volume);
                for lost in 0..2 {
                    let left = open_without(&devices.cut(), lost);
                    assert_eq!(read(&left, "unsummed"), content(3));
                }
            }
        }
    }
}

/// MISSED-1: the device does not know which writes it missed, so the volume remembers this until the counts
/// are reset.
#[test]
fn device_that_was_missing_is_not_believed_where_nothing_tells_old_data() {
    let nodatacow = InodeFlags::NODATACOW;
    for lost in 0..2 {
        let devices = Mirrored::new();
        let volume = devices.open();
        let file = create(&volume, "f", nodatacow);
        volume.write(file, 0, &content(1)).unwrap();
        volume.sync().unwrap();
        drop(volume);
        let devices = devices.cut();
        let volume = open_without(&devices, lost);
        volume.write(file, 0, &content(2)).unwrap();
        volume.sync().unwrap();
        drop(volume);
        let devid = DevId(lost as u64 + 1);
        for round in 0..3 {
            let volume = open(&devices, &options()).unwrap();
            assert_eq!(
                read(&volume, "f"),
                content(2),
                "device {devid}, round {round}"
            );
            let [.., generation] = volume.pool().error_counts(devid).unwrap();
            assert_eq!(generation, 1);
            create(&volume, &format!("commit {round}"), InodeFlags::empty());
            volume.sync().unwrap();
        }
        let read_only = open(&devices, &OpenOptions::new()).unwrap();
        assert_eq!(
            read(&read_only, "f"),
            content(2),
            "device {devid}, read-only"
        );
        drop(read_only);
        let volume = open(&devices, &options()).unwrap();
        volume.pool().reset_error_counts(devid);
        create(&volume, "reset", InodeFlags::empty());
        volume.sync().unwrap();
        drop(volume);
        let volume = open(&devices, &options()).unwrap();
        assert_eq!(volume.pool().error_counts(devid), Some([0; 5]));
    }
}
