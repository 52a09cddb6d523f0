//! Failing devices: the calls that report the error, and the state afterwards.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{InodeFlags, RootItemFlags};
use ubtrfs_format::node::{Header, ItemHead};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::fault::{Fault, FaultDevice};
use zerocopy::FromBytes;

use super::fixture::{MIB, assert_sound, new_device, options};
use super::refused::take_all_but;
use crate::file::Fallocate;
use crate::file::write::WriteTarget;
use crate::inode::{DelallocReservation, inode_key};
use crate::namespace::NewInode;
use crate::{Error, FileId, OpenFile, OpenOptions, RenameMode, Volume};

struct Broken {
    inner: Arc<ubtrfs_device::MemDevice>,
    device: Arc<FaultDevice>,
    volume: Arc<Volume>,
}

fn broken() -> Broken {
    broken_with(&options())
}

fn broken_with(options: &OpenOptions) -> Broken {
    let inner = new_device(&MkfsOptions::default(), 512 * MIB);
    let device = Arc::new(FaultDevice::new(inner.clone()));
    let shared: Arc<dyn BlockDevice> = device.clone();
    let devices = vec![(PathBuf::from("memory"), shared)];
    let volume = Volume::from_devices(devices, options).unwrap();
    Broken {
        inner,
        device,
        volume,
    }
}

impl Broken {
    fn file(&self, name: &str) -> FileId {
        let top = self.volume.root_dir(RootId::FS_TREE).unwrap();
        let new = NewInode::file(0o644);
        self.volume.create(top, name.as_bytes(), &new).unwrap()
    }

    fn read(&self, id: FileId) -> Vec<u8> {
        let mut buf = vec![0; MIB as usize];
        let len = self.volume.read(id, 0, &mut buf).unwrap();
        buf.truncate(len);
        buf
    }
}

// WRITEBACK-3
#[test]
fn lost_data_is_told_until_more_was_written_and_leaves_the_file_as_it_was() {
    let broken = broken();
    let volume = &broken.volume;
    let id = broken.file("f");
    volume.write(id, 0, &[1; 20_000]).unwrap();
    volume.sync().unwrap();
    volume.write(id, 10_000, &[2; 50_000]).unwrap();
    assert_eq!(volume.attr(id).unwrap().size, 60_000);
    let nth = broken.device.counts().writes;
    // Fail the batch, and then each write on its own.
    (nth..nth + 30).for_each(|nth| broken.device.add(Fault::Write { nth }));
    let outcome = volume.fsync(id);
    assert!(matches!(outcome, Err(Error::DataLost { file, .. }) if file == id));
    broken.device.heal();
    assert_eq!(broken.read(id), [1; 20_000]);
    // A separate sync has not reported the error yet.
    assert!(matches!(volume.fsync(id), Err(Error::DataLost { .. })));
    volume.write(id, 0, &[3; 10_000]).unwrap();
    volume.fsync(id).unwrap();
    volume.fsync(id).unwrap();
    assert_eq!(broken.read(id)[..10_001], [&[3; 10_000][..], &[1]].concat());
    assert_sound(&broken.inner);
}

#[test]
fn one_file_is_lost_and_others_of_its_batch_are_not() {
    let broken = broken();
    let volume = &broken.volume;
    let ids: Vec<FileId> = (0..10)
        .map(|number| broken.file(&number.to_string()))
        .collect();
    volume.sync().unwrap();
    for id in &ids {
        volume.write(*id, 0, &[5; 10_000]).unwrap();
    }
    let nth = broken.device.counts().writes;
    // Fail the first write of the batch and its repetition. Each file has whole sectors and a cut one.
    broken.device.add(Fault::Write { nth });
    broken.device.add(Fault::Write {
        nth: nth + 2 * ids.len() as u64,
    });
    let outcome = volume.sync();
    let lost: Vec<FileId> = ids
        .iter()
        .copied()
        .filter(|id| broken.read(*id).is_empty())
        .collect();
    let kept = ids
        .iter()
        .filter(|id| broken.read(**id) == [5; 10_000])
        .count();
    assert_eq!((lost.len(), kept), (1, 9), "{outcome:?}");
    assert!(outcome.is_err());
    // The sync has reported the error, and an fsync of the file reports it again.
    assert!(matches!(volume.fsync(lost[0]), Err(Error::DataLost { .. })));
    volume.sync().unwrap();
    assert_sound(&broken.inner);
}

