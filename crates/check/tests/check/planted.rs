//! Each test plants one fault into a valid volume. The check must report exactly this fault and its consequences.
//!
//! `follows` are unavoidable consequences of a fault: for example, newly allocated space is missing elsewhere.

mod editing;
mod extents;
mod files;
pub(crate) mod logs;
mod space;
mod volume;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use ubtrfs_check::{CheckOptions, Fault, Report, check_devices};
use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::{RootId, objectid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::Node;
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::fault::FaultDevice;
use ubtrfs_sim::images;
use zerocopy::FromBytes;

pub(crate) type Devices = Vec<(PathBuf, Arc<FaultDevice>)>;

/// Kept images: one with current defaults, one without optional features, and one with small nodes.
const DEFAULT: &str = "crc32c-zstd";
const OLDEST: &str = "sha256-zlib-oldest";
const SMALL_NODES: &str = "xxhash-lzo-4k-mixed";
const RAID1: &str = "raid1";

pub(crate) struct Plant {
    pub(crate) number: u16,
    follows: &'static [u16],
    image: &'static str,
    edit: fn(&mut Crafted),
    /// Injects device faults.
    break_devices: fn(&Crafted, &mut Devices),
}

fn plant(number: u16, follows: &'static [u16], edit: fn(&mut Crafted)) -> Plant {
    Plant {
        number,
        follows,
        image: DEFAULT,
        edit,
        break_devices: |_, _| {},
    }
}

impl Plant {
    fn on(self, image: &'static str) -> Plant {
        Plant { image, ..self }
    }

    /// Creates the volume with the fault.
    pub(crate) fn devices(&self) -> Devices {
        let mut volume = crafted(self.image);
        (self.edit)(&mut volume);
        let mut devices = volume.devices();
        (self.break_devices)(&volume, &mut devices);
        devices
    }

    fn report(&self) -> Report {
        check_it(self.devices())
    }

    fn breaking(self, break_devices: fn(&Crafted, &mut Devices)) -> Plant {
        Plant {
            break_devices,
            ..self
        }
    }
}

/// Returns a kept image, which is loaded once.
fn crafted(image: &'static str) -> Crafted {
    static READ: OnceLock<Mutex<BTreeMap<&'static str, Crafted>>> = OnceLock::new();
    let mut read = READ.get_or_init(Mutex::default).lock().unwrap();
    let load = || Crafted::load(&images::image(image).unwrap().devices);
    read.entry(image).or_insert_with(load).clone()
}

pub(crate) fn check_it(devices: Devices) -> Report {
    let devices = devices
        .into_iter()
        .map(|(path, device)| (path, device as Arc<dyn BlockDevice>))
        .collect();
    let options = CheckOptions {
        data_csums: true,
        max_issues: 12,
        ..CheckOptions::default()
    };
    check_devices(devices, &options, &mut ()).unwrap()
}

pub(crate) fn all() -> Vec<Plant> {
    let mut plants = volume::plants();
    plants.extend(extents::plants());
    plants.extend(space::plants());
    plants.extend(files::plants());
    plants
}

#[test]
fn each_planted_fault_is_named() {
    let mut failures = String::new();
    for plant in all() {
        let number = plant.number;
        let Ok(report) = std::panic::catch_unwind(|| plant.report()) else {
            failures += &format!("E{number:04}: cannot be planted\n");
            continue;
        };
        let mut wanted = plant.follows.to_vec();
        wanted.push(plant.number);
        wanted.sort_unstable();
        if report.numbers() != wanted {
            failures += &format!("E{number:04}: wanted {wanted:?}, found\n{report}\n");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Makes the innermost subvolume half deleted by the kernel, up to its second leaf. Its space and UUID entry are not
/// updated.
fn delete_half(volume: &mut Crafted, drop_progress: Key) {
    let tree = RootId(258);
    let is_root =
        |key: Key, _: &[u8]| (key.objectid, key.item_type) == (tree.0, KeyType::ROOT_ITEM);
    editing::edit(volume, RootId::ROOT_TREE, is_root, |_, bytes| {
        let root = RootItem::mut_from_bytes(bytes).unwrap();
        root.refs = 0.into();
        root.drop_progress = drop_progress.into();
        root.drop_level = 1;
    });
    let orphan = Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, tree.0);
    editing::insert(volume, RootId::ROOT_TREE, orphan, &[]);
}

#[test]
fn half_deleted_subvolume_lacks_its_beginning() {
    let mut volume = crafted(SMALL_NODES);
    let roots = volume.blocks_of(RootId(258), 1);
    let root = volume.block(roots[0]);
    let ptrs = Node::new(&root).unwrap().ptrs();
    assert_eq!((roots.len(), ptrs.len() > 2), (1, true));
    let (first, second) = (ptrs[0].blockptr.get(), ptrs[1].key.get());
    let leaf = volume.block(first);
    let mut items = Node::new(&leaf).unwrap().items();
    assert!(items.all(|(key, _)| key.item_type != KeyType::EXTENT_DATA));
    let is_leaf = |key: Key, _: &[u8]| key.objectid == first;
    editing::remove(&mut volume, RootId::EXTENT_TREE, is_leaf);

    let mut whole = volume.clone();
    delete_half(&mut whole, Key::MIN);
    let report = check_it(whole.devices());
    assert_eq!(report.numbers(), [112, 401, 501, 502, 610], "{report}");

    delete_half(&mut volume, second);
    let report = check_it(volume.devices());
    assert_eq!(report.numbers(), [112, 501, 502, 610], "{report}");
}

/// The kept images have no log and only one leaf of device extents: `kernel_volumes` and `logs` plant these faults.
/// E0310 is only possible through a bug in the check itself. E0914 is planted by a test of the engine, because a
/// kernel must not mount it.
const NOT_PLANTED: &[u16] = &[
    209, 308, 310, 807, 901, 902, 903, 904, 905, 906, 907, 908, 909, 910, 911, 912, 913, 914,
];

#[test]
fn each_number_is_planted() {
    let planted: Vec<u16> = all().iter().map(|plant| plant.number).collect();
    for (number, name) in Fault::ALL {
        let covered = planted.contains(number) || NOT_PLANTED.contains(number);
        assert!(covered, "E{number:04} {name} is not planted");
    }
}

#[test]
fn numbers_and_names_are_distinct() {
    let mut numbers: Vec<u16> = Fault::ALL.iter().map(|(number, _)| *number).collect();
    assert!(numbers.is_sorted());
    numbers.dedup();
    assert_eq!(numbers.len(), Fault::ALL.len());
    let mut names: Vec<&str> = Fault::ALL.iter().map(|(_, name)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Fault::ALL.len());
}

/// Returns the numbers of errors, warnings and notes.
fn severities(image: &'static str, edit: impl FnOnce(&mut Crafted)) -> [u64; 3] {
    let mut volume = crafted(image);
    edit(&mut volume);
    let report = check_it(volume.devices());
    [report.errors, report.warnings, report.notes]
}

#[test]
fn superblocks_one_commit_apart_are_noted() {
    let behind = |wanted: (usize, usize), by: u64| {
        move |volume: &mut Crafted| {
            volume.edit_superblocks(
                |device, copy| (device, copy) == wanted,
                |sb| sb.generation = (sb.generation.get() - by).into(),
            );
        }
    };
    assert_eq!(severities(DEFAULT, behind((0, 1), 1)), [0, 0, 1]);
    assert_eq!(severities(DEFAULT, behind((0, 1), 2)), [0, 1, 0]);
    let device_behind = |by: u64| {
        move |volume: &mut Crafted| {
            volume.edit_superblocks(
                |device, _| device == 1,
                |sb| sb.generation = (sb.generation.get() - by).into(),
            );
        }
    };
    assert_eq!(severities(RAID1, device_behind(1)), [0, 0, 1]);
    assert_eq!(severities(RAID1, device_behind(2)), [0, 1, 0]);
}

#[test]
fn copy_that_was_never_written_is_noted() {
    let offset = SUPERBLOCK_OFFSETS[1];
    let absent = |volume: &mut Crafted| volume.write((0, offset), &[0; SUPERBLOCK_SIZE]);
    assert_eq!(severities(DEFAULT, absent), [0, 0, 1]);
    let torn = |volume: &mut Crafted| volume.write((0, offset + 512), &[9; 512]);
    assert_eq!(severities(DEFAULT, torn), [0, 1, 0]);
}

/// The kernel writes no copy there: a volume that was shrunk keeps an old one.
#[test]
fn copy_behind_the_end_of_the_volume_is_no_copy() {
    let shrink = |volume: &mut Crafted| {
        let total = SUPERBLOCK_OFFSETS[1] + SUPERBLOCK_SIZE as u64;
        volume.edit_superblocks(
            |_, copy| copy == 0,
            |sb| sb.dev_item.total_bytes = total.into(),
        );
        volume.edit_superblocks(|_, copy| copy == 1, |sb| sb.generation = 1.into());
    };
    let mut volume = crafted(DEFAULT);
    shrink(&mut volume);
    let report = check_it(volume.devices());
    assert_eq!(report.numbers(), [113], "{report}");
}

#[test]
fn missing_device_is_a_warning_if_it_is_allowed() {
    let counts = |degraded: bool| {
        let mut devices = crafted(RAID1).devices();
        devices.truncate(1);
        let devices = devices
            .into_iter()
            .map(|(path, device)| (path, device as Arc<dyn BlockDevice>))
            .collect();
        let options = CheckOptions {
            data_csums: true,
            degraded,
            ..CheckOptions::default()
        };
        let report = check_devices(devices, &options, &mut ()).unwrap();
        assert_eq!(report.numbers(), [106], "{report}");
        [report.errors, report.warnings]
    };
    assert_eq!(counts(false), [1, 0]);
    assert_eq!(counts(true), [0, 1]);
}
