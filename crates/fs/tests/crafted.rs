//! Volumes that no kernel creates, with valid checksums: they are read as by the kernel, or refused.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::flags;
use ubtrfs_fs::inspect::{ExtentUser, RootsOfBlocks};
use ubtrfs_fs::{CorruptItem, Error, FileId, OpenOptions, Volume};
use ubtrfs_sim::craft;
use ubtrfs_sim::kernel::{Feature, KernelVolume, MkfsSpec, or_skip};
use ubtrfs_storage::roots::blocks;

const LEN: usize = 20480;

/// Creates a volume with the kernel, filled by the test.
fn made(spec: &MkfsSpec, fill: impl FnOnce(&Path)) -> KernelVolume {
    let volume = KernelVolume::make(spec).unwrap();
    let mount = volume.mount("").unwrap();
    fill(mount.path());
    mount.unmount().unwrap();
    volume
}

fn with_file(len: usize) -> KernelVolume {
    made(&MkfsSpec::default(), |dir| {
        std::fs::write(dir.join("f"), vec![7; len]).unwrap();
    })
}

fn open(made: &KernelVolume) -> Arc<Volume> {
    Volume::open(made.devices(), &OpenOptions::new()).unwrap()
}

fn find(volume: &Volume, path: &str) -> FileId {
    let top = volume.root_dir(volume.default_subvolume().unwrap());
    volume.resolve(top.unwrap(), path.as_bytes()).unwrap()
}

fn bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// Returns `ram_bytes` and the following fields of a plain, uncompressed extent.
fn ram_bytes(ram_bytes: u64) -> Vec<u8> {
    [&ram_bytes.to_le_bytes()[..], &[0, 0, 0, 0, 1]].concat()
}

#[test]
fn ram_bytes_of_an_uncompressed_extent_say_nothing() {
    if !or_skip("ram_bytes_of_an_uncompressed_extent_say_nothing") {
        return;
    }
    let made = with_file(LEN);
    let (from, to) = (ram_bytes(LEN as u64), ram_bytes(4096));
    assert!(craft::replace_in_items(&made.devices()[0], &from, &to).unwrap() > 0);
    let mount = made.mount_ro().unwrap();
    assert_eq!(std::fs::read(mount.path().join("f")).unwrap(), [7; LEN]);
    mount.unmount().unwrap();
    let volume = open(&made);
    let mut data = vec![0; LEN];
    assert_eq!(volume.read(find(&volume, "f"), 0, &mut data).unwrap(), LEN);
    assert_eq!(data, [7; LEN]);
}

#[test]
fn extent_longer_than_its_chunk_is_refused() {
    if !or_skip("extent_longer_than_its_chunk_is_refused") {
        return;
    }
    let made = with_file(LEN);
    let device = &made.devices()[0];
    let len = LEN as u64;
    let huge = 1 << 60;
    // disk_num_bytes, offset, num_bytes; then the inode's size.
    let (from, to) = (bytes(&[len, 0, len]), bytes(&[huge, 0, huge]));
    assert!(craft::replace_in_items(device, &from, &to).unwrap() > 0);
    let (from, to) = (bytes(&[len, len]), bytes(&[huge, huge]));
    assert!(craft::replace_in_items(device, &from, &to).unwrap() > 0);
    let volume = open(&made);
    let file = find(&volume, "f");
    assert_eq!(volume.attr(file).unwrap().size, huge);
    for error in [
        volume.seek_data(file, 0).map(drop),
        volume.seek_hole(file, 0).map(drop),
        volume.read(file, 0, &mut [0; 10]).map(drop),
    ] {
        let unmapped = matches!(
            error,
            Err(Error::Corrupt {
                what: CorruptItem::ExtentUnmapped { .. },
                ..
            })
        );
        assert!(unmapped, "{error:?}");
    }
}

#[test]
fn inline_data_is_data_to_the_end_of_its_sector() {
    if !or_skip("inline_data_is_data_to_the_end_of_its_sector") {
        return;
    }
    let made = with_file(100);
    let (from, to) = (bytes(&[100, 100]), bytes(&[5000, 100]));
    assert!(craft::replace_in_items(&made.devices()[0], &from, &to).unwrap() > 0);
    let volume = open(&made);
    let file = find(&volume, "f");
    assert_eq!(volume.attr(file).unwrap().size, 5000);
    assert_eq!(volume.seek_hole(file, 0).unwrap(), Some(4096));
    assert_eq!(volume.seek_data(file, 150).unwrap(), Some(150));
    assert_eq!(volume.seek_data(file, 4096).unwrap(), None);
    assert_eq!(volume.seek_hole(file, 4096).unwrap(), Some(4096));
}

#[test]
fn target_of_a_link_ends_before_its_first_nul() {
    if !or_skip("target_of_a_link_ends_before_its_first_nul") {
        return;
    }
    let made = made(&MkfsSpec::default(), |dir| {
        std::os::unix::fs::symlink("begin/end", dir.join("link")).unwrap();
    });
    assert!(craft::replace_in_items(&made.devices()[0], b"begin/end", b"begin\0end").unwrap() > 0);
    let mount = made.mount_ro().unwrap();
    let shown = std::fs::read_link(mount.path().join("link")).unwrap();
    mount.unmount().unwrap();
    let volume = open(&made);
    let target = volume.readlink(find(&volume, "link")).unwrap();
    assert_eq!(target, b"begin");
    assert_eq!(shown.as_os_str().as_encoded_bytes(), target);
}

