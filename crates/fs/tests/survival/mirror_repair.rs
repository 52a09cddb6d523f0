//! Reads that repair damaged mirrors of a RAID1 volume: data and tree blocks, with concurrent writers.

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use ubtrfs_device::chunk_layout::superblock_ranges;
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::InodeFlags;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{Fallocate, FileId, NewInode, OpenOptions, Volume};
use ubtrfs_sim::fault::{Fault, FaultDevice};
use ubtrfs_sim::kernel::{self, KernelVolume};
use ubtrfs_sim::record::save_image;
use ubtrfs_sim::{HookedDevice, Request, Scratch};

use ubtrfs_storage::roots::blocks;

use crate::devices::{Devices, Layout, MIB, check, open, quiet};

const SECTOR: usize = 4096;
const CSUM_BYTES: u64 = 4;
const FILES: u8 = 60;

fn new_devices(device_bytes: u64) -> Vec<Arc<MemDevice>> {
    let layout = Layout::new(2, device_bytes).profiles(Profile::Raid1, Profile::Raid1);
    layout.make().into_iter().map(Arc::new).collect()
}

fn shared<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Devices {
    devices
        .iter()
        .map(|device| Arc::clone(device) as _)
        .collect()
}

fn create(volume: &Volume, name: &str) -> FileId {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let new = NewInode::file(0o644);
    volume.create(top, name.as_bytes(), &new).unwrap()
}

fn content(number: u8) -> Vec<u8> {
    let len = 10_000 * usize::from(number % 7 + 1);
    (0..len).map(|at| (at / 512) as u8 ^ number).collect()
}

/// Creates files with different contents, and makes them durable.
fn fill(devices: &Devices) {
    let volume = open(devices, &quiet()).unwrap();
    for number in 0..FILES {
        let id = create(&volume, &format!("file {number}"));
        volume.write(id, 0, &content(number)).unwrap();
        let name = format!("user.{number}");
        let value = vec![number; 2000];
        volume
            .set_xattr(id, name.as_bytes(), &value, ubtrfs_fs::XattrMode::Any)
            .unwrap();
    }
    volume.close().unwrap();
}

/// Asserts the contents of all files, and reads all their attributes.
fn read_all(volume: &Volume) {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let mut names = 0;
    let mut count = |_| {
        names += 1;
        ControlFlow::Continue(())
    };
    volume.readdir(top, 0, &mut count).unwrap();
    assert_eq!(names, FILES);
    for number in 0..FILES {
        let name = format!("file {number}");
        let id = volume.lookup(top, name.as_bytes()).unwrap().unwrap();
        let wanted = content(number);
        let mut bytes = vec![0; wanted.len()];
        assert_eq!(volume.read(id, 0, &mut bytes).unwrap(), wanted.len());
        assert!(bytes == wanted, "{name}");
        let name = format!("user.{number}");
        let value = volume.xattr(id, name.as_bytes()).unwrap();
        assert_eq!(value.map(|value| value.len()), Some(2000));
    }
}

/// Returns the ranges with checksums.
fn summed(volume: &Volume) -> Vec<Range<u64>> {
    let tree = volume.tree(RootId::CSUM_TREE).unwrap();
    let mut cursor = tree.view.cursor();
    let mut ranges = Vec::new();
    let mut more = cursor.seek(&Key::MIN).unwrap();
    while more && let Some((key, sums)) = cursor.current() {
        if key.item_type == KeyType::EXTENT_CSUM {
            let sectors = sums.len() as u64 / CSUM_BYTES;
            ranges.push(key.offset..key.offset + sectors * SECTOR as u64);
        }
        more = cursor.advance().unwrap();
    }
    ranges
}

/// Returns the blocks of the tree of files.
fn tree_blocks(volume: &Volume) -> Vec<Range<u64>> {
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    let nodesize = u64::from(volume.superblock().nodesize.get());
    let mut ranges = Vec::new();
    blocks::walk(&tree.view, &mut |block| {
        let start = block.node().bytenr().0;
        ranges.push(start..start + nodesize);
    })
    .unwrap();
    assert!(ranges.len() > 5);
    ranges
}

/// Overwrites the first mirror of these ranges with garbage. All are on whole pieces of mirrored chunks.
fn damage(volume: &Volume, devices: &[Arc<MemDevice>], ranges: &[Range<u64>]) {
    for range in ranges {
        let chunk = volume.pool().chunk_map().get(Logical(range.start)).unwrap();
        let len = range.end - range.start;
        let piece = chunk.piece(range.start - chunk.logical().0, len, 1);
        let garbage = vec![0xa5; len as usize];
        let device = &devices[piece.devid.0 as usize - 1];
        device.write_at(&garbage, piece.physical.0).unwrap();
    }
}

/// Damages the first mirror of everything that `read_all` reads.
fn damage_files(devices: &[Arc<MemDevice>]) {
    let volume = open(&shared(devices), &OpenOptions::new()).unwrap();
    let ranges = [summed(&volume), tree_blocks(&volume)].concat();
    damage(&volume, devices, &ranges);
    drop(volume);
    assert!(check(&shared(devices)).is_err());
}

