//! Volumes whose metadata is full.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::QgroupStatusItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Edit;

use super::{device_of, open, options, xattr};
use crate::txn::{Cost, Permit};
use crate::volume::Tree;
use crate::{OpenOptions, Volume};

const DEVICE_BYTES: u64 = 128 << 20;

/// Sets attributes until there is no room for an edit.
fn fill_up(volume: &Volume, tree: &Arc<Tree>) {
    let mut number = 0;
    for value_bytes in [7600, 100] {
        loop {
            let (key, item) = xattr(256, &format!("user.{number}"), &vec![1; value_bytes]);
            number += 1;
            match volume.admit(Cost::items(1)) {
                Ok(permit) => volume.enter(permit).unwrap().put(tree, key, item),
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    break;
                }
            }
        }
    }
}

/// Deletes attributes that lie side by side.
fn delete_some(volume: &Volume, tree: &Arc<Tree>, count: usize) {
    let mut keys = Vec::new();
    let mut cursor = tree.view.cursor();
    let mut more = cursor.seek(&Key::new(256, KeyType::XATTR_ITEM, 0)).unwrap();
    while more && keys.len() < count {
        keys.extend(cursor.current().map(|(key, _)| key));
        more = cursor.advance().unwrap();
    }
    drop(cursor);
    for key in keys {
        let permit = volume.admit(Cost::items(1).freeing()).unwrap();
        volume
            .enter(permit)
            .unwrap()
            .edit(tree, [Edit::Delete(key)]);
    }
}

#[test]
fn room_that_somebody_looks_at_for_a_moment_is_waited_for() {
    let device = device_of(DEVICE_BYTES, "");
    let volume = open(&device, &options());
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    fill_up(&volume, &tree);
    let writer = volume.writer().unwrap();
    delete_some(&volume, &tree, 80);
    assert!(!writer.has_room_now(Cost::items(1)));
    let (looked_at, before) = (volume.node_store().epoch(), writer.committed());
    thread::scope(|scope| {
        scope.spawn(move || {
            while writer.committed() == before {
                thread::yield_now();
            }
            // For longer than it takes to be refused.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(5) {
                thread::yield_now();
            }
            drop(looked_at);
        });
        let _ = volume.admit(Cost::items(1)).unwrap();
    });
}

/// Whoever opens it must say that the sums of its quotas are not kept.
#[test]
fn full_volume_with_quotas_is_opened_for_writing() {
    let device = device_of(DEVICE_BYTES, "quota");
    let volume = open(&device, &options());
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    fill_up(&volume, &tree);
    // As if they were kept: the next one must say it again.
    let quotas = volume.tree(RootId::QUOTA_TREE).unwrap();
    let key = Key::new(0, KeyType::QGROUP_STATUS, 0);
    let status = |volume: &Volume| {
        let quotas = volume.tree(RootId::QUOTA_TREE).unwrap();
        quotas.view.get(&key).unwrap().unwrap().to_vec()
    };
    let at = std::mem::offset_of!(QgroupStatusItem, flags);
    let mut kept = status(&volume);
    assert_eq!(kept[at], 0b101);
    kept[at] = 0b1;
    volume
        .enter(Permit::owed())
        .unwrap()
        .put(&quotas, key, kept);
    volume.sync().unwrap();
    drop((tree, quotas, volume));

    let volume = open(&device, &options());
    assert_eq!(status(&volume)[at], 0b101);
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    delete_some(&volume, &tree, 1000);
    volume.sync().unwrap();
    let _ = volume.admit(Cost::items(1)).unwrap();
    drop((tree, volume));
    assert_eq!(status(&open(&device, &OpenOptions::new()))[at], 0b101);
}
