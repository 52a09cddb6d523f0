//! Items written by the kernel, decoded and rebuilt from their references.
//!
//! Inline references are added first and one at a time, from the last to the first. Keyed references follow. So each
//! item must get its place and its form, and the limit of inline references must be the kernel's. This requires volumes
//! whose extents lost no reference after some had become keyed.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::{ExtentFlags, ExtentHead};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_sim::images;
use ubtrfs_sim::kernel::{Feature, KernelVolume, MkfsSpec, or_skip};
use zerocopy::FromBytes;

use super::tree::{BLOCK_GROUP, Decoded, Items, NOW, TestTree, colliding_offsets, extents};
use crate::error::{ExtentShape, RefKey};
use crate::roots::{Roots, test_roots};
use crate::transaction::delayed_refs::DelayedRefs;
use crate::transaction::extent_items::item::ref_key;

/// The extents and references found in a volume.
#[derive(Debug, Default)]
struct Seen {
    extents: usize,
    /// The maximum number of inline and of keyed references of one extent.
    inline: usize,
    keyed: usize,
    shared_blocks: usize,
    shared_data: usize,
    full_backrefs: usize,
}

/// Returns all items but the block groups, as if the transaction of the runs had created them.
fn extent_items(volume: &Roots) -> Items {
    let tree = volume.tree(RootId::EXTENT_TREE).unwrap();
    let mut items = Items::new();
    let mut cursor = tree.view.cursor();
    let mut more = cursor.seek(&Key::MIN).unwrap();
    while more {
        let (key, bytes) = cursor.current().unwrap();
        let mut bytes = bytes.to_vec();
        if matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM) {
            let (head, _) = ExtentHead::mut_from_prefix(&mut bytes).unwrap();
            head.generation = NOW.0.into();
        }
        if key.item_type != KeyType::BLOCK_GROUP_ITEM {
            items.insert(key, bytes);
        }
        more = cursor.advance().unwrap();
    }
    items
}

/// Rebuilds every extent of the volume.
fn replay_all(paths: &[PathBuf]) -> Seen {
    let volume = test_roots::open_paths(paths);
    let superblock = volume.superblock();
    let nodesize = superblock.nodesize.get() as usize;
    let skinny = superblock.incompat().contains(Incompat::SKINNY_METADATA);
    let wanted = extent_items(&volume);
    let mut seen = Seen::default();
    let mut tree = TestTree::new(nodesize, skinny);
    for (at, extent) in extents(&wanted) {
        seen.extents += 1;
        seen.inline = seen.inline.max(extent.inline.len());
        seen.keyed = seen.keyed.max(extent.keyed.len());
        for (reference, _) in extent.counts() {
            seen.shared_blocks += usize::from(matches!(reference, RefKey::TreeParent(_)));
            seen.shared_data += usize::from(matches!(reference, RefKey::DataParent(_)));
        }
        let full = extent.flags.contains(ExtentFlags::FULL_BACKREF);
        seen.full_backrefs += usize::from(full);
        replay(&mut tree, at, &extent);
        let first = Key::new(at.0, KeyType::EXTENT_ITEM, 0);
        let last = Key::new(at.0, KeyType::BLOCK_GROUP_ITEM, 0);
        let range = || wanted.range(first..last);
        assert!(
            tree.items.range(first..last).eq(range()),
            "{at}: {:?} became {:?}",
            extent,
            tree.extent(at)
        );
        tree.items.retain(|key, _| *key == BLOCK_GROUP);
    }
    seen
}

fn replay(tree: &mut TestTree, at: Logical, extent: &Decoded) {
    let shape = shape(extent);
    let (len, level) = match shape {
        ExtentShape::Data { len } => (len, None),
        ExtentShape::Block { level } => (0, Some(level)),
    };
    let mut inline = extent.inline.clone();
    // References with the same hash are in order of insertion.
    inline.sort_by_key(|found| (Reverse(found.key_type()), found.sequence()));
    let inline = inline.iter();
    let inline = inline.filter_map(|found| Some((ref_key(found)?, found.count())));
    let keyed = extent
        .keyed
        .iter()
        .map(|(_, found, count)| (*found, *count));
    for (number, (reference, count)) in inline.chain(keyed).enumerate() {
        let mut refs = DelayedRefs::default();
        match level {
            None if number == 0 => refs.new_data(at, len),
            Some(level) if number == 0 => {
                let first_key = extent.info.map_or(Key::MIN, |info| info.key.get());
                refs.new_block(at, level, RootId::FS_TREE, reference, first_key);
                if extent.flags.contains(ExtentFlags::FULL_BACKREF) {
                    refs.set_full_backref(at, level);
                }
                tree.run(refs).unwrap();
                continue;
            }
            _ => {}
        }
        refs.change(at, len, reference, count as i64, level);
        tree.run(refs).unwrap();
    }
}

fn shape(extent: &Decoded) -> ExtentShape {
    if extent.flags.contains(ExtentFlags::DATA) {
        return ExtentShape::Data {
            len: extent.key.offset,
        };
    }
    let level = match extent.info {
        Some(info) => info.level,
        None => extent.key.offset as u8,
    };
    ExtentShape::Block { level }
}

