//! Volumes without a valid free-space tree: either they keep their format, or the first commit builds the
//! tree and removes older caches.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::{Logical, RootId, objectid};
use ubtrfs_format::item::{FREE_SPACE_USING_BITMAPS, FreeSpaceHeader, FreeSpaceInfo};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::Node;
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_fs::{FileId, NewInode, OpenOptions, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::kernel::{self, Feature, KernelVolume, MkfsSpec};
use ubtrfs_sim::new_volume;
use zerocopy::{FromBytes, IntoBytes};

const WHOLE: CompatRo = CompatRo::FREE_SPACE_TREE.union(CompatRo::FREE_SPACE_TREE_VALID);

fn writing() -> OpenOptions {
    OpenOptions::new().writable(true).commit_interval(None)
}

fn open(device: &Arc<MemDevice>, options: &OpenOptions) -> Arc<Volume> {
    let device: Arc<dyn BlockDevice> = device.clone();
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], options).unwrap()
}

fn top(volume: &Volume) -> FileId {
    volume.root_dir(RootId::FS_TREE).unwrap()
}

fn write(volume: &Volume, name: &str, bytes: &[u8]) {
    let new = NewInode::file(0o644);
    let file = volume.create(top(volume), name.as_bytes(), &new).unwrap();
    volume.write(file, 0, bytes).unwrap();
}

fn read(volume: &Volume, name: &str) -> Vec<u8> {
    let file = volume.resolve(top(volume), name.as_bytes()).unwrap();
    let mut bytes = vec![0; volume.attr(file).unwrap().size as usize];
    assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Returns the options of a complete check, including data.
fn strict() -> CheckOptions {
    CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    }
}

/// Checks the current state of the device, even while it is being written.
fn assert_sound(device: &MemDevice) {
    let device: Arc<dyn BlockDevice> = Arc::new(device.clone());
    let devices = vec![(PathBuf::from("memory"), device)];
    let report = check_devices(devices, &strict(), &mut ()).unwrap();
    assert!(report.is_spotless(), "{report}");
}

/// Creates a volume with a free-space tree of several levels, and without a block group tree, which would
/// require a valid one.
fn with_scattered_space(files: usize) -> Arc<MemDevice> {
    const DEVICE_BYTES: u64 = 4 << 30;
    let mut options = MkfsOptions {
        nodesize: Some(4096),
        ..MkfsOptions::default()
    };
    options.features.apply_list("^block-group-tree").unwrap();
    let device = Arc::new(new_volume(&options, DEVICE_BYTES));
    let volume = open(&device, &writing());
    // The first block group is too small for many bitmaps.
    write(&volume, "large", &vec![0; 8 << 20]);
    volume.sync().unwrap();
    for number in 0..files {
        write(&volume, &format!("file{number}"), &[number as u8; 4096]);
    }
    volume.sync().unwrap();
    for number in (0..files).step_by(2) {
        let name = format!("file{number}");
        volume.unlink(top(&volume), name.as_bytes()).unwrap();
    }
    volume.close().unwrap();
    device
}

fn edit_superblock(device: &MemDevice, edit: impl Fn(&mut Superblock)) {
    for offset in SUPERBLOCK_OFFSETS {
        let mut block = vec![0; SUPERBLOCK_SIZE];
        if offset + SUPERBLOCK_SIZE as u64 > device.len_bytes() {
            break;
        }
        device.read_at(&mut block, offset).unwrap();
        let superblock = Superblock::mut_from_bytes(&mut block).unwrap();
        edit(superblock);
        superblock.seal();
        device.write_at(superblock.as_bytes(), offset).unwrap();
    }
}

/// Returns the physical addresses of a tree block's copies.
fn places(volume: &Volume, block: Logical) -> Vec<u64> {
    let chunk = volume.pool().chunk_map().get(block).unwrap();
    let within = block.0 - chunk.logical().0;
    let stripes = chunk.stripes().iter();
    stripes.map(|stripe| stripe.physical.0 + within).collect()
}

/// Returns `block` and all blocks below it, each with its level.
fn blocks(device: &MemDevice, volume: &Volume, block: Logical) -> Vec<(Logical, u8)> {
    let mut bytes = vec![0; volume.node_store().nodesize()];
    device
        .read_at(&mut bytes, places(volume, block)[0])
        .unwrap();
    let node = Node::new(&bytes).unwrap();
    let mut found = vec![(block, node.level())];
    for ptr in node.ptrs() {
        found.extend(blocks(device, volume, Logical(ptr.blockptr.get())));
    }
    found
}