/// The space of a failed file is released at once, and may be reused.
#[test]
fn nothing_more_is_written_of_a_file_that_failed() {
    let broken = broken();
    let volume = &broken.volume;
    let writes_of = |name: &str, fails: bool| {
        let id = broken.file(name);
        volume.write(id, 0, &[1; 8192]).unwrap();
        volume.write(id, MIB, &[2; 8192]).unwrap();
        let nth = broken.device.counts().writes;
        if fails {
            // Fail the batch, and the first write on its own.
            let batch = nth..nth + 2;
            batch.for_each(|nth| broken.device.add(Fault::Write { nth }));
            broken.device.add(Fault::Write { nth: nth + 2 });
        }
        assert_eq!(volume.files.write_back_all().is_err(), fails);
        broken.device.heal();
        broken.device.counts().writes - nth
    };
    assert_eq!(writes_of("sound", false), 2);
    assert_eq!(writes_of("failing", true), 2 + 1);
    volume.sync().unwrap();
    assert_sound(&broken.inner);
}

// WRITEBACK-3
#[test]
fn a_write_past_the_buffer_tells_its_caller() {
    let broken = broken();
    let volume = &broken.volume;
    let id = broken.file("f");
    volume.sync().unwrap();
    let nth = broken.device.counts().writes;
    (nth..nth + 8).for_each(|nth| broken.device.add(Fault::Write { nth }));
    assert!(volume.write(id, 0, &vec![1; 4 << 20]).is_err());
    broken.device.heal();
    assert_eq!(volume.attr(id).unwrap().size, 0);
    volume.fsync(id).unwrap();
    assert_sound(&broken.inner);
}

#[test]
fn a_sector_that_cannot_be_completed_is_lost_alone() {
    let broken = broken();
    let volume = &broken.volume;
    let (one, two) = (broken.file("one"), broken.file("two"));
    volume.write(one, 0, &[1; 100_000]).unwrap();
    volume.sync().unwrap();
    volume.write(one, 5000, &[2; 10]).unwrap();
    volume.write(two, 0, &[3; 100_000]).unwrap();
    // The rest of the sector is unreadable.
    broken.device.add(Fault::ReadRange {
        range: 0..512 * MIB,
    });
    assert!(volume.files.write_back_all().is_err());
    broken.device.heal();
    assert_eq!(broken.read(two), [3; 100_000]);
    assert_eq!(broken.read(one), [1; 100_000]);
    assert!(matches!(volume.fsync(one), Err(Error::DataLost { .. })));
    volume.fsync(two).unwrap();
    assert_sound(&broken.inner);
}

/// The next fsync of the file reports its loss, and no other operation.
#[test]
fn operations_on_subvolumes_do_not_report_the_loss_of_a_file() {
    let broken = broken();
    let volume = &broken.volume;
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let root = NewInode::directory(0o755);
    let source = volume.create_subvolume(top, b"source", &root).unwrap();
    let lose = |name: &str| {
        let id = broken.file(name);
        volume.sync().unwrap();
        volume.write(id, 0, &[1; 8192]).unwrap();
        let nth = broken.device.counts().writes;
        // The batch, and its repetition.
        (nth..nth + 2).for_each(|nth| broken.device.add(Fault::Write { nth }));
        id
    };
    let reports = |id| {
        broken.device.heal();
        assert!(matches!(volume.fsync(id), Err(Error::DataLost { file, .. }) if file == id));
    };
    let id = lose("snapshot");
    volume.snapshot(source, top, b"made", false).unwrap();
    reports(id);
    let id = lose("read-only");
    volume.set_read_only(source, true).unwrap();
    reports(id);
    let id = lose("group");
    volume.group(|| Ok::<(), Error>(())).unwrap();
    reports(id);
    assert_sound(&broken.inner);
}

