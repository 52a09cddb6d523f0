//! Logs that cannot be replayed, and interrupted replays.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::KeyType;
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use ubtrfs_fs::{OpenOptions, Rescue, Volume};
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::fingerprint;
use ubtrfs_sim::kernel::{CutVolume, MkfsSpec, or_skip};
use ubtrfs_sim::manifest::assert_same;
use ubtrfs_sim::record::save_image;

use crate::replay::{open, sh};
use crate::shown;

/// Creates a volume with a log of names, attributes, data and deletions.
fn logged() -> (CutVolume, Vec<PathBuf>) {
    let spec = MkfsSpec::new().device_bytes(1 << 30);
    let mut volume = CutVolume::make(&spec, "commit=600").unwrap();
    let dir = volume.path().to_owned();
    sh(
        &dir,
        "mkdir d; touch d/{1..50}; head -c 3M /dev/urandom > warm; sync -f .; rm warm; sync -f .",
    );
    sh(
        &dir,
        "rm d/{10..20}; head -c 300k /dev/urandom > d/new; setfattr -n user.a -v 1 d/new; sync d/new d",
    );
    let devices = volume.cut().unwrap();
    volume.end().unwrap();
    (volume, devices)
}

/// An edit of a leaf. Returns whether it changed the leaf.
type Edit = fn(&mut Items) -> bool;
type Items = Vec<(ubtrfs_format::key::Key, Vec<u8>)>;

/// REPLAY-2
#[test]
fn log_that_cannot_be_replayed_changes_nothing() {
    if !or_skip("log_that_cannot_be_replayed_changes_nothing") {
        return;
    }
    let (volume, devices) = logged();
    let edits: [(&str, Edit); 3] = [
        ("is in space that is in use", |items| {
            let mut extents = items.iter_mut();
            let extent = extents.find(|(key, _)| key.item_type == KeyType::EXTENT_DATA);
            extent.is_some_and(|(_, bytes)| {
                // An address outside all block groups.
                bytes[21..29].copy_from_slice(&(1u64 << 50).to_le_bytes());
                true
            })
        }),
        ("does not exist", |items| {
            let before = items.len();
            items.retain(|(key, _)| key.item_type != KeyType::INODE_ITEM || key.objectid == 257);
            items.len() < before
        }),
        ("of another kind", |items| {
            let mut inodes = items.iter_mut();
            let inode =
                inodes.find(|(key, _)| (key.objectid, key.item_type) == (257, KeyType::INODE_ITEM));
            inode.is_some_and(|(_, bytes)| {
                bytes[52..56].copy_from_slice(&0o100_644_u32.to_le_bytes());
                true
            })
        }),
    ];
    for (said, edit) in edits {
        let mut crafted = Crafted::load(&devices);
        assert!(crafted.edit_leaves(RootId::TREE_LOG, edit) > 0, "{said}");
        let image = volume.dir().join("crafted.img");
        let _ = fs::remove_file(&image);
        save_image(&*crafted.devices()[0].1, &image).unwrap();
        let devices = [image.clone()];
        let before = fingerprint(&image).unwrap();
        // A reader validates everything that it shows.
        let refused = open(&devices, true).unwrap_err();
        assert!(refused.is_of_log(), "{refused}");
        assert!(refused.to_string().contains(said), "{refused}");
        assert_eq!(before, fingerprint(&image).unwrap(), "{said}: written to");
        let committed = OpenOptions::new().rescue(Rescue {
            no_log_replay: true,
            ..Rescue::default()
        });
        let shown = shown::manifest(&Volume::open(&devices, &committed).unwrap());
        assert!(shown.get(b"d/15").is_some() && shown.get(b"d/new").is_none());
    }
}

fn copy_superblocks(from: &Path, to: &Path) {
    let (from, to) = (
        File::open(from).unwrap(),
        File::options().write(true).open(to).unwrap(),
    );
    let len = from.metadata().unwrap().len();
    for offset in SUPERBLOCK_OFFSETS {
        if offset + SUPERBLOCK_SIZE as u64 <= len {
            let mut block = vec![0; SUPERBLOCK_SIZE];
            from.read_exact_at(&mut block, offset).unwrap();
            to.write_all_at(&block, offset).unwrap();
        }
    }
}

/// REPLAY-1: with the old superblock, everything that the replay's commit wrote is in free space.
#[test]
fn replay_that_is_broken_off_can_be_repeated() {
    if !or_skip("replay_that_is_broken_off_can_be_repeated") {
        return;
    }
    let (volume, devices) = logged();
    let expected = shown::manifest(&open(&devices, false).unwrap());
    let replayed = volume.copy(&devices).unwrap();
    let writer = open(&replayed, true).unwrap();
    let broken_off = volume.dir().join("broken-off.img");
    fs::copy(&replayed[0], &broken_off).unwrap();
    copy_superblocks(&devices[0], &broken_off);
    let again = shown::manifest(&open(std::slice::from_ref(&broken_off), false).unwrap());
    assert_same("reader", &expected, &again, &[]);
    let again = open(&[broken_off], true).unwrap();
    assert_same("writer", &expected, &shown::manifest(&again), &[]);
    again.close().unwrap();
    writer.close().unwrap();
}