/// Inverts every other sector in the free-space tree. The amount of free space stays the same.
fn spoil(device: &MemDevice, volume: &Volume, tree: &[(Logical, u8)]) {
    let leaves = tree.iter().filter(|(_, level)| *level == 0);
    let mut leaves: Vec<(Logical, Vec<u8>)> = leaves
        .map(|&(block, _)| (block, vec![0; volume.node_store().nodesize()]))
        .collect();
    let mut items = Vec::new();
    for (leaf, (block, bytes)) in leaves.iter_mut().enumerate() {
        device.read_at(bytes, places(volume, *block)[0]).unwrap();
        let start = bytes.as_ptr().addr();
        let found = Node::new(bytes).unwrap().items();
        items.extend(found.map(|(key, item)| {
            let at = item.as_ptr().addr() - start;
            (key, leaf, at..at + item.len())
        }));
    }
    let (mut spoiled, mut runs, mut was_free) = (0, 0, false);
    // The count of free extents precedes the bitmaps.
    for (key, leaf, range) in items.into_iter().rev() {
        let item = &mut leaves[leaf].1[range];
        if key.item_type == KeyType::FREE_SPACE_BITMAP {
            for byte in item.iter_mut().rev() {
                if [0x55, 0xaa].contains(byte) {
                    *byte = !*byte;
                    spoiled += 1;
                }
                for bit in (0..8).rev() {
                    let is_free = *byte >> bit & 1 != 0;
                    runs += u32::from(is_free && !was_free);
                    was_free = is_free;
                }
            }
        } else if let Ok(info) = FreeSpaceInfo::mut_from_bytes(item) {
            if info.flags.get() & FREE_SPACE_USING_BITMAPS != 0 {
                info.extent_count = runs.into();
            }
            (runs, was_free) = (0, false);
        }
    }
    assert!(spoiled > 0);
    let csum_type = volume.superblock().csum_type();
    for (block, mut bytes) in leaves {
        csum_type.seal_block(&mut bytes);
        for place in places(volume, block) {
            device.write_at(&bytes, place).unwrap();
        }
    }
}

#[test]
fn tree_that_is_not_valid_is_built_anew() {
    const FILES: usize = 1600;
    let device = with_scattered_space(FILES);
    let volume = open(&device, &OpenOptions::new());
    let root = volume.tree(RootId::FREE_SPACE_TREE).unwrap();
    let old = blocks(&device, &volume, root.item().bytenr());
    assert!(old[0].1 > 0, "the tree has one block only");
    spoil(&device, &volume, &old);
    drop(volume);
    edit_superblock(&device, |superblock| {
        let compat = superblock.compat_ro() - CompatRo::FREE_SPACE_TREE_VALID;
        superblock.compat_ro_flags = compat.bits().into();
    });
    let volume = open(&device, &writing());
    write(&volume, "first", &[1; 100_000]);
    volume.sync().unwrap();
    // As after a power cut.
    assert_sound(&device);
    assert!(volume.superblock().compat_ro().contains(WHOLE));
    write(&volume, "second", &[2; 8 << 20]);
    volume.close().unwrap();
    assert_sound(&device);
    let volume = open(&device, &OpenOptions::new());
    assert_eq!(read(&volume, "first"), [1; 100_000]);
    assert_eq!(read(&volume, "second"), vec![2; 8 << 20]);
    for number in (1..FILES).step_by(2) {
        let bytes = read(&volume, &format!("file{number}"));
        assert_eq!(bytes, [number as u8; 4096], "file{number}");
    }
}

/// Returns the v1 caches: their block groups, and their inodes in the root tree.
fn v1_caches(volume: &Volume) -> Vec<(u64, u64)> {
    let view = volume.root_tree();
    let mut cursor = view.cursor();
    let mut found = Vec::new();
    let mut more = cursor.seek(&Key::new(objectid::FREE_SPACE, KeyType::UNTYPED, 0));
    while more.unwrap()
        && let Some((key, bytes)) = cursor.current()
        && key.objectid == objectid::FREE_SPACE
    {
        let (header, _) = FreeSpaceHeader::ref_from_prefix(bytes).unwrap();
        found.push((key.offset, header.location.get().objectid));
        more = cursor.advance();
    }
    found
}

/// Returns the number of items of this inode in the root tree.
fn items_of(volume: &Volume, ino: u64) -> usize {
    let view = volume.root_tree();
    let mut cursor = view.cursor();
    let mut count = 0;
    let mut more = cursor.seek(&Key::new(ino, KeyType::UNTYPED, 0));
    while more.unwrap() && cursor.current().is_some_and(|(key, _)| key.objectid == ino) {
        count += 1;
        more = cursor.advance();
    }
    count
}

const CONTENTS: usize = 1_200_000;

fn contents(number: usize) -> Vec<u8> {
    vec![number as u8; CONTENTS]
}

/// Creates a volume without a free-space tree, which the kernel mounts with `options` and fills.
fn without_tree(options: &str) -> KernelVolume {
    // The kernel keeps no cache for block groups below 100 MiB.
    let spec = MkfsSpec::new()
        .device_bytes(4 << 30)
        .without(Feature::FreeSpaceTree);
    let made = KernelVolume::make(&spec).unwrap();
    let mount = made.mount(options).unwrap();
    for number in 0..30 {
        let path = mount.path().join(format!("file{number}"));
        std::fs::write(path, contents(number)).unwrap();
    }
    mount.sync().unwrap();
    for number in (0..30).step_by(3) {
        std::fs::remove_file(mount.path().join(format!("file{number}"))).unwrap();
    }
    mount.unmount().unwrap();
    made
}

