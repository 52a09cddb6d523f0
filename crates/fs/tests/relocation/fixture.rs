//! Steps that the tests share.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::{ExtentFlags, decode_extent};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{BlockGroupRecord, OpenOptions, RelocationOptions, RelocationReport, Volume};
use ubtrfs_sim::kernel::KernelVolume;
use ubtrfs_sim::manifest::{Manifest, assert_same};

pub(crate) fn options() -> OpenOptions {
    OpenOptions::new().writable(true).commit_interval(None)
}

pub(crate) fn is_soak() -> bool {
    std::env::var_os("UBTRFS_SOAK").is_some()
}

pub(crate) fn open(devices: &[PathBuf]) -> Arc<Volume> {
    Volume::open(devices, &options()).unwrap()
}

/// Lists the block groups of the last commit.
pub(crate) fn groups(volume: &Volume) -> Vec<BlockGroupRecord> {
    let mut groups = Vec::new();
    let mut each = |group| groups.push(group);
    volume.for_each_block_group(&mut each).unwrap();
    groups
}

/// Returns the bytes of all data extents, and the number of tree blocks, as of the last commit.
pub(crate) fn used(volume: &Volume) -> (u64, u64) {
    let tree = volume.find_tree(RootId::EXTENT_TREE).unwrap().unwrap();
    let view = tree.committed_view();
    let mut cursor = view.cursor();
    let (mut data, mut blocks) = (0, 0);
    let mut more = cursor.seek(&Key::MIN).unwrap();
    while more && let Some((key, bytes)) = cursor.current() {
        if matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM) {
            let extent = decode_extent(key.item_type, bytes).unwrap();
            if extent.head.flags().contains(ExtentFlags::DATA) {
                data += key.offset;
            } else {
                blocks += 1;
            }
        }
        more = cursor.advance().unwrap();
    }
    (data, blocks)
}

/// Returns limits so small that every relocation takes several commits.
pub(crate) fn small_batches() -> RelocationOptions {
    RelocationOptions {
        batch_bytes: 1 << 20,
        batch_extents: 40,
        batch_blocks: 20,
        batch_copies: 200,
        ..RelocationOptions::default()
    }
}

/// Returns limits for many commits.
pub(crate) fn tiny_batches() -> RelocationOptions {
    RelocationOptions {
        batch_bytes: 100 << 10,
        batch_extents: 5,
        batch_blocks: 4,
        batch_copies: 20,
        ..RelocationOptions::default()
    }
}

pub(crate) fn relocate(volume: &Volume, start: Logical) -> RelocationReport {
    let report = volume.relocate(start, &small_batches(), &mut ()).unwrap();
    assert_eq!(report.damaged_sectors, 0, "{report:?}");
    report
}

/// Checks that both checkers find nothing on the closed volume.
pub(crate) fn check_both(volume: &KernelVolume) {
    let report = check(volume.devices(), &CheckOptions::default(), &mut ()).unwrap();
    assert!(report.is_spotless(), "{report}");
    volume.check().unwrap();
}

/// Checks that the kernel shows the contents of `wanted`.
pub(crate) fn check_contents(volume: &KernelVolume, wanted: &Manifest) {
    let mount = volume.mount_ro().unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    assert_same("after the relocation", wanted, &shown, &[]);
}
