//! Users of an extent, in the live state and in committed ones.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;
use ubtrfs_storage::roots::TreeSource;

use super::*;
use crate::{NewInode, OpenOptions};

const LEN: u64 = 64 << 10;

fn create(volume: &Volume, name: &str) -> FileId {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let new = NewInode::file(0o644);
    volume.create(top, name.as_bytes(), &new).unwrap()
}

fn unlink(volume: &Volume, name: &str) {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.unlink(top, name.as_bytes()).unwrap();
}

/// Returns the address of a file's first extent.
fn extent_of(volume: &Volume, id: FileId) -> Logical {
    let tree = volume.tree(id.root).unwrap();
    let key = Key::new(id.ino.0, KeyType::EXTENT_DATA, 0);
    let item = tree.view.get(&key).unwrap().unwrap();
    match FileExtent::decode(&item) {
        Some(FileExtent::Regular { body, .. }) => body.disk().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Returns the number of references to an extent, and the files that use it.
fn users(state: &dyn TreeSource, extent: Logical) -> (u64, Vec<FileId>) {
    let refs = BackRefs::new(state);
    let mut files = Vec::new();
    refs.extent_users(extent, None, &mut RootsOfBlocks::default(), &mut |user| {
        files.push(user.file());
        ControlFlow::Continue(())
    })
    .unwrap();
    (refs.data_extent_refs(extent).unwrap(), files)
}

/// TREE-SOURCE-1
#[test]
fn each_committed_state_keeps_its_users_of_an_extent() {
    let device = Arc::new(new_volume(&MkfsOptions::default(), 256 << 20));
    let devices = vec![(PathBuf::from("memory"), device as Arc<dyn BlockDevice>)];
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let volume = Volume::from_devices(devices, &options).unwrap();
    let one = create(&volume, "one");
    volume.write(one, 0, &[1; LEN as usize]).unwrap();
    volume.sync().unwrap();
    let extent = extent_of(&volume, one);
    let first = volume.roots.committed_state();
    assert_eq!(users(&first, extent), (1, vec![one]));

    let two = create(&volume, "two");
    volume.clone_range(one, 0, LEN, two, 0).unwrap();
    // Only commits change the extent tree.
    assert_eq!(users(&*volume.roots, extent), (1, vec![one]));
    volume.sync().unwrap();
    let second = volume.roots.committed_state();
    assert_eq!(users(&*volume.roots, extent), (2, vec![one, two]));

    unlink(&volume, "one");
    unlink(&volume, "two");
    // The live trees lack the files before the extent tree does.
    assert_eq!(users(&*volume.roots, extent), (2, vec![]));
    for number in 0..50 {
        let id = create(&volume, &format!("file {number}"));
        volume.write(id, 0, &[2; LEN as usize]).unwrap();
        volume.sync().unwrap();
    }
    assert_eq!(users(&*volume.roots, extent).0, 0);
    assert_eq!(users(&first, extent), (1, vec![one]));
    assert_eq!(users(&second, extent), (2, vec![one, two]));

    drop((first, second));
    volume.sync().unwrap();
    volume.close().unwrap();
}

/// The snapshot has one leaf that it shares, and one of its own. Both use the extent with the same offset.
#[test]
fn users_in_own_leaves_are_found_behind_shared_leaves() {
    const SECTOR: u64 = 4096;
    const SECTORS: u64 = 400;
    let made = MkfsOptions {
        nodesize: Some(4096),
        ..MkfsOptions::default()
    };
    let device = Arc::new(new_volume(&made, 256 << 20));
    let devices = vec![(PathBuf::from("memory"), device as Arc<dyn BlockDevice>)];
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let volume = Volume::from_devices(devices, &options).unwrap();
    let file = create(&volume, "file");
    volume
        .write(file, 0, &vec![1; (SECTORS * SECTOR) as usize])
        .unwrap();
    volume.sync().unwrap();
    let extent = extent_of(&volume, file);
    let rewrite = |id: FileId, sector: u64| {
        volume
            .write(id, sector * SECTOR, &[2; SECTOR as usize])
            .unwrap();
    };
    // The extent is left in many pieces, in several leaves.
    (1..SECTORS)
        .step_by(2)
        .for_each(|sector| rewrite(file, sector));
    volume.sync().unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let snapshot = volume
        .snapshot(RootId::FS_TREE, top, b"snapshot", false)
        .unwrap();
    let copy = FileId::new(snapshot, file.ino);
    // The first leaf belongs to the snapshot alone, but has references in its own name.
    rewrite(file, 0);
    rewrite(copy, SECTORS - 2);
    volume.sync().unwrap();
    let mut found = Vec::new();
    let mut roots = RootsOfBlocks::default();
    volume
        .extent_users(
            extent,
            Some((SECTORS - 4) * SECTOR),
            &mut roots,
            &mut |user| {
                found.push(user.file());
                ControlFlow::Continue(())
            },
        )
        .unwrap();
    found.sort();
    assert_eq!(found, [file, copy]);
}
