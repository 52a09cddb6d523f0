//! A device that blocks: threads that neither sync nor wait for room must not block.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use ubtrfs_device::nonblocking;
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::ThrottledDevice;

use super::fixture::{MIB, assert_sound, new_device};
use crate::file::Fallocate;
use crate::inode::orphan_key;
use crate::{Error, FileId, NewInode, OpenOptions, RenameMode, SetAttr, Volume};

const NEVER: Duration = Duration::from_secs(1 << 20);
/// Longer than any operation takes unless it hangs.
const HANGS: Duration = Duration::from_secs(120);

struct Blocked {
    memory: Arc<MemDevice>,
    device: Arc<ThrottledDevice>,
    volume: Arc<Volume>,
    top: FileId,
}

fn open(options: &OpenOptions) -> Blocked {
    let memory = new_device(&MkfsOptions::default(), 512 * MIB);
    let device = Arc::new(ThrottledDevice::new(memory.clone(), None));
    let devices: Vec<(PathBuf, Arc<dyn BlockDevice>)> =
        vec![(PathBuf::from("memory"), device.clone())];
    let volume = Volume::from_devices(devices, &options.clone().writable(true)).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    Blocked {
        memory,
        device,
        volume,
        top,
    }
}

impl Blocked {
    fn create(&self, name: &str) -> FileId {
        let new = NewInode::file(0o644);
        self.volume.create(self.top, name.as_bytes(), &new).unwrap()
    }

    /// Creates a file with contents that are only buffered.
    fn written(&self, name: &str, bytes: usize) -> FileId {
        let file = self.create(name);
        self.volume.write(file, 0, &vec![3; bytes]).unwrap();
        file
    }

    fn rename(&self, from: &str, to: &str) {
        let to = (self.top, to.as_bytes());
        self.volume
            .rename(self.top, from.as_bytes(), to, RenameMode::Replace)
            .unwrap();
    }

    /// Makes every kind of change to names and attributes, in a thread that must not wait.
    fn change_names(&self) {
        let Blocked { volume, top, .. } = self;
        nonblocking::scope(|| {
            for number in 0..500 {
                let (name, moved) = (format!("new {number}"), format!("moved {number}"));
                let file = self.create(&name);
                self.rename(&name, &moved);
                volume.link(file, *top, name.as_bytes()).unwrap();
                let set = SetAttr {
                    mode: Some(0o600),
                    ..SetAttr::default()
                };
                volume.set_attr(file, &set).unwrap();
                volume.attr(file).unwrap();
                volume.unlink(*top, moved.as_bytes()).unwrap();
                volume.unlink(*top, name.as_bytes()).unwrap();
            }
        });
    }

    fn close(self) {
        self.volume.close().unwrap();
        drop(self.volume);
        assert_sound(&self.memory);
    }
}

#[test]
fn names_change_while_data_and_a_commit_wait_for_the_device() {
    let blocked = open(&OpenOptions::new().commit_interval(Some(NEVER)));
    let (device, volume) = (&blocked.device, &blocked.volume);
    // First with names only, which blocks in the commit; then with data, which blocks in the write-back.
    for data in [false, true] {
        blocked.create("other");
        if data {
            blocked.written("written", 100_000);
        }
        device.hold();
        thread::scope(|scope| {
            let sync = scope.spawn(|| volume.sync().unwrap());
            device.wait_for_waiter();
            blocked.change_names();
            assert!(!sync.is_finished());
            device.release();
        });
        volume.unlink(blocked.top, b"other").unwrap();
    }
    blocked.close();
}

/// Returns the inodes with an ORPHAN_ITEM, in ascending order.
fn orphans(volume: &Volume) -> Vec<u64> {
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    let mut cursor = tree.view.cursor();
    let mut found = Vec::new();
    let mut more = cursor.seek(&orphan_key(InodeNr(0))).unwrap();
    while more
        && let Some((key, _)) = cursor.current()
        && key.objectid == orphan_key(InodeNr(0)).objectid
    {
        found.push(key.offset);
        more = cursor.advance().unwrap();
    }
    found
}

/// ORPHAN-QUEUE-1 and ORPHAN-QUEUE-2
#[test]
fn files_whose_data_is_on_its_way_lose_their_names_at_once() {
    let blocked = open(&OpenOptions::new().commit_interval(Some(NEVER)));
    let (device, volume, top) = (&blocked.device, &blocked.volume, blocked.top);
    let files = ["deleted", "replaced", "closed"].map(|name| blocked.written(name, 100_000));
    let held = volume.open_file(files[2]).unwrap();
    volume.unlink(top, b"closed").unwrap();
    device.hold();
    thread::scope(|scope| {
        let sync = scope.spawn(|| volume.sync().unwrap());
        device.wait_for_waiter();
        nonblocking::scope(|| {
            volume.unlink(top, b"deleted").unwrap();
            blocked.create("new");
            blocked.rename("new", "replaced");
            assert!(held.close().is_ok());
            assert_eq!(volume.lookup(top, b"deleted").unwrap(), None);
        });
        assert_eq!(orphans(volume), files.map(|file| file.ino.0));
        assert!(!sync.is_finished());
        device.release();
    });
    // The sync evicts the orphans.
    volume.sync().unwrap();
    for file in files {
        assert!(volume.attr(file).is_err());
    }
    blocked.close();
}