/// Checks the volume with both checkers, and the free space with the kernel's default mount.
fn assert_sound_for_all(made: &KernelVolume) {
    let report = check(made.devices(), &strict(), &mut ()).unwrap();
    assert!(report.is_spotless(), "{report}");
    made.check().unwrap();
    let mount = made.mount("").unwrap();
    let read = |name: &str| std::fs::read(mount.path().join(name)).unwrap();
    assert_eq!(read("ours"), contents(100));
    for number in (0..30).filter(|number| number % 3 != 0) {
        assert_eq!(read(&format!("file{number}")), contents(number));
    }
    // The kernel writes where it considers space free.
    std::fs::write(mount.path().join("kernels"), contents(101)).unwrap();
    mount.unmount().unwrap();
    made.check().unwrap();
}

#[test]
fn volume_without_a_free_space_tree_keeps_its_format() {
    if !kernel::or_skip("volume_without_a_free_space_tree_keeps_its_format") {
        return;
    }
    for options in ["space_cache=v1", "nospace_cache"] {
        let made = without_tree(options);
        let volume = Volume::open(made.devices(), &OpenOptions::new()).unwrap();
        let (caches, before) = (v1_caches(&volume), volume.superblock());
        assert_eq!(caches.is_empty(), options == "nospace_cache");
        drop(volume);
        for round in 0..3 {
            // Not even clearing the cache changes the volume's format.
            let opened = writing().clear_free_space_tree(round == 1);
            let volume = Volume::open(made.devices(), &opened).unwrap();
            write(&volume, &format!("round{round}"), &contents(round));
            volume.sync().unwrap();
            if round == 2 {
                write(&volume, "ours", &contents(100));
            }
            let superblock = volume.superblock();
            volume.close().unwrap();
            assert!(!superblock.compat_ro().intersects(WHOLE));
            assert!(volume.find_tree(RootId::FREE_SPACE_TREE).unwrap().is_none());
            assert_eq!(superblock.cache_generation, before.cache_generation);
            assert_ne!(superblock.cache_generation, superblock.generation);
        }
        let volume = Volume::open(made.devices(), &OpenOptions::new()).unwrap();
        assert_eq!(v1_caches(&volume), caches, "{options}");
        drop(volume);
        assert_sound_for_all(&made);
    }
}

/// The cache's inode would outlive the block group, and be used for a later block group at the same address.
#[test]
fn cache_of_a_block_group_goes_with_it() {
    if !kernel::or_skip("cache_of_a_block_group_goes_with_it") {
        return;
    }
    let made = without_tree("space_cache=v1");
    let mount = made.mount("").unwrap();
    let large = mount.path().join("large");
    std::fs::write(&large, vec![7; 2 << 30]).unwrap();
    mount.unmount().unwrap();

    let volume = Volume::open(made.devices(), &writing()).unwrap();
    let before = v1_caches(&volume);
    volume.unlink(top(&volume), b"large").unwrap();
    write(&volume, "ours", &contents(100));
    volume.close().unwrap();
    drop(volume);
    let volume = Volume::open(made.devices(), &OpenOptions::new()).unwrap();
    let after = v1_caches(&volume);
    let gone: Vec<_> = before.iter().filter(|it| !after.contains(it)).collect();
    assert!(!gone.is_empty(), "no block group became empty");
    for (start, ino) in gone {
        let chunks = volume.pool().chunk_map().all();
        assert!(chunks.iter().all(|chunk| chunk.logical().0 != *start));
        assert_eq!(items_of(&volume, *ino), 0, "inode {ino}");
    }
    drop(volume);
    assert_sound_for_all(&made);
}

#[test]
fn caches_of_the_first_version_are_dropped_where_a_tree_is_wanted() {
    if !kernel::or_skip("caches_of_the_first_version_are_dropped_where_a_tree_is_wanted") {
        return;
    }
    let made = without_tree("space_cache=v1");
    let volume = Volume::open(made.devices(), &writing().free_space_tree(true)).unwrap();
    let caches = v1_caches(&volume);
    assert!(!caches.is_empty(), "the kernel made no caches");
    for &(_, ino) in &caches {
        // An inode item and at least one extent.
        assert!(items_of(&volume, ino) >= 2);
    }
    let superblock = volume.superblock();
    assert_eq!(superblock.cache_generation, superblock.generation);
    assert!(!superblock.compat_ro().intersects(WHOLE));

    write(&volume, "ours", &contents(100));
    volume.sync().unwrap();
    assert_eq!(v1_caches(&volume), []);
    for (_, ino) in caches {
        assert_eq!(items_of(&volume, ino), 0, "inode {ino}");
    }
    volume.close().unwrap();
    drop(volume);
    let volume = Volume::open(made.devices(), &OpenOptions::new()).unwrap();
    let superblock = volume.superblock();
    // As after a kernel mount with space_cache=v2.
    assert_eq!(superblock.cache_generation.get(), 0);
    assert!(superblock.compat_ro().contains(WHOLE));
    drop(volume);
    assert_sound_for_all(&made);
}
