//! The items of the free-space tree, compared with an array of bits and with items from the kernel.

use std::collections::BTreeMap;
use std::fs;

use ubtrfs_format::item::FREE_SPACE_BITMAP_BYTES;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec};
use ubtrfs_sim::{Rng, images, kernel, seed};

use super::*;
use crate::roots::{Roots, test_roots};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 4096;

type Tree = BTreeMap<Key, Vec<u8>>;

impl Items for Tree {
    fn scan(&self, from: &Key, each: &mut dyn FnMut(Key, &[u8]) -> Result<bool>) -> Result<()> {
        for (key, bytes) in self.range(from..) {
            if !each(*key, bytes)? {
                break;
            }
        }
        Ok(())
    }
}

fn make(tree: &mut Tree, changes: Changes) {
    assert!(changes.windows(2).all(|pair| pair[0].0 < pair[1].0));
    for (key, value) in changes {
        let before = match value.clone() {
            Some(value) => tree.insert(key, value),
            None => tree.remove(&key),
        };
        assert_ne!(before, value, "{key}");
    }
}

fn ranges(items: &impl Items, shape: &Shape) -> Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let each = &mut |start, len| ranges.push((start, len));
    free_ranges(items, shape.start, shape.len, shape.sectorsize, each)?;
    Ok(ranges)
}

fn shape(len: u64) -> Shape {
    Shape {
        start: Logical(96 * MIB),
        len,
        sectorsize: SECTOR as u32,
    }
}

/// Runs of equal sectors, as (start, length, whether the run is free).
fn runs(shape: &Shape, free: &[bool]) -> Vec<(u64, u64, bool)> {
    let mut at = shape.start.0;
    let run = |run: &[bool]| {
        let len = run.len() as u64 * SECTOR;
        at += len;
        (at - len, len, run[0])
    };
    free.chunk_by(|a, b| a == b).map(run).collect()
}

fn of_kind(runs: Vec<(u64, u64, bool)>, wanted: bool) -> Vec<(u64, u64)> {
    let kept = runs.into_iter().filter(|run| run.2 == wanted);
    kept.map(|(start, len, _)| (start, len)).collect()
}

/// Returns the ranges that become used or free between two states.
fn became(shape: &Shape, old: &[bool], new: &[bool], wanted: bool) -> Vec<(u64, u64)> {
    let changed = old.iter().zip(new);
    let changed: Vec<bool> = changed
        .map(|(old, new)| old != new && *new == wanted)
        .collect();
    of_kind(runs(shape, &changed), true)
}

fn uses_bitmaps(tree: &Tree, shape: &Shape) -> bool {
    tree[&shape.info_key()][4] == 1
}

#[test]
fn any_history_agrees_with_an_array_of_bits() {
    let mut rng = Rng::new(seed("free_space_tree_history"));
    // The last bitmap is shorter, and the group has neighbours.
    for len in [20 * MIB + 5 * SECTOR, 131 * MIB] {
        let shape = shape(len);
        let sectors = (len / SECTOR) as usize;
        let neighbours: Vec<Shape> = [shape.start.0 - 32 * MIB, shape.end()]
            .map(|start| Shape {
                start: Logical(start),
                len: 32 * MIB,
                ..shape
            })
            .into();
        let mut tree = Tree::new();
        for neighbour in &neighbours {
            make(&mut tree, new_group(neighbour));
        }
        let others = tree.clone();
        make(&mut tree, new_group(&shape));
        let mut free = vec![true; sectors];
        let mut forms = 0;
        for round in 0..120 {
            let before = free.clone();
            // Fragments the group for some rounds, then frees large ranges.
            let heals = round / 20 % 2 == 1;
            for _ in 0..rng.below(60) {
                let from = rng.below(sectors as u64) as usize;
                let longest = if heals { sectors as u64 / 8 } else { 12 };
                let end = sectors.min(from + 1 + rng.below(longest) as usize);
                free[from..end].fill(heals || rng.one_in(3));
            }
            let used = became(&shape, &before, &free, false);
            let freed = became(&shape, &before, &free, true);
            let was = uses_bitmaps(&tree, &shape);
            let changes = update(&tree, &shape, &used, &freed).unwrap();
            make(&mut tree, changes);

            let expected = of_kind(runs(&shape, &free), true);
            assert_eq!(ranges(&tree, &shape).unwrap(), expected);
            let bitmaps = uses_bitmaps(&tree, &shape);
            let count = expected.len() as u64;
            assert!(!bitmaps || count >= shape.least_ranges());
            assert!(bitmaps || count <= shape.most_ranges());
            forms += usize::from(was != bitmaps);
            let mut fresh = others.clone();
            make(&mut fresh, build(&shape, &expected));
            assert_eq!(ranges(&fresh, &shape).unwrap(), expected);
            assert_eq!(uses_bitmaps(&fresh, &shape), count > shape.most_ranges());
        }
        assert!(forms >= 4 || len < 100 * MIB, "{forms}");
        let changes = remove_group(&tree, &shape).unwrap();
        make(&mut tree, changes);
        assert_eq!(tree, others);
    }
}