#[test]
fn entry_whose_inode_number_only_empty_subvolume_dirs_have_is_refused() {
    if !or_skip("entry_whose_inode_number_only_empty_subvolume_dirs_have_is_refused") {
        return;
    }
    let made = with_file(LEN);
    let (from, to) = (craft::key(257, 1, 0), craft::key(1 << 63 | 256, 1, 0));
    assert!(craft::replace_in_items(&made.devices()[0], &from, &to).unwrap() > 0);
    let volume = open(&made);
    let top = find(&volume, "/");
    let found = volume.lookup(top, b"f");
    let refused = matches!(
        found,
        Err(Error::Corrupt {
            what: CorruptItem::InodeNumber(_),
            ..
        })
    );
    assert!(refused, "{found:?}");
}

#[test]
fn block_groups_are_found_in_the_midst_of_a_conversion() {
    if !or_skip("block_groups_are_found_in_the_midst_of_a_conversion") {
        return;
    }
    // With a block group tree the kernel reserves more. The feature is set when the tree is complete.
    let space = |volume: &Volume| {
        let mut space = volume.statfs().unwrap();
        space.free_bytes += volume.global_reserve_bytes().unwrap();
        space
    };
    for spec in [
        MkfsSpec::default().with(Feature::BlockGroupTree),
        MkfsSpec::default().without(Feature::BlockGroupTree),
    ] {
        let made = made(&spec, |_| {});
        let whole = space(&open(&made));
        craft::edit_superblock(&made.devices()[0], |superblock| {
            superblock
                .flags
                .set(superblock.flags.get() | flags::CHANGING_BG_TREE);
            let ro = superblock.compat_ro_flags.get();
            superblock.compat_ro_flags.set(ro & !(1 << 3));
        })
        .unwrap();
        assert_eq!(space(&open(&made)), whole);
    }
}

/// BACKREF-1
#[test]
fn parents_of_a_block_that_do_not_point_to_it_are_no_users() {
    if !or_skip("parents_of_a_block_that_do_not_point_to_it_are_no_users") {
        return;
    }
    // Small blocks, so that the tree has enough levels for a node that a snapshot shares.
    let made = made(&MkfsSpec::default().nodesize(4096), |dir| {
        for number in 0..300 {
            std::fs::write(dir.join(format!("small {number}")), [1; 2000]).unwrap();
        }
        std::fs::write(dir.join("f"), vec![7; LEN]).unwrap();
        for number in 0..20 {
            std::fs::write(dir.join(format!("later {number}")), [1; 2000]).unwrap();
        }
        let made = Command::new("btrfs")
            .args(["-q", "subvolume", "snapshot"])
            .args([dir, &dir.join("snapshot")])
            .status();
        assert!(made.unwrap().success());
        // The node above the file's leaf is copied, but not the leaf.
        std::fs::write(dir.join("later 19"), [2; 2000]).unwrap();
    });
    let volume = open(&made);
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.resolve(top, b"f").unwrap();
    let snapshot = volume.resolve(top, b"snapshot/f").unwrap();
    let key = Key::new(file.ino.0, KeyType::EXTENT_DATA, 0);
    let above = |id: FileId, level| {
        let view = volume.tree(id.root).unwrap().view.clone();
        blocks::find(&view, &key, level)
            .unwrap()
            .unwrap()
            .node()
            .bytenr()
    };
    let leaf = above(file, 0);
    let node = above(snapshot, 1);
    assert_eq!(leaf, above(snapshot, 0));
    assert_ne!(node, above(file, 1));
    let root = above(snapshot, 2);
    let item = volume
        .tree(file.root)
        .unwrap()
        .view
        .get(&key)
        .unwrap()
        .unwrap();
    let Some(FileExtent::Regular { body, .. }) = FileExtent::decode(&item) else {
        panic!("{item:?}");
    };
    let extent = body.disk().unwrap();
    let users = || {
        let mut users = BTreeSet::new();
        let mut roots = RootsOfBlocks::default();
        let mut add = |user: ExtentUser| {
            users.insert(user.file());
            ControlFlow::Continue(())
        };
        open(&made)
            .extent_users(extent, None, &mut roots, &mut add)
            .unwrap();
        users
    };
    assert_eq!(users(), [file, snapshot].into());
    // First the leaf itself, then a node that is too high up.
    let mut parent = node;
    for other in [leaf, root] {
        let reference = |parent: Logical| {
            [&[KeyType::SHARED_BLOCK_REF.0][..], &parent.0.to_le_bytes()].concat()
        };
        let (from, to) = (reference(parent), reference(other));
        assert!(craft::replace_in_items(&made.devices()[0], &from, &to).unwrap() > 0);
        parent = other;
        assert_eq!(users(), [file].into());
    }
}
