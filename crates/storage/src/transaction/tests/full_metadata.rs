//! Volumes with full metadata.

use std::thread;
use std::time::{Duration, Instant};

use ubtrfs_device::Access;
use ubtrfs_format::block_group_flags::BlockGroupType;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::QgroupStatusItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Edit;

use super::{Opened, device_of, open, xattr};
use crate::roots::{Roots, test_roots};
use crate::space::SpaceTotals;
use crate::transaction::{EditEstimate, Reservation};

const DEVICE_BYTES: u64 = 128 << 20;

/// Sets attributes until there is no space for an edit.
fn fill_up(opened: &Opened) {
    let manager = &opened.manager;
    let mut number = 0;
    for value_bytes in [7600, 100] {
        loop {
            let (key, item) = xattr(256, &format!("user.{number}"), &vec![1; value_bytes]);
            number += 1;
            match manager.reserve_metadata(RootId::FS_TREE, EditEstimate::items(1)) {
                Ok(reservation) => {
                    let txn = manager.join_transaction(reservation).unwrap();
                    txn.put(&opened.tree, key, item);
                }
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    break;
                }
            }
        }
    }
}

/// Deletes adjacent attributes.
fn delete_some(opened: &Opened, count: usize) {
    let mut keys = Vec::new();
    let mut cursor = opened.tree.view.cursor();
    let mut more = cursor.seek(&Key::new(256, KeyType::XATTR_ITEM, 0)).unwrap();
    while more && keys.len() < count {
        keys.extend(cursor.current().map(|(key, _)| key));
        more = cursor.advance().unwrap();
    }
    drop(cursor);
    for key in keys {
        opened
            .join(EditEstimate::items(1).with_global_reserve())
            .edit(&opened.tree, [Edit::Delete(key)]);
    }
}

#[test]
fn space_that_a_reader_holds_for_a_moment_is_waited_for() {
    let device = device_of(DEVICE_BYTES, "");
    let opened = open(&device);
    fill_up(&opened);
    let manager = &opened.manager;
    delete_some(&opened, 80);
    assert!(!manager.fits_now(EditEstimate::items(1)));
    let (looked_at, before) = (opened.roots.node_store().epoch(), manager.committed());
    thread::scope(|scope| {
        scope.spawn(move || {
            while manager.committed() == before {
                thread::yield_now();
            }
            // Longer than a failing reservation takes.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(5) {
                thread::yield_now();
            }
            drop(looked_at);
        });
        let _ = manager
            .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
            .unwrap();
    });
}

/// Opening sets the INCONSISTENT flag of the quotas, because their sums are not kept.
#[test]
fn full_volume_with_quotas_is_opened_for_writing() {
    let device = device_of(DEVICE_BYTES, "quota");
    let opened = open(&device);
    fill_up(&opened);
    // Clears the flag, as if quotas were maintained: the next mount must set it again.
    let quotas = opened.roots.tree(RootId::QUOTA_TREE).unwrap();
    let key = Key::new(0, KeyType::QGROUP_STATUS, 0);
    let status = |roots: &Roots| {
        let quotas = roots.tree(RootId::QUOTA_TREE).unwrap();
        quotas.view.get(&key).unwrap().unwrap().to_vec()
    };
    let at = std::mem::offset_of!(QgroupStatusItem, flags);
    let mut kept = status(&opened.roots);
    assert_eq!(kept[at], 0b101);
    kept[at] = 0b1;
    opened
        .manager
        .join_transaction(Reservation::already_made())
        .unwrap()
        .put(&quotas, key, kept);
    drop(quotas);
    opened.close();

    let opened = open(&device);
    assert_eq!(status(&opened.roots)[at], 0b101);
    delete_some(&opened, 1000);
    opened.commit();
    let _ = opened
        .manager
        .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
        .unwrap();
    opened.close();
    let read = test_roots::open(test_roots::pool_of(device, Access::Read));
    assert_eq!(status(&read)[at], 0b101);
}

/// Returns the totals of metadata.
fn metadata(opened: &Opened) -> SpaceTotals {
    let totals = opened.manager.space.totals();
    let metadata = |sums: &SpaceTotals| sums.kind == BlockGroupType::Metadata;
    totals.into_iter().find(metadata).unwrap()
}

/// RESERVATION-2
#[test]
fn reservations_count_as_part_of_the_running_transaction() {
    let device = device_of(DEVICE_BYTES, "");
    let opened = open(&device);
    fill_up(&opened);
    let mut inside = Vec::new();
    while inside.len() < 200
        && let Ok(reservation) = opened
            .manager
            .reserve_metadata(RootId::FS_TREE, EditEstimate::of_freeing())
    {
        inside.push(reservation);
    }
    assert!((1..200).contains(&inside.len()), "{}", inside.len());
    drop(inside);
    let _ = opened
        .manager
        .reserve_metadata(RootId::FS_TREE, EditEstimate::of_freeing())
        .unwrap();
}

/// RESERVATION-CACHE-1
#[test]
fn small_operations_share_one_reservation() {
    let device = device_of(8 << 30, "");
    let opened = open(&device);
    let manager = &opened.manager;
    let before = metadata(&opened).reserved;
    let first = opened
        .manager
        .reserve_metadata(RootId::FS_TREE, EditEstimate::items(5))
        .unwrap();
    let reserved = metadata(&opened).reserved;
    assert!(reserved > before);
    for number in 0..10 {
        let (key, item) = xattr(256, &format!("user.{number}"), &[1; 300]);
        opened
            .join(EditEstimate::items(5).bytes(300))
            .put(&opened.tree, key, item);
    }
    drop(first);
    assert_eq!(metadata(&opened).reserved, reserved);
    // The blocks of these edits exist now, and need no further space.
    manager.shrink_reservation();
    assert!((before + 1..reserved).contains(&metadata(&opened).reserved));
}

/// RESERVATION-CACHE-2
#[test]
fn unused_units_are_drained_for_other_operations() {
    let device = device_of(8 << 30, "");
    let opened = open(&device);
    let manager = &opened.manager;
    let _ = opened
        .manager
        .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
        .unwrap();
    // The largest reservation that fits on its own.
    let (mut least, mut most) = (1, u64::MAX / 2);
    while most - least > 1 {
        let bytes = least + (most - least) / 2;
        if manager.fits_now(EditEstimate::default().bytes(bytes)) {
            least = bytes;
        } else {
            most = bytes;
        }
    }
    manager.shrink_reservation();
    let _ = opened
        .manager
        .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
        .unwrap();
    assert!(manager.fits_now(EditEstimate::default().bytes(least)));
}

/// RESERVATION-3
#[test]
fn global_reserve_is_reserved_from_opening_on() {
    let device = device_of(DEVICE_BYTES, "");
    let opened = open(&device);
    assert!(metadata(&opened).reserved >= 2 << 20);
}

#[test]
fn operations_that_free_space_leave_the_global_reserve_to_no_chunk_of_data() {
    let device = device_of(DEVICE_BYTES, "");
    let opened = open(&device);
    fill_up(&opened);
    let before = metadata(&opened).reserved;
    let reservation = opened
        .manager
        .reserve_metadata(RootId::FS_TREE, EditEstimate::of_freeing())
        .unwrap();
    assert!(metadata(&opened).reserved >= before);
    drop(reservation);
}