/// Asserts that the mirrors of each chunk of this type are equal, in use or not.
fn assert_same_mirrors(devices: &[Arc<MemDevice>], flags: BlockGroupFlags) {
    let volume = open(&shared(devices), &OpenOptions::new()).unwrap();
    for chunk in volume.pool().chunk_map().all().iter() {
        if !chunk.flags().contains(flags) {
            continue;
        }
        let [one, other] = [1, 2].map(|mirror| {
            let piece = chunk.piece(0, chunk.len_bytes(), mirror);
            let mut bytes = vec![0; piece.len as usize];
            let device = &devices[piece.devid.0 as usize - 1];
            device.read_at(&mut bytes, piece.physical.0).unwrap();
            // Each device has its own superblock.
            for range in superblock_ranges(chunk) {
                let [start, end] =
                    [range.start, range.end].map(|at| (at - chunk.logical().0) as usize);
                bytes[start..end].fill(0);
            }
            bytes
        });
        let different = one.iter().zip(&other).position(|(one, other)| one != other);
        assert_eq!(different, None, "chunk {}", chunk.logical());
    }
}

fn save(devices: &[Arc<MemDevice>], scratch: &Scratch) -> Vec<PathBuf> {
    let numbered = devices.iter().enumerate();
    let files = numbered.map(|(number, device)| {
        let file = scratch.path().join(format!("{number}.img"));
        save_image(&**device, &file).unwrap();
        file
    });
    files.collect()
}

/// Asserts that our check and then the kernel's scrub find nothing to repair.
fn kernel_agrees(test: &str, devices: &[Arc<MemDevice>]) {
    check(&shared(devices)).unwrap();
    if !kernel::or_skip(test) {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let files = save(devices, &scratch);
    let volume = KernelVolume::of_files(files, scratch);
    volume.check().unwrap();
    let mount = volume.mount("").unwrap();
    mount.scrub().unwrap();
    mount.unmount().unwrap();
}

/// MIRROR-REPAIR-1, STORE-6
#[test]
fn reads_repair_data_and_tree_blocks() {
    let devices = new_devices(256 * MIB);
    fill(&shared(&devices));
    damage_files(&devices);

    let volume = open(&shared(&devices), &quiet()).unwrap();
    read_all(&volume);
    assert!(volume.pool().repaired_mirrors() > 0);
    assert_eq!(volume.pool().unrecovered_count(), 0);
    volume.close().unwrap();
    drop(volume);
    for flags in [BlockGroupFlags::DATA, BlockGroupFlags::METADATA] {
        assert_same_mirrors(&devices, flags);
    }
    kernel_agrees("reads_repair_data_and_tree_blocks", &devices);
}

/// MIRROR-REPAIR-2
#[test]
fn volume_that_is_open_for_reading_is_not_repaired() {
    let devices = new_devices(256 * MIB);
    fill(&shared(&devices));
    damage_files(&devices);
    let scratch = Scratch::new().unwrap();
    let files = save(&devices, &scratch);
    let contents = || -> Vec<Vec<u8>> {
        let files = files.iter();
        files.map(|file| std::fs::read(file).unwrap()).collect()
    };
    let before = contents();
    let volume = Volume::open(&files, &OpenOptions::new()).unwrap();
    read_all(&volume);
    assert!(volume.pool().read_error_count() > 0);
    assert_eq!(volume.pool().repaired_mirrors(), 0);
    drop(volume);
    assert!(contents() == before);
}

/// MIRROR-REPAIR-2
#[test]
fn aborted_volume_is_read_and_not_repaired() {
    let devices = new_devices(256 * MIB);
    fill(&shared(&devices));
    damage_files(&devices);
    let volume = open(&shared(&devices), &quiet()).unwrap();
    volume.shutdown(&ubtrfs_fs::Error::Closed);
    let written = volume.pool().written_bytes();
    read_all(&volume);
    assert_eq!(volume.pool().written_bytes(), written);
    assert!(volume.close().is_err());
}

#[test]
fn volume_stays_in_use_if_mirrors_cannot_be_repaired() {
    let devices = new_devices(256 * MIB);
    fill(&shared(&devices));
    damage_files(&devices);
    let faulty: Vec<Arc<FaultDevice>> = devices
        .iter()
        .map(|device| Arc::new(FaultDevice::new(device.clone())))
        .collect();
    let volume = open(&shared(&faulty), &quiet()).unwrap();
    for chunk in volume.pool().chunk_map().all().iter() {
        let piece = chunk.piece(0, chunk.len_bytes(), 1);
        let range = piece.physical.0..piece.physical.0 + piece.len;
        faulty[piece.devid.0 as usize - 1].add(Fault::WriteRange { range });
    }
    read_all(&volume);
    assert_eq!(volume.pool().repaired_mirrors(), 0);
    for device in volume.pool().devices() {
        let counts = volume.pool().error_counts(device.devid).unwrap();
        assert_eq!(counts[0], 0, "missed writes");
    }
    volume.sync().unwrap();
    read_all(&volume);
    assert_eq!(volume.abort_reason(), None);
    volume.close().unwrap();
}

/// Files without copy on write, and preallocated files with checksums, are overwritten in place in the same block
/// groups.
#[test]
fn repairs_and_writes_in_place_leave_equal_mirrors() {
    const BLOCKS: u64 = 64;
    let devices = new_devices(256 * MIB);
    fill(&shared(&devices));
    damage_files(&devices);
    let volume = open(&shared(&devices), &quiet()).unwrap();
    let nocow = create(&volume, "nocow");
    volume
        .set_inode_flags(nocow, InodeFlags::NODATACOW)
        .unwrap();
    let reserved = create(&volume, "reserved");
    let reserve = Fallocate::Reserve { keep_size: false };
    let len = BLOCKS * SECTOR as u64;
    volume.fallocate(reserved, reserve, 0, len).unwrap();
    volume.write(nocow, 0, &vec![0; len as usize]).unwrap();
    volume.sync().unwrap();

    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for number in 0..FILES {
                        let top = volume.root_dir(RootId::FS_TREE).unwrap();
                        let name = format!("file {number}");
                        let id = volume.lookup(top, name.as_bytes()).unwrap().unwrap();
                        let wanted = content(number);
                        let mut bytes = vec![0; wanted.len()];
                        volume.read(id, 0, &mut bytes).unwrap();
                        assert!(bytes == wanted, "{name}");
                    }
                })
            })
            .collect();
        for round in 1..=4u8 {
            for block in 0..BLOCKS {
                let offset = block * SECTOR as u64;
                volume.write(nocow, offset, &[round; SECTOR]).unwrap();
                if block % 4 == u64::from(round) % 4 {
                    volume.write(reserved, offset, &[round; SECTOR]).unwrap();
                }
            }
            volume.sync().unwrap();
            let mut bytes = vec![0; len as usize];
            volume.read(nocow, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == round));
            volume.read(reserved, 0, &mut bytes).unwrap();
        }
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    });
    assert!(volume.pool().repaired_mirrors() > 0);
    volume.close().unwrap();
    drop(volume);
    assert_same_mirrors(&devices, BlockGroupFlags::DATA);
}

