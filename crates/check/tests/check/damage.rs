//! A check of arbitrary bytes ends with a report or an error, and its verdict agrees with `btrfs check`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use ubtrfs_check::{CheckError, CheckOptions, Report, check, check_devices};
use ubtrfs_device::BlockDevice;
use ubtrfs_format::check::{BlockContext, lenient_items};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::node::{HEADER_SIZE, Header, KeyPtr, Node};
use ubtrfs_sim::craft::{Crafted, mutate};
use ubtrfs_sim::{Progress, Rng, damage, images, kernel};
use zerocopy::{FromBytes, IntoBytes};

fn rounds(few: usize, soak: usize) -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => soak,
        None => few,
    }
}

/// Returns the addresses of all blocks, by tree and level.
fn blocks(volume: &Crafted) -> Vec<u64> {
    let trees = (1..12).chain(256..265).map(RootId);
    trees
        .flat_map(|tree| (0..3).flat_map(move |level| volume.blocks_of(tree, level)))
        .collect()
}

// WALK-1: a walk terminates on any input.
#[test]
fn mutated_blocks_never_panic() {
    const TEST: &str = "mutated_blocks_never_panic";
    let seed = ubtrfs_sim::seed(TEST);
    let mut rng = Rng::new(seed);
    let names = images::names().unwrap();
    let rounds = rounds(12, 1_000);
    let progress = Progress::new(TEST, names.len() * rounds);
    for name in names {
        let sound = Crafted::load(&images::image(&name).unwrap().devices);
        let blocks = blocks(&sound);
        let superblock = sound.superblock();
        for _ in 0..rounds {
            let mut volume = sound.clone();
            for _ in 0..1 + rng.below(6) {
                let bytenr = blocks[rng.below(blocks.len() as u64) as usize];
                let mut block = volume.block(bytenr);
                mutate(&mut block, &mut rng);
                // LENIENT-2
                let node = Node::new(&block).unwrap();
                let items = lenient_items(node, &BlockContext::new(&superblock));
                assert_eq!(items.len(), node.heads().len());
                volume.put_block(bytenr, &mut block);
            }
            let report = of_crafted(&volume);
            assert!(report.issues.len() <= 10);
            progress.step(|| &name);
        }
    }
}

#[test]
fn overwritten_sectors_never_panic() {
    const TEST: &str = "overwritten_sectors_never_panic";
    let seed = ubtrfs_sim::seed(TEST);
    let mut rng = Rng::new(seed);
    for name in images::names().unwrap() {
        for one_in in [100, 10, 2] {
            let image = images::image(&name).unwrap();
            for device in &image.devices {
                let len = device.metadata().unwrap().len();
                let range = 1 << 20..len;
                damage::corrupt(device, std::slice::from_ref(&range), one_in, &mut rng).unwrap();
            }
            let options = CheckOptions {
                data_csums: true,
                max_issues: 10,
                ..CheckOptions::default()
            };
            let report = check(&image.devices, &options, &mut ()).unwrap();
            assert!(!report.is_clean(), "{name}, one in {one_in}");
        }
    }
}

/// Consequences of a lost block are not listed.
///
/// WALK-2
#[test]
fn lost_block_is_one_issue() {
    const TEST: &str = "lost_block_is_one_issue";
    let seed = ubtrfs_sim::seed(TEST);
    let mut rng = Rng::new(seed);
    let rounds = rounds(25, 500);
    let mut failures = String::new();
    let progress = Progress::new(TEST, 3 * rounds);
    for name in ["crc32c-zstd", "sha256-zlib-oldest", "xxhash-lzo-4k-mixed"] {
        let sound = Crafted::load(&images::image(name).unwrap().devices);
        let blocks = blocks(&sound);
        for _ in 0..rounds {
            let bytenr = blocks[rng.below(blocks.len() as u64) as usize];
            let mut volume = sound.clone();
            for (device, offset) in volume.places(bytenr).to_vec() {
                volume.write((device, offset + 90), b"damaged");
            }
            let report = of_crafted(&volume);
            let block = sound.block(bytenr);
            let node = Node::new(&block).unwrap();
            if report.numbers() != [301] {
                failures += &format!(
                    "{name}, block {bytenr} of tree {} on level {}:\n{report}\n",
                    node.owner(),
                    node.level()
                );
            }
            progress.step(|| name);
        }
    }
    assert!(failures.is_empty(), "seed {seed}\n{failures}");
}