#[test]
fn directories_move_while_a_subvolume_is_made() {
    let blocked = open(&OpenOptions::new().commit_interval(Some(NEVER)));
    let (device, volume, top) = (&blocked.device, &blocked.volume, blocked.top);
    let new = NewInode::directory(0o755);
    let dirs = [b"a", b"b"].map(|name| volume.create(top, name, &new).unwrap());
    let holder = volume.create_subvolume(top, b"holder", &new).unwrap();
    let inner = volume.root_dir(holder).unwrap();
    let inner = volume.create(inner, b"dir", &new).unwrap();
    device.hold();
    thread::scope(|scope| {
        let make =
            |dir, name| move || volume.create_subvolume(dir, name, &NewInode::directory(0o755));
        let first = scope.spawn(make(inner, b"first"));
        device.wait_for_waiter();
        let renamed =
            nonblocking::scope(|| volume.rename(top, b"b", (dirs[0], b"b"), RenameMode::Replace));
        let second = scope.spawn(make(dirs[1], b"other"));
        // The contents of the new subvolume are not visible yet.
        let deleted = scope.spawn(|| volume.delete_subvolume(top, b"holder"));
        let is_made = first.is_finished();
        device.release();
        renamed.unwrap();
        assert!(!is_made);
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert_ne!(first.unwrap(), second.unwrap());
        let deleted = deleted.join().unwrap();
        assert!(matches!(deleted, Err(Error::NotEmpty(_))), "{deleted:?}");
    });
    blocked.close();
}

#[test]
fn a_wait_for_room_in_the_delta_does_not_wait_for_data() {
    let options = OpenOptions::new()
        .commit_interval(Some(NEVER))
        .delta_bytes(256 << 10);
    let blocked = open(&options);
    let (device, volume) = (&blocked.device, &blocked.volume);
    let file = blocked.written("written", 100_000);
    device.hold();
    thread::scope(|scope| {
        // Write data before anything else: no block of a commit may be blocked.
        let sync = scope.spawn(|| volume.fsync(file));
        device.wait_for_waiter();
        let manager = Arc::clone(volume.inodes.transactions().unwrap());
        let full = manager.running_transid();
        let mut number = 0;
        while manager.running_transid() == full {
            blocked.create(&format!("file {number}"));
            number += 1;
        }
        device.release();
        sync.join().unwrap().unwrap();
    });
    blocked.close();
}

// NOCOW-4
#[test]
fn a_deleted_subvolume_is_freed_once_nothing_of_it_is_on_its_way_to_where_it_lies() {
    let blocked = open(&OpenOptions::new().commit_interval(Some(NEVER)));
    let (device, volume, top) = (&blocked.device, &blocked.volume, blocked.top);
    let dir = NewInode::directory(0o755);
    let subvolume = volume.create_subvolume(top, b"gone", &dir).unwrap();
    let inside = volume.root_dir(subvolume).unwrap();
    let file = volume
        .create(inside, b"file", &NewInode::file(0o644))
        .unwrap();
    let reserve = Fallocate::Reserve { keep_size: false };
    volume.fallocate(file, reserve, 0, MIB).unwrap();
    volume.sync().unwrap();
    volume.write(file, 0, &[7; 100_000]).unwrap();
    let is_there = || {
        // The second sync frees subvolumes that were deleted before the first.
        volume
            .inodes
            .transactions()
            .unwrap()
            .commit_running()
            .unwrap();
        volume
            .inodes
            .transactions()
            .unwrap()
            .commit_running()
            .unwrap();
        !volume.deleted_subvolumes().unwrap().is_empty()
    };
    device.hold_next();
    thread::scope(|scope| {
        let write = scope.spawn(|| volume.files.write_back_all());
        device.wait_for_waiter();
        volume.delete_subvolume(top, b"gone").unwrap();
        let was_kept = is_there();
        device.release();
        assert!(was_kept);
        let _ = write.join().unwrap();
    });
    assert!(!is_there());
    blocked.close();
}

#[test]
fn volume_is_closed_while_a_deletion_waits_for_room_in_the_delta() {
    let options = OpenOptions::new()
        .commit_interval(Some(NEVER))
        .delta_bytes(512 << 10);
    let blocked = open(&options);
    let (device, volume) = (&blocked.device, &blocked.volume);
    let manager = Arc::clone(volume.inodes.transactions().unwrap());
    let file = blocked.create("large");
    let reserve = Fallocate::Reserve { keep_size: false };
    for number in 0..8000 {
        volume
            .fallocate(file, reserve, number * 8192, 4096)
            .unwrap();
    }
    volume.sync().unwrap();
    blocked.create("other");
    device.hold();
    manager.threads.want_commit();
    device.wait_for_waiter();
    // A background thread deletes its items.
    let waits = || manager.stats().delta_waits.count;
    let before = waits();
    volume.unlink(blocked.top, b"large").unwrap();
    while waits() == before {
        thread::yield_now();
    }
    let lifetime = volume.lifetime().unwrap();
    let (closing, (done, is_done)) = (Arc::clone(volume), mpsc::channel());
    thread::spawn(move || done.send(closing.close()));
    assert!(lifetime.wait_for_close(HANGS));
    device.release();
    is_done.recv_timeout(HANGS).unwrap().unwrap();
    blocked.close();
}