#[test]
fn thresholds_are_those_of_the_kernel() {
    // A GiB has 128 bitmaps.
    let group = shape(1 << 30);
    assert_eq!((group.most_ranges(), group.least_ranges()), (1438, 1338));
    let group = shape(8 * MIB);
    assert_eq!((group.most_ranges(), group.least_ranges()), (11, 0));
}

/// Creates the tree of a group of 64 MiB with these free ranges.
fn tree_of(free: &[(u64, u64)]) -> (Shape, Tree) {
    let shape = shape(64 * MIB);
    let mut tree = Tree::new();
    make(&mut tree, build(&shape, free));
    (shape, tree)
}

#[test]
fn a_change_from_another_state_is_an_error() {
    let start = 96 * MIB;
    let (shape, tree) = tree_of(&[(start, MIB), (start + 2 * MIB, MIB)]);
    let wrong = |used: &[(u64, u64)], freed: &[(u64, u64)]| match update(&tree, &shape, used, freed)
        .unwrap_err()
    {
        Error::Corrupt { key, what, .. } => (key.objectid, what),
        other => panic!("{other}"),
    };
    for (at, len) in [
        (start + MIB, SECTOR),
        (start, MIB + SECTOR),
        (start + MIB / 2, 2 * MIB),
        (start + 3 * MIB, SECTOR),
    ] {
        assert_eq!(wrong(&[(at, len)], &[]), (at, CorruptItem::NotFree));
    }
    for (at, len) in [
        (start, SECTOR),
        (start + MIB / 2, MIB),
        (start + MIB, MIB + SECTOR),
        (start + 2 * MIB, SECTOR),
    ] {
        assert_eq!(wrong(&[], &[(at, len)]), (at, CorruptItem::AlreadyFree));
    }
    for (at, len) in [
        (start - SECTOR, SECTOR),
        (start + 64 * MIB, SECTOR),
        (start + 1, SECTOR),
        (start, 100),
        (start, 0),
        (u64::MAX, u64::MAX),
    ] {
        assert_eq!(wrong(&[(at, len)], &[]), (at, CorruptItem::FreeSpaceRange));
    }
}

// FST-1 and FST-2.
#[test]
fn damage_is_named() {
    let start = 96 * MIB;
    let free: Vec<(u64, u64)> = (0..200).map(|n| (start + 2 * n * SECTOR, SECTOR)).collect();
    let info = shape(64 * MIB).info_key();
    let extent = |at, len| Key::new(at, KeyType::FREE_SPACE_EXTENT, len);
    let bitmap = |at, len| Key::new(at, KeyType::FREE_SPACE_BITMAP, len);
    let damaged = |free: &[(u64, u64)], damage: &dyn Fn(&mut Tree)| {
        let (shape, mut tree) = tree_of(free);
        damage(&mut tree);
        match ranges(&tree, &shape).unwrap_err() {
            Error::Corrupt { key, what, .. } => (key, what),
            other => panic!("{other}"),
        }
    };
    // Extents.
    let few = &free[..5];
    let count = |said, found| (info, CorruptItem::FreeSpaceCount { said, found });
    let lost = |tree: &mut Tree| drop(tree.remove(&extent(start, SECTOR)));
    assert_eq!(damaged(few, &lost), count(5, 4));
    let no_info = |tree: &mut Tree| drop(tree.remove(&info));
    assert_eq!(damaged(few, &no_info), (info, CorruptItem::NoFreeSpaceInfo));
    let nothing = |tree: &mut Tree| tree.clear();
    assert_eq!(damaged(few, &nothing), (info, CorruptItem::NoFreeSpaceInfo));
    for (key, what) in [
        (extent(start, 3 * SECTOR), CorruptItem::FreeSpaceOverlap),
        (
            extent(start + 63 * MIB, 2 * MIB),
            CorruptItem::FreeSpaceRange,
        ),
        (extent(start + MIB, 7), CorruptItem::FreeSpaceRange),
        (extent(start + MIB, u64::MAX), CorruptItem::FreeSpaceRange),
        (bitmap(start + 8 * MIB, 8 * MIB), CorruptItem::FreeSpaceForm),
        (
            Key::new(start + MIB, KeyType::FREE_SPACE_INFO, MIB),
            CorruptItem::FreeSpaceForm,
        ),
    ] {
        let add = |tree: &mut Tree| drop(tree.insert(key, Vec::new()));
        assert_eq!(damaged(few, &add), (key, what));
    }
    // Bitmaps.
    let lost = |tree: &mut Tree| drop(tree.remove(&bitmap(start + 8 * MIB, 8 * MIB)));
    let next = bitmap(start + 16 * MIB, 8 * MIB);
    assert_eq!(damaged(&free, &lost), (next, CorruptItem::FreeSpaceBitmap));
    let last = bitmap(start + 56 * MIB, 8 * MIB);
    let lost = |tree: &mut Tree| drop(tree.remove(&last));
    assert_eq!(damaged(&free, &lost), (last, CorruptItem::FreeSpaceBitmap));
    let short = |tree: &mut Tree| tree.get_mut(&next).unwrap().truncate(255);
    assert_eq!(damaged(&free, &short), (next, CorruptItem::FreeSpaceBitmap));
    let flipped = |tree: &mut Tree| tree.get_mut(&next).unwrap()[100] ^= 4;
    assert_eq!(damaged(&free, &flipped), count(200, 201));
    let mixed = |tree: &mut Tree| drop(tree.insert(extent(start + 9 * MIB, SECTOR), Vec::new()));
    let key = extent(start + 9 * MIB, SECTOR);
    assert_eq!(damaged(&free, &mixed), (key, CorruptItem::FreeSpaceForm));
}