#[test]
fn extents_of_kept_images_come_out_as_the_kernel_made_them() {
    for name in images::names().unwrap() {
        let image = images::image(&name).unwrap();
        let seen = replay_all(&image.devices);
        println!("{name}: {seen:?}");
        assert!(seen.extents > 10);
    }
}

/// Runs a shell script in a new volume's root directory.
fn scripted(spec: &MkfsSpec, script: &str) -> KernelVolume {
    let volume = KernelVolume::make(spec).unwrap();
    let mount = volume.mount("").unwrap();
    let mut shell = Command::new("sh");
    let status = shell.arg("-euc").arg(script).current_dir(mount.path());
    assert!(status.status().unwrap().success(), "{script}");
    mount.unmount().unwrap();
    volume
}

#[test]
fn references_of_files_spill_where_the_kernel_lets_them() {
    if !or_skip("references_of_files_spill_where_the_kernel_lets_them") {
        return;
    }
    for nodesize in [4096, 16_384, 65_536] {
        let spec = MkfsSpec::new().nodesize(nodesize);
        let clones = "head -c 65536 /dev/urandom > file; sync -f .; i=0
            while [ $i -lt 200 ]; do
                cp --reflink=always file clone$i; i=$((i + 1))
                [ $((i % 40)) -ne 0 ] || sync -f .
            done";
        let volume = scripted(&spec, clones);
        let seen = replay_all(volume.devices());
        println!("{nodesize}: {seen:?}");
        assert_eq!(seen.inline + seen.keyed, 201);
        assert!(seen.keyed > 0);
    }
}

#[test]
fn references_of_snapshots_spill_where_the_kernel_lets_them() {
    if !or_skip("references_of_snapshots_spill_where_the_kernel_lets_them") {
        return;
    }
    let snapshots = "btrfs -q subvolume create sub; i=0
        while [ $i -lt 300 ]; do echo $i > sub/file$i; i=$((i + 1)); done; sync -f .; i=0
        while [ $i -lt 60 ]; do
            btrfs -q subvolume snapshot -r sub snap$i; i=$((i + 1))
        done";
    let spec = MkfsSpec::new().nodesize(4096);
    for spec in [spec.clone(), spec.without(Feature::SkinnyMetadata)] {
        let volume = scripted(&spec, snapshots);
        let seen = replay_all(volume.devices());
        println!("{seen:?}");
        assert!(seen.keyed > 20);
    }
}

#[test]
fn references_from_shared_nodes_come_out_as_the_kernel_made_them() {
    if !or_skip("references_from_shared_nodes_come_out_as_the_kernel_made_them") {
        return;
    }
    let changed_beside_a_snapshot = "btrfs -q subvolume create sub; i=0
        while [ $i -lt 2500 ]; do echo $i > sub/file$i; i=$((i + 1)); done
        head -c 65536 /dev/urandom > sub/data; sync -f .
        btrfs -q subvolume snapshot sub snap
        touch sub/file* sub/data; sync -f .
        btrfs -q subvolume snapshot snap again; touch snap/file1*";
    let spec = MkfsSpec::new().nodesize(4096);
    for spec in [spec.clone(), spec.without(Feature::SkinnyMetadata)] {
        let volume = scripted(&spec, changed_beside_a_snapshot);
        let seen = replay_all(volume.devices());
        println!("{seen:?}");
        assert!(seen.shared_data > 0 && seen.shared_blocks > 0 && seen.full_backrefs > 0);
    }
}

#[test]
fn colliding_references_lie_where_the_kernel_puts_them() {
    if !or_skip("colliding_references_lie_where_the_kernel_puts_them") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new().nodesize(4096)).unwrap();
    let mount = volume.mount("").unwrap();
    let open = |name| {
        let path = mount.path().join(name);
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        options.open(path).unwrap()
    };
    let (source, mut target) = (open("source"), open("target"));
    source.write_all_at(&[7; 4096], 0).unwrap();
    source.sync_all().unwrap();
    // The standard library copies with copy_file_range, which btrfs answers with a reflink.
    for offset in colliding_offsets(40) {
        target.seek(SeekFrom::Start(offset)).unwrap();
        (&source).rewind().unwrap();
        io::copy(&mut (&source).take(4096), &mut target).unwrap();
    }
    drop((source, target));
    mount.unmount().unwrap();
    let seen = replay_all(volume.devices());
    assert_eq!((seen.inline, seen.keyed), (6, 35));
    let items = extent_items(&test_roots::open_paths(volume.devices()));
    let keys = items
        .keys()
        .filter(|key| key.item_type == KeyType::EXTENT_DATA_REF);
    let offsets: Vec<u64> = keys.map(|key| key.offset).collect();
    let probed = offsets.windows(2).filter(|pair| pair[0] + 1 == pair[1]);
    assert!(probed.count() >= 33, "{offsets:?}");
}
