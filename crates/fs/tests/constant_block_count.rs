//! Operations on large volumes use about as many tree blocks as on small ones. Blocks are counted, not time.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Fallocate, FileId, NewInode, OpenOptions, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;

const GIB: u64 = 1 << 30;
/// The additional levels of a large tree.
const MORE_LEVELS: u64 = 2;

fn new_device(device_bytes: u64) -> Arc<MemDevice> {
    Arc::new(new_volume(&MkfsOptions::default(), device_bytes))
}

fn open(device: &Arc<MemDevice>, writable: bool) -> Arc<Volume> {
    let options = OpenOptions::new().writable(writable).commit_interval(None);
    let device: Arc<dyn BlockDevice> = device.clone();
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap()
}

fn top(volume: &Volume) -> FileId {
    volume.root_dir(RootId::FS_TREE).unwrap()
}

fn create(volume: &Volume, name: &str) -> FileId {
    let new = NewInode::file(0o644);
    volume.create(top(volume), name.as_bytes(), &new).unwrap()
}

/// Returns the number of tree blocks read so far.
fn blocks_read(volume: &Volume) -> u64 {
    let stats = volume.node_store().stats();
    stats.misses + stats.read_ahead
}

/// Tree blocks that were read or written.
#[derive(Debug)]
struct Blocks {
    read_file: u64,
    read_to_write: u64,
    written: u64,
}

/// Opens the volume to read a file, and again to create and commit one.
fn blocks(device: &Arc<MemDevice>) -> Blocks {
    let volume = open(device, false);
    // Opening reads all chunk items, the root of the root tree, and the path to the device error counts.
    let opened = blocks_read(&volume);
    let nodesize = volume.node_store().nodesize() as u64;
    let chunks = volume.tree_stats(&volume.chunk_tree()).unwrap();
    let devices = volume.tree(RootId::DEV_TREE).unwrap();
    let devices = volume.tree_stats(&devices.view).unwrap();
    let way = 1 + u64::from(devices.total_bytes > nodesize);
    assert_eq!(opened, chunks.total_bytes / nodesize + 1 + way);
    let before = blocks_read(&volume);
    let file = volume.resolve(top(&volume), b"file7").unwrap();
    let mut bytes = [0; 10];
    assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), 10);
    let read_file = blocks_read(&volume) - before;

    let volume = open(device, true);
    let written = || volume.writer_stats().unwrap().node_bytes / nodesize;
    let (read_before, written_before) = (blocks_read(&volume), written());
    let file = create(&volume, "new");
    volume.write(file, 0, &[1; 10_000]).unwrap();
    volume.sync().unwrap();
    Blocks {
        read_file,
        read_to_write: blocks_read(&volume) - read_before,
        written: written() - written_before,
    }
}

/// Asserts that many files cost only a few more blocks. Larger trees have more levels, and the trees for
/// space and references change in several places.
fn assert_flat(few: &Blocks, many: &Blocks) {
    println!("{few:?}\n{many:?}");
    for (few, many, trees) in [
        (few.read_file, many.read_file, 1),
        (few.read_to_write, many.read_to_write, 6),
        (few.written, many.written, 6),
    ] {
        assert!(many <= few + trees * MORE_LEVELS, "{few}, then {many}");
    }
}

fn with_files(files: usize) -> Arc<MemDevice> {
    let device = new_device(4 * GIB);
    let volume = open(&device, true);
    for number in 0..files {
        let file = create(&volume, &format!("file{number}"));
        volume.write(file, 0, &[number as u8; 10]).unwrap();
    }
    volume.close().unwrap();
    device
}

#[test]
fn many_files() {
    let (few, many) = (with_files(100), with_files(20_000));
    let (few, many) = (blocks(&few), blocks(&many));
    assert_flat(&few, &many);
}

/// The block groups of a 1 TiB volume.
#[test]
fn many_block_groups() {
    const GROUPS: u64 = 1000;
    let with = |device_bytes: u64, reserved_bytes: u64| {
        let device = new_device(device_bytes);
        let volume = open(&device, true);
        let file = create(&volume, "file7");
        volume.write(file, 0, &[7; 10]).unwrap();
        let reserve = Fallocate::Reserve { keep_size: true };
        for at in (0..reserved_bytes).step_by(10 * GIB as usize) {
            let file = create(&volume, &format!("reserved{at}"));
            volume.fallocate(file, reserve, 0, 10 * GIB).unwrap();
        }
        // A block group has 1 GiB.
        assert!(volume.pool().chunk_map().len() as u64 >= reserved_bytes / GIB);
        volume.close().unwrap();
        device
    };
    let (few, many) = (with(32 * GIB, 10 * GIB), with(1200 * GIB, GROUPS * GIB));
    let (few, many) = (blocks(&few), blocks(&many));
    assert_flat(&few, &many);
}