#[test]
fn ranges_that_touch_are_read_and_mended() {
    let start = 96 * MIB;
    let (shape, mut tree) = tree_of(&[(start, MIB), (start + 4 * MIB, MIB)]);
    tree.insert(
        Key::new(start + MIB, KeyType::FREE_SPACE_EXTENT, MIB),
        Vec::new(),
    );
    tree.get_mut(&shape.info_key()).unwrap()[0] = 3;
    assert_eq!(
        ranges(&tree, &shape).unwrap(),
        [(start, 2 * MIB), (start + 4 * MIB, MIB)]
    );
    let changes = update(&tree, &shape, &[(start + 4 * MIB, MIB)], &[]).unwrap();
    make(&mut tree, changes);
    let (_, expected) = tree_of(&[(start, 2 * MIB)]);
    assert_eq!(tree, expected);
}

/// Checks that the free ranges of all groups complement the extent tree. Returns the number of groups with bitmaps.
fn assert_complements_extents(volume: &Roots, name: &str) -> usize {
    let free_space = volume.tree(RootId::FREE_SPACE_TREE).unwrap();
    let view = &free_space.view;
    let extents = volume.tree(RootId::EXTENT_TREE).unwrap();
    let nodesize = u64::from(volume.superblock().nodesize.get());
    let sectorsize = volume.superblock().sectorsize.get();
    let mut groups = Vec::new();
    volume
        .for_each_block_group(&mut |group| groups.push(group))
        .unwrap();
    let mut bitmaps = 0;
    for group in groups {
        let shape = Shape {
            start: group.start,
            len: group.length,
            sectorsize,
        };
        let mut expected = Vec::new();
        let mut at = shape.start.0;
        let from = Key::new(at, KeyType(0), 0);
        extents
            .view
            .scan(&from, &mut |key, _| {
                let len = match key.item_type {
                    _ if key.objectid >= shape.end() => return Ok(false),
                    KeyType::EXTENT_ITEM => key.offset,
                    KeyType::METADATA_ITEM => nodesize,
                    _ => return Ok(true),
                };
                if at < key.objectid {
                    expected.push((at, key.objectid - at));
                }
                at = key.objectid + len;
                Ok(true)
            })
            .unwrap();
        if at < shape.end() {
            expected.push((at, shape.end() - at));
        }
        assert_eq!(ranges(view, &shape).unwrap(), expected, "{name} {shape:?}");
        let read = Group::read(view, &shape).unwrap();
        bitmaps += usize::from(read.bitmaps);
        // The items must equal those from the kernel.
        let again = shape.items(&read.free, read.bitmaps);
        assert_eq!(again, read.items, "{name} {shape:?}");
    }
    bitmaps
}

#[test]
fn free_space_of_kept_images_is_what_their_extents_leave() {
    let mut compared = 0;
    for name in images::names().unwrap() {
        let image = images::image(&name).unwrap();
        let volume = test_roots::open_paths(&image.devices);
        if volume.find_tree(RootId::FREE_SPACE_TREE).unwrap().is_some() {
            assert_complements_extents(&volume, &name);
            compared += 1;
        }
    }
    assert!(compared >= 3, "{compared}");
}

#[test]
fn bitmaps_of_the_kernel_are_read_and_written_alike() {
    if !kernel::or_skip("bitmaps_of_the_kernel_are_read_and_written_alike") {
        return;
    }
    let spec = MkfsSpec::new().device_bytes(400 * MIB);
    let volume = KernelVolume::make(&spec).unwrap();
    let mount = volume.mount("max_inline=0").unwrap();
    let file = |number: u32| mount.path().join(number.to_string());
    for number in 0..4000 {
        fs::write(file(number), [number as u8; 4096]).unwrap();
    }
    mount.sync().unwrap();
    for number in (0..4000).step_by(2) {
        fs::remove_file(file(number)).unwrap();
    }
    mount.unmount().unwrap();
    let read = test_roots::open_paths(volume.devices());
    assert_eq!(
        u64::from(read.superblock().sectorsize.get()) * 8 * FREE_SPACE_BITMAP_BYTES as u64,
        8 * MIB
    );
    assert!(assert_complements_extents(&read, "fragmented") > 0);
}
