//! Calls on a file with many buffered ranges.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;

use super::fixture::{MIB, Rig, options};
use crate::file::write::WriteTarget;
use crate::inode::{DelallocReservation, VISITS};
use crate::{SetAttr, Volume};

const SECTOR: u64 = 4096;
const RANGES: u64 = 4096;

/// Returns the number of tree blocks that `calls` looked at.
fn blocks_of(volume: &Volume, calls: impl FnOnce()) -> u64 {
    let before = volume.node_store().stats();
    calls();
    let after = volume.node_store().stats();
    after.hits + after.misses - before.hits - before.misses
}

/// BUFFER-4. The file has many extents, and every second sector is buffered again or in a hole.
#[test]
fn calls_do_not_search_the_tree_for_each_buffered_range() {
    let mut rig = Rig::on(&MkfsOptions::default(), 512 * MIB, options());
    let file = rig.file(InodeFlags::empty());
    for at in (0..RANGES).step_by(2) {
        let sector = vec![1; SECTOR as usize];
        rig.volume().write(file, at * 2 * SECTOR, &sector).unwrap();
    }
    rig.reopen();
    let volume = rig.volume();
    for at in 0..RANGES {
        volume.write(file, at * 2 * SECTOR, b"x").unwrap();
    }
    assert_eq!(volume.attr(file).unwrap().nbytes, RANGES * SECTOR);
    let most = 40 * 100;
    let stats = || {
        for at in 0..100 {
            volume.write(file, (at * 4 + 1) * SECTOR, b"y").unwrap();
            let bytes = volume.attr(file).unwrap().nbytes;
            assert_eq!(bytes, (RANGES + at + 1) * SECTOR);
        }
    };
    let blocks = blocks_of(volume, stats);
    assert!(blocks < most, "stat: {blocks}");
    let set = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let chmods = || {
        (0..100).for_each(|_| {
            volume.set_attr_and_look(file, &set).unwrap();
        })
    };
    let blocks = blocks_of(volume, chmods);
    assert!(blocks < most, "chmod: {blocks}");
    let truncations = || {
        for at in 0..100 {
            // A size beyond the stored one would write everything back.
            let len_bytes = (RANGES * 2 - 4 - at) * SECTOR;
            volume.truncate(file, len_bytes).unwrap();
            volume.attr(file).unwrap();
        }
    };
    let blocks = blocks_of(volume, truncations);
    assert!(blocks < most, "truncate: {blocks}");
    let seeks = || (0..10).for_each(|_| assert!(volume.seek_hole(file, 0).unwrap().is_some()));
    let blocks = blocks_of(volume, seeks);
    assert!(blocks < most, "seek: {blocks}");
}

/// BUFFER-4. A full volume stores each write by itself, past the buffer.
#[test]
fn writes_in_place_do_not_visit_each_buffered_range() {
    let flags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);
    let rig = Rig::on(&MkfsOptions::default(), 512 * MIB, options());
    let volume = rig.volume();
    let file = rig.file(flags);
    let all = vec![1; (RANGES * 2 * SECTOR) as usize];
    volume.write(file, 0, &all).unwrap();
    volume.sync().unwrap();
    for at in 0..RANGES {
        volume.write(file, at * 2 * SECTOR, b"x").unwrap();
    }
    assert_eq!(volume.attr(file).unwrap().nbytes, RANGES * 2 * SECTOR);
    let inode = volume.inodes.get(file).unwrap();
    let (files, cost) = (&volume.files, volume.inodes.cost_of_times());
    let visits = VISITS.get();
    let writes = || {
        for at in 0..100 {
            let need =
                DelallocReservation::nocow(&volume.inodes, RootId::FS_TREE, 2 * SECTOR, cost)
                    .unwrap();
            let target = WriteTarget::At((at * 4 + 1) * SECTOR);
            files.write_nocow_only(&inode, target, b"y", need).unwrap();
            let bytes = volume.attr(file).unwrap().nbytes;
            assert_eq!(bytes, RANGES * 2 * SECTOR);
        }
    };
    let blocks = blocks_of(volume, writes);
    let visits = VISITS.get() - visits;
    assert!(blocks < 40 * 100, "{blocks}");
    assert!(visits < 40 * 100, "{visits}");
    drop(inode);
    rig.assert_sound();
}