/// MIRROR-REPAIR-3. The repair of a file's mirror is held up while the file is deleted and the volume filled.
#[test]
fn space_is_not_reused_before_its_repair_has_ended() {
    const LEN: usize = MIB as usize;
    const READER: &str = "reader";
    let devices = new_devices(160 * MIB);
    let volume = open(&shared(&devices), &quiet()).unwrap();
    let id = create(&volume, "lost");
    volume.write(id, 0, &[7; LEN]).unwrap();
    volume.close().unwrap();
    let old = summed(&volume);
    damage(&volume, &devices, &old);
    drop(volume);

    let hooked: Vec<Arc<HookedDevice>> = devices
        .iter()
        .map(|device| Arc::new(HookedDevice::new(device.clone())))
        .collect();
    let volume = open(&shared(&hooked), &quiet()).unwrap();
    let meeting = Arc::new(Barrier::new(2));
    let is_first = Arc::new(AtomicBool::new(true));
    for device in &hooked {
        let (meeting, is_first) = (Arc::clone(&meeting), Arc::clone(&is_first));
        device.hook(move |request| {
            let is_repair = request == Request::Write && thread::current().name() == Some(READER);
            if is_repair && is_first.swap(false, Ordering::AcqRel) {
                meeting.wait();
                meeting.wait();
            }
        });
    }
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let fill_up = |prefix: &str| {
        let mut files = 0;
        loop {
            let name = format!("{prefix} {files}");
            let new = NewInode::file(0o644);
            let Ok(id) = volume.create(top, name.as_bytes(), &new) else {
                return files;
            };
            let written = volume.write(id, 0, &vec![files as u8; LEN]);
            if written.is_err() || volume.sync().is_err() {
                return files;
            }
            files += 1;
        }
    };
    let reused = || {
        let new = summed(&volume);
        let is_old = |new: &Range<u64>| {
            let mut old = old.iter();
            old.any(|old| old.start < new.end && new.start < old.end)
        };
        new.iter().any(is_old)
    };
    thread::scope(|scope| {
        let reader = thread::Builder::new().name(READER.to_owned());
        let reader = reader.spawn_scoped(scope, || {
            let mut bytes = vec![0; LEN];
            volume.read(id, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 7));
        });
        // The write to the damaged mirror has begun.
        meeting.wait();
        volume.unlink(top, b"lost").unwrap();
        for _ in 0..3 {
            volume.sync().unwrap();
        }
        assert!(summed(&volume).is_empty());
        assert!(fill_up("early") > 10);
        assert!(!reused());
        meeting.wait();
        reader.unwrap().join().unwrap();
    });
    assert!(volume.pool().repaired_mirrors() > 0);
    // Now the space is free.
    volume.sync().unwrap();
    fill_up("late");
    assert!(reused());
    let _ = volume.close();
    drop(volume);
    assert_same_mirrors(&devices, BlockGroupFlags::DATA);
    check(&shared(&devices)).unwrap();
}
