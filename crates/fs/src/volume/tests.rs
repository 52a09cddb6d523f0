//! Transactions through the whole volume, some with raw edits. The kernel's tools check the committed state.

mod commit;
mod devices;
mod discard;
mod earlier_roots;
mod full_metadata;
mod pending_subvolumes;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::DirHead;
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::fill::{Scale, hard_cases};
use ubtrfs_sim::kernel::{self, Feature, KernelMount, KernelVolume, MkfsSpec, Profile};
use ubtrfs_sim::{Rng, new_volume, read_data};
use ubtrfs_storage::EditEstimate;
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::space::BlockGroup;
use ubtrfs_tree::Edit;
use zerocopy::IntoBytes;

use crate::{BlockGroupType, OpenOptions, Volume};

const DEVICE_BYTES: u64 = 512 << 20;

fn new_device(features: &str) -> Arc<MemDevice> {
    device_of(DEVICE_BYTES, features)
}

fn device_of(device_bytes: u64, features: &str) -> Arc<MemDevice> {
    let mut options = MkfsOptions::default();
    options.features.apply_list(features).unwrap();
    Arc::new(new_volume(&options, device_bytes))
}

fn options() -> OpenOptions {
    OpenOptions::new().writable(true).commit_interval(None)
}

fn open(device: &Arc<MemDevice>, options: &OpenOptions) -> Arc<Volume> {
    let device: Arc<dyn BlockDevice> = device.clone();
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], options).unwrap()
}

/// Returns the item of an inode's attribute.
fn xattr(ino: u64, name: &str, value: &[u8]) -> (Key, Vec<u8>) {
    let name = name.as_bytes();
    let key = Key::new(ino, KeyType::XATTR_ITEM, u64::from(name_hash(name)));
    let head = DirHead {
        location: DiskKey::from(Key::new(0, KeyType(0), 0)),
        transid: 1.into(),
        data_len: (value.len() as u16).into(),
        name_len: (name.len() as u16).into(),
        type_: 8,
    };
    (key, [head.as_bytes(), name, value].concat())
}

/// Sets an attribute, unless another one has the same hash.
fn set(volume: &Volume, tree: &Arc<Tree>, ino: u64, number: u64, value: &[u8]) {
    let (key, item) = xattr(ino, &format!("user.{number}"), value);
    let reservation = volume
        .inodes
        .reserve_metadata(
            RootId::FS_TREE,
            EditEstimate::items(1).bytes(item.len() as u64),
        )
        .unwrap();
    volume
        .inodes
        .join_transaction(reservation)
        .unwrap()
        .put(tree, key, item);
}

fn remove(volume: &Volume, tree: &Arc<Tree>, ino: u64, number: u64) {
    let (key, _) = xattr(ino, &format!("user.{number}"), &[]);
    if tree.view.get(&key).unwrap().is_some() {
        let reservation = volume
            .inodes
            .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
            .unwrap();
        volume
            .inodes
            .join_transaction(reservation)
            .unwrap()
            .edit(tree, [Edit::Delete(key)]);
    }
}

#[test]
fn sync_without_edits_commits_nothing() {
    let device = new_device("");
    let volume = open(&device, &options());
    let before = volume.superblock().generation.get();
    volume.sync().unwrap();
    assert_eq!(volume.superblock().generation.get(), before);
}

