//! Discards on image files and block devices: the blocks are returned to the host, and the kernel can still mount the
//! volume.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ubtrfs_device::{Access, BlockDevice, DeviceDiscard, FileDevice, Pool, PoolOptions};
use ubtrfs_format::ids::{DevId, Logical};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{self, KernelMount, KernelVolume, LoopDevice, MkfsSpec};

const MIB: u64 = 1 << 20;

fn allocated(image: &Path) -> u64 {
    fs::metadata(image).unwrap().blocks() * 512
}

/// Fills an image with nonzero bytes.
fn full_image(scratch: &Scratch, len: u64) -> std::path::PathBuf {
    let image = scratch.file("image", len).unwrap();
    fs::write(&image, vec![7; len as usize]).unwrap();
    File::open(&image).unwrap().sync_all().unwrap();
    image
}

#[test]
fn hole_in_an_image_gives_its_blocks_back() {
    let scratch = Scratch::new().unwrap();
    let image = full_image(&scratch, 8 * MIB);
    let before = allocated(&image);
    let device = FileDevice::open(&image, Access::Write).unwrap();
    let limits = device.discard_geometry().unwrap();
    let block_bytes = fs::metadata(&image).unwrap().blksize();
    assert_eq!(limits.granularity, block_bytes.max(4096));
    device.discard(2 * MIB, 4 * MIB).unwrap();
    assert!(allocated(&image) <= before - 4 * MIB);
    assert_eq!(fs::metadata(&image).unwrap().len(), 8 * MIB);
    let mut edges = [0; 2];
    device.read_at(&mut edges[..1], 2 * MIB - 1).unwrap();
    device.read_at(&mut edges[1..], 6 * MIB).unwrap();
    assert_eq!(edges, [7, 7]);
}

#[test]
fn block_device_tells_its_unit_and_gives_blocks_back() {
    if !kernel::or_skip("block_device_tells_its_unit_and_gives_blocks_back") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let image = full_image(&scratch, 8 * MIB);
    let before = allocated(&image);
    let looped = LoopDevice::attach(&image).unwrap();
    let device = FileDevice::open(looped.path(), Access::Write).unwrap();
    let limits = device.discard_geometry().unwrap();
    let queue = Path::new("/sys/block")
        .join(looped.path().file_name().unwrap())
        .join("queue/discard_granularity");
    let granularity: u64 = fs::read_to_string(queue).unwrap().trim().parse().unwrap();
    assert_eq!(limits.granularity, granularity.max(4096));
    device.discard(2 * MIB, 4 * MIB).unwrap();
    assert!(allocated(&image) <= before - 4 * MIB);
}

#[test]
fn batch_reaches_what_it_names_of_a_block_device_and_nothing_else() {
    if !kernel::or_skip("batch_reaches_what_it_names_of_a_block_device_and_nothing_else") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let image = full_image(&scratch, 8 * MIB);
    let looped = LoopDevice::attach(&image).unwrap();
    let device = FileDevice::open(looped.path(), Access::Write).unwrap();
    // The first 4 KiB of every 32, and one request past the end in the middle.
    let discard = |nth: u64| match nth {
        100 => DeviceDiscard::new(8 * MIB, 4096),
        _ => DeviceDiscard::new(nth * 32768, 4096),
    };
    let mut batch: Vec<DeviceDiscard> = (0..200).map(discard).collect();
    device.discard_batch(&mut batch);
    for (nth, discard) in batch.iter().enumerate() {
        assert_eq!(discard.result.is_ok(), nth != 100, "{nth}");
    }
    let mut bytes = vec![1; 8 << 20];
    device.read_at(&mut bytes, 0).unwrap();
    for (nth, unit) in bytes.chunks(4096).enumerate() {
        let is_discarded = nth % 8 == 0 && nth / 8 < 200 && nth / 8 != 100;
        let wanted = if is_discarded { 0 } else { 7 };
        assert!(unit.iter().all(|&byte| byte == wanted), "{nth}");
    }
}

/// DISCARD-1
#[test]
fn volume_survives_a_discard_of_all_that_no_chunk_has() {
    if !kernel::or_skip("volume_survives_a_discard_of_all_that_no_chunk_has") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new().device_bytes(512 * MIB)).unwrap();
    let image = volume.devices()[0].clone();
    let looped = LoopDevice::attach(&image).unwrap();
    let copies = |device: &dyn BlockDevice| -> Vec<Vec<u8>> {
        let read = |offset: &u64| {
            let mut copy = vec![0; SUPERBLOCK_SIZE];
            device.read_at(&mut copy, *offset).unwrap();
            copy
        };
        SUPERBLOCK_OFFSETS[..2].iter().map(read).collect()
    };
    let paths = [looped.path().to_path_buf()];
    let options = PoolOptions::new().access(Access::Write);
    let pool = Pool::open(&paths, &options).unwrap();
    crate::scrub::Scrub::new(&pool).load_chunks();
    pool.check_devices().unwrap();
    assert!(pool.can_discard());
    let device = pool.device(DevId(1)).unwrap();
    let before = copies(&*device);
    let chunks = pool.chunk_map().all();
    let mut taken: Vec<(u64, u64)> = chunks
        .iter()
        .flat_map(|chunk| {
            let len = chunk.stripe_bytes();
            chunk.stripes().iter().map(move |s| (s.physical.0, len))
        })
        .collect();
    taken.sort_unstable();
    let (mut from, mut discarded) = (0, 0);
    for (start, len) in taken.into_iter().chain([(512 * MIB, 0)]) {
        let hole = start.saturating_sub(from);
        discarded += pool.discard_physical(DevId(1), from, hole).unwrap();
        from = start + len;
    }
    assert!(discarded > 100 * MIB, "{discarded}");
    let data = chunks
        .iter()
        .find(|chunk| chunk.flags().bits() & 1 != 0)
        .unwrap();
    // A new volume contains no data.
    let len = data.len_bytes();
    let holes = pool.discard(Logical(data.logical().0), len).unwrap();
    assert!(holes >= len - 128 * 1024, "{holes} of {len}");
    assert!(copies(&*device) == before);
    drop((device, pool));
    drop(looped);
    volume.check().unwrap();
    let mount = KernelMount::new(volume.devices(), "").unwrap();
    fs::write(mount.path().join("file"), [1; 100_000]).unwrap();
    mount.unmount().unwrap();
    volume.check().unwrap();
}