/// An address without a chunk. Such a volume cannot be opened.
const UNMAPPED: u64 = 1 << 50;

#[test]
fn chunk_tree_root_that_no_chunk_maps_is_an_error() {
    let mut volume = Crafted::load(&images::image("crc32c-zstd").unwrap().devices);
    volume.edit_superblocks(|_, _| true, |sb| sb.chunk_root = UNMAPPED.into());
    let report = of_crafted(&volume);
    assert_eq!(report.numbers(), [302], "{report}");
    assert!(report.suppressed > 0);
}

#[test]
fn chunk_tree_children_that_no_chunk_maps_are_errors() {
    let mut volume = Crafted::load(&images::image("crc32c-zstd").unwrap().devices);
    let root = volume.superblock().chunk_root.get();
    let mut block = volume.block(root);
    let node = Node::new(&block).unwrap();
    let generation = node.generation().0;
    let keys = [node.key(0).unwrap(), node.key(1).unwrap()];
    let mut at = HEADER_SIZE;
    for (slot, key) in keys.into_iter().enumerate() {
        let ptr = KeyPtr {
            key: key.into(),
            blockptr: (UNMAPPED + ((slot as u64) << 20)).into(),
            generation: generation.into(),
        };
        block[at..at + size_of::<KeyPtr>()].copy_from_slice(ptr.as_bytes());
        at += size_of::<KeyPtr>();
    }
    let header = Header::mut_from_bytes(&mut block[..HEADER_SIZE]).unwrap();
    header.nritems = 2.into();
    header.level = 1;
    volume.put_block(root, &mut block);
    volume.edit_superblocks(|_, _| true, |sb| sb.chunk_root_level = 1);
    let report = of_crafted(&volume);
    assert_eq!(report.numbers(), [302], "{report}");
    assert_eq!(report.errors, 2, "{report}");
}

/// The backups refer to the current root tree, to a block of another tree, and to a copy of the root tree two
/// transactions older.
#[test]
fn backup_root_is_the_newest_of_an_earlier_transaction_that_can_be_read() {
    let mut volume = Crafted::load(&images::image("crc32c-zstd").unwrap().devices);
    let superblock = volume.superblock();
    let (newest, level) = (superblock.generation.get(), superblock.root_level);
    let current = superblock.root.get();
    let [none, copy] =
        [RootId::UUID_TREE, RootId::DEV_TREE].map(|tree| volume.blocks_of(tree, 0)[0]);
    let mut block = volume.block(current);
    volume.put_block(copy, &mut block);
    volume.edit_header(copy, |header| {
        header.bytenr = copy.into();
        header.generation = (newest - 2).into();
    });
    volume.edit_superblocks(
        |_, _| true,
        |superblock| {
            let roots = [(current, newest), (none, newest - 1), (copy, newest - 2)];
            for (slot, (bytenr, generation)) in roots.into_iter().enumerate() {
                let backup = &mut superblock.super_roots[slot];
                backup.tree_root = bytenr.into();
                backup.tree_root_gen = generation.into();
                backup.tree_root_level = level;
                backup.chunk_root = superblock.chunk_root;
                backup.chunk_root_gen = superblock.chunk_root_generation;
                backup.chunk_root_level = superblock.chunk_root_level;
            }
            superblock.super_roots[3].tree_root = 0.into();
            superblock.bytes_used += 4096;
        },
    );
    let of_backup = |volume: &Crafted| {
        let options = CheckOptions {
            backup_root: true,
            ..CheckOptions::default()
        };
        check_devices(devices_of(volume), &options, &mut ())
    };
    // The superblock's totals, one of which is wrong, belong to the current root.
    let is_current = |report: Report| report.numbers().contains(&112);
    assert!(!is_current(of_backup(&volume).unwrap()));

    let damage = |volume: &mut Crafted, bytenr: u64| {
        for (device, offset) in volume.places(bytenr).to_vec() {
            volume.write((device, offset + 90), b"damaged");
        }
    };
    damage(&mut volume, copy);
    assert!(is_current(of_backup(&volume).unwrap()));
    damage(&mut volume, current);
    let error = of_backup(&volume).unwrap_err();
    assert!(matches!(error, CheckError::NoBackupRoot), "{error}");
}

