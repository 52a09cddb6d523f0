//! Items that have grown so far that Linux could crash when it replays their log. No kernel mounts these
//! volumes.

use std::sync::Arc;

use ubtrfs_check::{CheckOptions, Report, check_devices};
use ubtrfs_device::{BlockDevice, CopyChoice, DeviceSuperblocks, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::KeyType;
use ubtrfs_fs::{FileId, FullCommitReason, NewInode, Volume, XattrMode};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::record::save_image;

use crate::cut::{made_on, named, open};

const NAME: &[u8] = b"user.big";
/// The fault of LOG-WRITE-4 in `check`.
const OUTGROWN: u16 = 914;

fn make(nodesize: u32) -> (Arc<MemDevice>, Arc<Volume>) {
    let options = MkfsOptions {
        nodesize: Some(nodesize),
        ..MkfsOptions::default()
    };
    let device = Arc::new(made_on(1, &options).remove(0));
    let volume = open(device.clone(), true).unwrap();
    (device, volume)
}

fn create(volume: &Volume) -> (FileId, FileId) {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.create(top, b"f", &NewInode::file(0o600)).unwrap();
    (top, file)
}

fn set(volume: &Volume, file: FileId, bytes: usize) {
    let value = vec![bytes as u8; bytes];
    volume
        .set_xattr(file, NAME, &value, XattrMode::Any)
        .unwrap();
}

/// Returns the number of logs, and of commits in place of a log with a large item.
fn logs(volume: &Volume) -> (u64, u64) {
    let stats = volume.writer_stats().unwrap();
    (
        stats.logs,
        stats.full_commits[FullCommitReason::LargeItem as usize],
    )
}

fn has_log(device: &dyn BlockDevice) -> bool {
    let path = std::path::Path::new("memory");
    let found = DeviceSuperblocks::read(device);
    found
        .require(device, path, CopyChoice::First)
        .unwrap()
        .has_log()
}

fn outgrown(devices: Vec<Arc<dyn BlockDevice>>) -> Report {
    check_devices(named(devices), &CheckOptions::default(), &mut ()).unwrap()
}

/// LOG-WRITE-4
#[test]
fn attribute_that_outgrows_a_leaf_is_committed() {
    let (device, volume) = make(16_384);
    let (_, file) = create(&volume);
    set(&volume, file, 9000);
    volume.sync().unwrap();
    // Both fit in a leaf together.
    set(&volume, file, 7000);
    volume.fsync(file).unwrap();
    assert_eq!(logs(&volume), (1, 0));
    set(&volume, file, 15_900);
    volume.fsync(file).unwrap();
    assert_eq!(logs(&volume), (1, 1));
    let cut = Arc::new((*device).clone());
    assert!(!has_log(&*cut));
    let after = open(cut, true).unwrap();
    let value = after.xattr(file, NAME).unwrap().unwrap();
    assert_eq!(value, vec![15_900_usize as u8; 15_900]);
    // It shrinks, which is harmless.
    set(&volume, file, 15_000);
    volume.fsync(file).unwrap();
    assert_eq!(logs(&volume), (2, 1));
}

/// LOG-WRITE-4
#[test]
fn names_that_outgrow_a_leaf_are_committed() {
    let (device, volume) = make(4096);
    let (top, file) = create(&volume);
    let link = |number: usize| {
        let name = format!("{number:0200}");
        volume.link(file, top, name.as_bytes()).unwrap();
    };
    (0..9).for_each(link);
    volume.sync().unwrap();
    (9..11).for_each(link);
    volume.fsync(file).unwrap();
    assert_eq!(logs(&volume), (0, 1));
    assert!(!has_log(&*device));
}

/// LOG-WRITE-4
#[test]
fn check_warns_of_a_log_with_which_linux_may_crash() {
    let (device, volume) = make(16_384);
    let (_, file) = create(&volume);
    set(&volume, file, 8000);
    volume.sync().unwrap();
    set(&volume, file, 8100);
    volume.fsync(file).unwrap();
    assert_eq!(logs(&volume), (1, 0));
    let sound = outgrown(vec![device.clone()]);
    assert!(sound.issues.is_empty(), "{:?}", sound.issues);

    let dir = ubtrfs_sim::Scratch::new().unwrap();
    let image = dir.path().join("image");
    save_image(&*device, &image).unwrap();
    let mut crafted = Crafted::load(std::slice::from_ref(&image));
    let edited = crafted.edit_leaves(RootId::TREE_LOG, |items| {
        let mut items = items.iter_mut();
        let item = items.find(|(key, _)| key.item_type == KeyType::XATTR_ITEM);
        item.is_some_and(|(_, bytes)| {
            // The length of the value.
            bytes[25..27].copy_from_slice(&9100_u16.to_le_bytes());
            bytes.resize(bytes.len() + 1000, 1);
            true
        })
    });
    assert_eq!(edited, 1);
    let crafted = Arc::clone(&crafted.devices()[0].1);
    let report = outgrown(vec![crafted.clone()]);
    let found: Vec<u16> = report
        .issues
        .iter()
        .map(|issue| issue.fault.number())
        .collect();
    assert_eq!(found, [OUTGROWN], "{:?}", report.issues);
    // The remedy that the fault names.
    let after = open(crafted.clone(), true).unwrap();
    assert_eq!(after.xattr(file, NAME).unwrap().unwrap().len(), 9100);
    after.close().unwrap();
    assert!(!has_log(&*crafted));
}