fn btrfs(args: &[&str]) {
    let output = Command::new("btrfs").args(args).output().unwrap();
    assert!(
        output.status.success(),
        "btrfs {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Fills a volume with files, two generations of snapshots, and changes in between.
fn fill_with_snapshots(mount: &KernelMount, seed: u64) {
    let top = mount.path();
    let live = top.join("live");
    btrfs(&["subvolume", "create", text(&live)]);
    hard_cases(&live, &Scale::tiny(), seed).unwrap();
    btrfs(&["filesystem", "sync", text(top)]);
    btrfs(&[
        "subvolume",
        "snapshot",
        text(&live),
        text(&top.join("first")),
    ]);
    for number in 0..300 {
        let path = live.join(format!("file-{number}"));
        std::fs::write(path, vec![number as u8; number * 40]).unwrap();
    }
    btrfs(&[
        "subvolume",
        "snapshot",
        text(&live),
        text(&top.join("second")),
    ]);
    let third = top.join("third");
    btrfs(&[
        "subvolume",
        "snapshot",
        text(&top.join("second")),
        text(&third),
    ]);
    for number in (0..300).step_by(3) {
        std::fs::write(third.join(format!("file-{number}")), b"other").unwrap();
    }
}

/// Changes random inodes of every subvolume. Some edits are reverted, some in a later commit.
fn edit_all(volume: &Volume, rng: &mut Rng, rounds: u64) {
    for round in 0..rounds {
        for info in volume.subvolumes().unwrap() {
            if info.item.refs.get() == 0 {
                continue;
            }
            let tree = volume.subvolume_tree(info.id).unwrap();
            let mut inodes = Vec::new();
            let mut cursor = tree.view.cursor();
            let mut more = cursor.seek(&Key::MIN).unwrap();
            while more && let Some((key, _)) = cursor.current() {
                if key.item_type == KeyType::INODE_ITEM {
                    inodes.push(key.objectid);
                }
                more = cursor.advance().unwrap();
            }
            for _ in 0..40 {
                let ino = inodes[rng.below(inodes.len() as u64) as usize];
                let number = rng.below(4);
                let value = vec![round as u8; rng.below(600) as usize];
                match rng.below(4) {
                    0 => remove(volume, &tree, ino, number),
                    _ => set(volume, &tree, ino, number, &value),
                }
            }
        }
        volume.sync().unwrap();
    }
}

fn open_files(made: &KernelVolume) -> Arc<Volume> {
    Volume::open(made.devices(), &options()).unwrap()
}

fn check_with_kernel(made: &KernelVolume) {
    made.check().unwrap();
    let mount = made.mount("").unwrap();
    btrfs(&["scrub", "start", "-B", text(mount.path())]);
    let mut pending = vec![mount.path().to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() {
                read_data(&entry.path()).unwrap();
            }
        }
    }
    mount.unmount().unwrap();
    made.check().unwrap();
}

/// BLOCKS-1 and BLOCKS-2
#[test]
fn kernel_accepts_edits_of_blocks_that_its_snapshots_share() {
    if !kernel::or_skip("edits of shared blocks") {
        return;
    }
    let specs = [
        MkfsSpec::new().nodesize(4096),
        MkfsSpec::new(),
        MkfsSpec::new()
            .nodesize(4096)
            .without(Feature::FreeSpaceTree)
            .without(Feature::SkinnyMetadata),
    ];
    for (case, spec) in specs.into_iter().enumerate() {
        let seed = ubtrfs_sim::seed("edits of shared blocks") + case as u64;
        eprintln!("case {case} seed {seed}");
        let made = KernelVolume::make(&spec).unwrap();
        let mount = made.mount("").unwrap();
        fill_with_snapshots(&mount, seed);
        mount.unmount().unwrap();
        let mut rng = Rng::new(seed);
        let volume = open_files(&made);
        edit_all(&volume, &mut rng, 3);
        drop(volume);
        check_with_kernel(&made);
        // The kernel continues the half-done deletion.
        let mount = made.mount("").unwrap();
        btrfs(&["subvolume", "delete", text(&mount.path().join("second"))]);
        btrfs(&[
            "subvolume",
            "delete",
            "-R",
            text(&mount.path().join("live")),
        ]);
        mount.unmount().unwrap();
        let volume = open_files(&made);
        edit_all(&volume, &mut rng, 1);
        volume.free_deleted_subvolumes().unwrap();
        assert!(
            volume
                .subvolumes()
                .unwrap()
                .iter()
                .all(|info| info.item.refs.get() > 0)
        );
        edit_all(&volume, &mut rng, 2);
        drop(volume);
        check_with_kernel(&made);
    }
}

#[test]
fn kernel_accepts_chunks_that_commits_made_and_removed() {
    if !kernel::or_skip("chunks that commits made") {
        return;
    }
    let small = MkfsSpec::new().device_bytes(150 << 20);
    for (spec, value_bytes) in [
        (MkfsSpec::new().device_bytes(400 << 20), 7600),
        (small.clone().metadata(Profile::Raid10).devices(4), 7600),
        (small.with(Feature::MixedBg).nodesize(4096), 3600),
    ] {
        let made = KernelVolume::make(&spec).unwrap();
        let volume = open_files(&made);
        let chunks = || volume.pool().chunk_map().len();
        let before = chunks();
        let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
        for round in 0..4 {
            for number in 0..2000 {
                set(
                    &volume,
                    &tree,
                    256,
                    round * 2000 + number,
                    &vec![round as u8; value_bytes],
                );
            }
            volume.sync().unwrap();
        }
        assert!(chunks() > before, "{spec:?}");
        drop(tree);
        drop(volume);
        check_with_kernel(&made);

        let volume = open_files(&made);
        let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
        for number in 0..8000 {
            remove(&volume, &tree, 256, number);
        }
        for round in 0..4 {
            set(&volume, &tree, 256, round, b"again");
            volume.sync().unwrap();
        }
        // One empty group stays for later allocations.
        let groups = volume.inodes.transactions().unwrap().space.groups();
        let is_empty = |group: &&Arc<BlockGroup>| {
            group.kind() == BlockGroupType::Metadata && group.used() == 0
        };
        assert!(groups.iter().filter(is_empty).count() <= 1, "{spec:?}");
        drop(tree);
        drop(volume);
        check_with_kernel(&made);
    }
}