fn devices_of(volume: &Crafted) -> Vec<(PathBuf, Arc<dyn BlockDevice>)> {
    let devices = volume.devices().into_iter();
    let devices = devices.map(|(path, device)| (path, device as Arc<dyn BlockDevice>));
    devices.collect()
}

fn of_crafted(volume: &Crafted) -> Report {
    let options = CheckOptions {
        memory_bytes: 1 << 20,
        max_issues: 10,
        ..CheckOptions::default()
    };
    check_devices(devices_of(volume), &options, &mut ()).unwrap()
}

/// A mutated block in the file of a volume with one device; restored when dropped.
struct Mutated<'d> {
    file: &'d File,
    places: Vec<(usize, u64)>,
    sound: Vec<u8>,
}

impl Drop for Mutated<'_> {
    fn drop(&mut self) {
        for &(_, offset) in &self.places {
            self.file.write_all_at(&self.sound, offset).unwrap();
        }
    }
}

/// Runs `btrfs check`. A crash or a hang also gives an output with a failure status.
fn progs(device: &Path) -> Output {
    Command::new("timeout")
        .args(["60", "btrfs", "check"])
        .arg(device)
        .output()
        .expect("btrfs starts")
}

fn ours(device: &PathBuf) -> Report {
    let options = CheckOptions::default();
    check(std::slice::from_ref(device), &options, &mut ()).unwrap()
}

#[test]
fn volumes_that_btrfs_check_refuses_are_not_clean() {
    const TEST: &str = "volumes_that_btrfs_check_refuses_are_not_clean";
    if !kernel::or_skip(TEST) {
        return;
    }
    let seed = ubtrfs_sim::seed(TEST);
    let (mut refused, mut stricter) = (0, std::collections::BTreeMap::<u16, usize>::new());
    let rounds = rounds(50, 1_000);
    let names = ["crc32c-zstd", "sha256-zlib-oldest"];
    let progress = Progress::new(TEST, names.len() * rounds);
    let mut failures = String::new();
    for name in names {
        let image = images::image(name).unwrap();
        let device = &image.devices[0];
        let mut volume = Crafted::load(&image.devices);
        let blocks = blocks(&volume);
        let file = File::options().write(true).open(device).unwrap();
        for round in 0..rounds as u64 {
            // With this seed, the round would be the first one.
            let seed = seed.wrapping_add(round);
            let mut rng = Rng::new(seed);
            let bytenr = blocks[rng.below(blocks.len() as u64) as usize];
            let sound = volume.block(bytenr);
            let mut block = sound.clone();
            mutate(&mut block, &mut rng);
            volume.put_block(bytenr, &mut block);
            let places = volume.places(bytenr).to_vec();
            for &(_, offset) in &places {
                file.write_all_at(&block, offset).unwrap();
            }
            let undo = Mutated {
                file: &file,
                places,
                sound: sound.clone(),
            };
            let output = progs(device);
            let theirs = output.status.success();
            let report = ours(device);
            refused += usize::from(!theirs);
            if !theirs && report.is_clean() {
                let at = (0..block.len()).find(|&at| at >= 32 && block[at] != sound[at]);
                failures += &format!(
                    "{name}, UBTRFS_SEED={seed}, block {bytenr} at {at:?}: {report}{}\n",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            if theirs {
                for number in report.numbers() {
                    *stricter.entry(number).or_default() += 1;
                }
            }
            drop(undo);
            volume.put_block(bytenr, &mut sound.clone());
            progress.step(|| format!("{name}, {refused} refused"));
        }
    }
    assert!(
        failures.is_empty(),
        "refused by btrfs check only:\n{failures}"
    );
    assert!(refused > 0);
    println!("refused by both: {refused}; seen here only, by number: {stricter:?}");
}