/// Data stays buffered if its inode cannot be read. A snapshot without it would be incomplete, and a read-only
/// subvolume would still change.
#[test]
fn operations_on_subvolumes_fail_while_data_of_theirs_stays_buffered() {
    let broken = broken_with(&options().without_caches());
    let volume = &broken.volume;
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let root = NewInode::directory(0o755);
    let source = volume.create_subvolume(top, b"source", &root).unwrap();
    // With this number of files the leaf of one is not the root of the tree, and others replace it in the cache.
    let dir = volume.root_dir(source).unwrap();
    let new = NewInode::file(0o644);
    let ids: Vec<FileId> = (0..600)
        .map(|number| {
            volume
                .create(dir, format!("{number}").as_bytes(), &new)
                .unwrap()
        })
        .collect();
    let id = ids[200];
    volume.sync().unwrap();
    volume.write(id, 0, &[7; 8192]).unwrap();
    // The times of the write are committed, and its data stays buffered.
    volume
        .inodes
        .transactions()
        .unwrap()
        .commit_running()
        .unwrap();
    ids.iter().filter(|other| **other != id).for_each(|other| {
        volume.attr(*other).unwrap();
    });
    for leaf in broken.leaves_with(id) {
        broken.device.add(Fault::ReadRange { range: leaf });
    }
    assert!(volume.snapshot(source, top, b"fails", false).is_err());
    assert!(volume.set_read_only(source, true).is_err());
    let info = volume.subvolume_info(source).unwrap().unwrap();
    assert!(!info.item.flags().contains(RootItemFlags::RDONLY));
    assert!(volume.group(|| Ok::<(), Error>(())).is_err());
    broken.device.heal();
    let made = volume.snapshot(source, top, b"made", false).unwrap();
    let copy = FileId { root: made, ..id };
    assert_eq!(broken.read(copy), [7; 8192]);
    assert_sound(&broken.inner);
}

impl Broken {
    /// Returns the blocks on the device that are leaves with the inode of a file, of its tree.
    fn leaves_with(&self, id: FileId) -> Vec<Range<u64>> {
        const NODESIZE: u64 = 16 << 10;
        let mut block = vec![0; NODESIZE as usize];
        let mut found = Vec::new();
        for start in (0..512 * MIB).step_by(NODESIZE as usize) {
            self.inner.read_at(&mut block, start).unwrap();
            let (header, items) = Header::ref_from_prefix(&block).unwrap();
            if header.owner.get() != id.root.0 || header.level != 0 {
                continue;
            }
            let count = header.nritems.get() as usize;
            let (items, _) = <[ItemHead]>::ref_from_prefix_with_elems(items, count).unwrap();
            if items.iter().any(|item| item.key.get() == inode_key(id.ino)) {
                found.push(start..start + NODESIZE);
            }
        }
        found
    }
}

/// WRITER-2
#[test]
fn an_aborted_volume_refuses_writes_and_shows_those_before() {
    let broken = broken();
    let id = broken.file("f");
    broken.volume.write(id, 0, &[1; 100]).unwrap();
    // The file is inline, so the first write is from the commit.
    let nth = broken.device.counts().writes;
    (nth..nth + 8).for_each(|nth| broken.device.add(Fault::Write { nth }));
    assert!(broken.volume.sync().is_err());
    assert!(matches!(
        broken.volume.write(id, 0, &[1]),
        Err(Error::Aborted(_))
    ));
    assert!(matches!(broken.volume.sync(), Err(Error::Aborted(_))));
    assert_eq!(broken.read(id), [1; 100]);
}

#[test]
fn a_wait_for_an_abort_ends_with_its_reason_or_with_none() {
    let waits_for = |end: &dyn Fn(&Broken)| {
        let broken = broken();
        let id = broken.file("f");
        broken.volume.write(id, 0, &[1; 100]).unwrap();
        assert_eq!(broken.volume.abort_reason(), None);
        let lifetime = broken.volume.lifetime().unwrap();
        let waits = lifetime.clone();
        let waiting = std::thread::spawn(move || waits.wait_for_abort());
        end(&broken);
        let heard = waiting.join().unwrap();
        assert_eq!(heard, broken.volume.abort_reason());
        assert!(heard.is_none() || !lifetime.wait_for_close(Duration::ZERO));
        // The lifetime is not a handle of the volume.
        drop(broken);
        assert!(lifetime.wait_for_close(Duration::MAX));
        heard
    };
    let aborted = waits_for(&|broken| {
        let nth = broken.device.counts().writes;
        broken.device.add(Fault::Write { nth });
        assert!(broken.volume.sync().is_err());
    });
    assert!(aborted.is_some());
    assert_eq!(waits_for(&|broken| broken.volume.close().unwrap()), None);
}

/// INODE-1
#[test]
fn loss_that_nobody_was_told_of_outlives_another_name() {
    let broken = broken();
    let volume = &broken.volume;
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let id = broken.file("draft");
    volume.write(id, 0, &[1; 20_000]).unwrap();
    let nth = broken.device.counts().writes;
    (nth..nth + 30).for_each(|nth| broken.device.add(Fault::Write { nth }));
    volume.files.write_back_all().unwrap_err();
    broken.device.heal();
    let to = (top, &b"final"[..]);
    volume
        .rename(top, b"draft", to, RenameMode::Replace)
        .unwrap();
    assert!(matches!(volume.fsync(id), Err(Error::DataLost { .. })));
}

impl Broken {
    /// Makes the data written to a file get lost.
    fn lose(&self, id: FileId) {
        self.volume.write(id, 0, &[1; 20_000]).unwrap();
        let nth = self.device.counts().writes;
        (nth..nth + 30).for_each(|nth| self.device.add(Fault::Write { nth }));
        self.volume.files.write_back_all().unwrap_err();
        self.device.heal();
    }
}

#[test]
fn each_open_file_hears_of_a_loss_once() {
    let broken = broken();
    let volume = &broken.volume;
    let id = broken.file("f");
    let hears = |file: &OpenFile| match file.fsync() {
        Ok(()) => false,
        Err(Error::DataLost { file, .. }) if file == id => true,
        Err(error) => panic!("{error}"),
    };
    let open = || volume.open_file(id).unwrap();
    let (one, two) = (open(), open());
    broken.lose(id);
    let before_anybody_knows = open();
    assert!(hears(&one) && !hears(&one));
    let afterwards = open();
    volume.write(id, 0, &[2; 20_000]).unwrap();
    assert!(!hears(&one));
    assert!(hears(&two) && !hears(&two));
    assert!(hears(&before_anybody_knows) && !hears(&before_anybody_knows));
    assert!(!hears(&afterwards));
    broken.lose(id);
    for file in [one, two, before_anybody_knows, afterwards] {
        assert!(hears(&file) && !hears(&file));
    }
}

#[test]
fn write_that_fails_at_once_takes_no_earlier_loss_away() {
    let broken = broken();
    let volume = &broken.volume;
    let id = broken.file("f");
    let reserve = Fallocate::Reserve { keep_size: false };
    volume.fallocate(id, reserve, 0, MIB).unwrap();
    volume.sync().unwrap();
    let inode = volume.inodes.find(id).unwrap();
    let fails = || {
        let nth = broken.device.counts().writes;
        (nth..nth + 8).for_each(|nth| broken.device.add(Fault::Write { nth }));
        let target = WriteTarget::At(0);
        let written = volume.files.write_nocow_only(
            &inode,
            target,
            &[3; 4096],
            DelallocReservation::default(),
        );
        broken.device.heal();
        assert!(written.is_err());
    };
    fails();
    volume.fsync(id).unwrap();
    broken.lose(id);
    fails();
    assert!(matches!(volume.fsync(id), Err(Error::DataLost { .. })));
}

/// Data that did not reach the device is lost, and a later flush would succeed.
#[test]
fn a_flush_that_fails_is_reported_to_all_callers() {
    let broken = broken();
    let volume = &broken.volume;
    let id = broken.file("f");
    volume.set_inode_flags(id, InodeFlags::NODATACOW).unwrap();
    volume.write(id, 0, &[1; 8192]).unwrap();
    volume.sync().unwrap();
    volume.write(id, 0, &[2; 8192]).unwrap();
    volume
        .inodes
        .transactions()
        .unwrap()
        .commit_running()
        .unwrap();
    let nth = broken.device.counts().flushes;
    broken.device.add(Fault::Flush { nth });
    assert!(volume.fsync(id).is_err());
    assert!(matches!(volume.fsync(id), Err(Error::Aborted(_))));
}

#[test]
fn writer_without_space_does_not_hear_of_losses_of_others() {
    let broken = broken();
    let volume = &broken.volume;
    let (lost, other) = (broken.file("lost"), broken.file("other"));
    volume.sync().unwrap();
    let taken = take_all_but(volume, 40_000);
    volume.write(lost, 0, &[1; 20_000]).unwrap();
    let nth = broken.device.counts().writes;
    // Fail the batch, and the first write on its own.
    (nth..nth + 3).for_each(|nth| broken.device.add(Fault::Write { nth }));
    let refused = volume.write(other, 0, &[1; 100_000]).unwrap_err();
    broken.device.heal();
    assert!(refused.is_no_space(), "{refused}");
    volume.fsync(other).unwrap();
    assert!(matches!(volume.fsync(lost), Err(Error::DataLost { .. })));
    drop(taken);
    assert_sound(&broken.inner);
}
