//! Commits of raw edits: attributes of an existing inode, without the layers above.

mod flushes;
mod full_metadata;
mod log_memory;
mod reservation_cache;
mod waiting_for_room;

use std::sync::Arc;

use ubtrfs_device::{Access, BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::DirHead;
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;
use ubtrfs_tree::Edit;
use zerocopy::{FromBytes, IntoBytes};

use super::{
    DiskExtent, EditEstimate, LogOutcome, Reservation, TransactionHandle, TransactionManager,
    TransactionOptions,
};
use crate::roots::{Roots, Tree, test_roots};

const DEVICE_BYTES: u64 = 512 << 20;

fn new_device(features: &str) -> Arc<MemDevice> {
    device_of(DEVICE_BYTES, features)
}

fn device_of(device_bytes: u64, features: &str) -> Arc<MemDevice> {
    let mut options = MkfsOptions::default();
    options.features.apply_list(features).unwrap();
    Arc::new(new_volume(&options, device_bytes))
}

/// A volume that is open for writing.
struct Opened {
    roots: Arc<Roots>,
    manager: TransactionManager,
    /// The tree that the tests edit.
    tree: Arc<Tree>,
}

fn open(device: &Arc<MemDevice>) -> Opened {
    open_with_cache(device, 256 << 20)
}

fn open_with_cache(device: &Arc<MemDevice>, cache_bytes: u64) -> Opened {
    open_on(device.clone(), cache_bytes, 128 << 20)
}

fn open_on(device: Arc<dyn BlockDevice>, cache_bytes: u64, delta_bytes: u64) -> Opened {
    let pool = test_roots::pool_of(device, Access::Write);
    let roots = test_roots::open_with(pool, true, cache_bytes);
    let options = TransactionOptions {
        delta_bytes,
        ..TransactionOptions::default()
    };
    let manager = TransactionManager::open(&roots, &options).unwrap();
    let tree = roots.subvolume_tree(RootId::FS_TREE).unwrap();
    Opened {
        roots,
        manager,
        tree,
    }
}

impl Opened {
    fn join(&self, cost: EditEstimate) -> TransactionHandle<'_> {
        let reservation = self
            .manager
            .reserve_metadata(RootId::FS_TREE, cost)
            .unwrap();
        self.manager.join_transaction(reservation).unwrap()
    }

    /// Sets an attribute, unless its hash collides with another name's.
    fn set(&self, number: u64, value: &[u8]) {
        let (key, item) = xattr(256, &format!("user.{number}"), value);
        self.join(EditEstimate::items(1).bytes(item.len() as u64))
            .put(&self.tree, key, item);
    }

    fn remove(&self, number: u64) {
        let (key, _) = xattr(256, &format!("user.{number}"), &[]);
        if self.tree.view.get(&key).unwrap().is_some() {
            self.join(EditEstimate::items(1))
                .edit(&self.tree, [Edit::Delete(key)]);
        }
    }

    fn commit(&self) {
        self.manager.commit_running().unwrap();
    }

    /// Commits the remaining edits and closes the volume.
    fn close(self) {
        self.commit();
        self.manager.close();
    }
}

/// Creates the item of an inode's attribute.
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

/// Returns the values of the attributes as of the last commit.
fn committed_values(device: &Arc<MemDevice>) -> Vec<Vec<u8>> {
    let roots = test_roots::open(test_roots::pool_of(device.clone(), Access::Read));
    let tree = roots.subvolume_tree(RootId::FS_TREE).unwrap();
    let mut values = Vec::new();
    let mut cursor = tree.view.cursor();
    let first = Key::new(256, KeyType::XATTR_ITEM, 0);
    let mut more = cursor.seek(&first).unwrap();
    while more
        && let Some((key, item)) = cursor.current()
        && (key.objectid, key.item_type) == (first.objectid, first.item_type)
    {
        let (head, rest) = DirHead::ref_from_prefix(item).unwrap();
        let (name, value) = rest.split_at(usize::from(head.name_len.get()));
        assert_eq!(key.offset, u64::from(name_hash(name)));
        assert_eq!(value.len(), usize::from(head.data_len.get()));
        values.push(value.to_vec());
        more = cursor.advance().unwrap();
    }
    values
}

/// RUN-1
#[test]
fn committed_edits_are_there_after_reopening() {
    for features in ["", "^free-space-tree,^block-group-tree", "^no-holes"] {
        let device = new_device(features);
        let opened = open(&device);
        for round in 0..4u64 {
            for number in 0..1500 {
                opened.set(number, &vec![round as u8; (number % 200) as usize]);
            }
            for number in (0..1500).step_by(7) {
                opened.remove(number);
            }
            opened.commit();
        }
        opened.close();
        let found = committed_values(&device);
        assert_eq!(found.len(), 1500 - 1500_usize.div_ceil(7), "{features}");
        assert!(
            found
                .iter()
                .all(|value| value.iter().all(|&byte| byte == 3))
        );
    }
}

/// BLOCKS-3. Many leaves change in one batch: the first blocks are written before the last ones are built.
#[test]
fn blocks_that_wait_to_be_written_stay_within_their_budget() {
    const ITEMS: u64 = 3000;
    let device = new_device("");
    let opened = open_with_cache(&device, 1 << 20);
    let store = opened.roots.node_store();
    let (nodesize, budget) = (store.nodesize() as u64, store.staged_budget_bytes());
    for (round, step) in [(0, 1), (1, 4)] {
        for number in (0..ITEMS).step_by(step) {
            opened.set(number, &[round; 3900]);
        }
        let before = opened.manager.stats();
        opened.commit();
        let after = opened.manager.stats();
        assert_eq!(after.commits, before.commits + 1);
        let written = after.node_bytes - before.node_bytes;
        assert!(written > 4 * budget, "{written}");
        let most = store.most_staged_bytes();
        assert!((budget..=budget + nodesize).contains(&most), "{most}");
    }
    opened.close();
    let mut found = committed_values(&device);
    assert_eq!(found.len() as u64, ITEMS);
    found.retain(|value| value.iter().all(|&byte| byte == 1));
    assert_eq!(found.len() as u64, ITEMS / 4);
}

/// Even before anything refers to them.
#[test]
fn extents_that_are_new_count_as_memory() {
    const COUNT: u64 = 1000;
    let opened = open(&new_device(""));
    let manager = &opened.manager;
    manager.space.reserve_data(COUNT * 4096).unwrap();
    let running = manager.running_transid();
    let before = manager.running.read().bytes();
    let txn = manager
        .join_transaction(Reservation::already_made())
        .unwrap();
    for _ in 0..COUNT {
        let allocated = manager.space.allocate_data(4096, 4096, None, running);
        let (start, len) = allocated.unwrap();
        txn.new_data_extent(DiskExtent { start, len });
    }
    drop(txn);
    let grown = manager.running.read().bytes() - before;
    assert!(grown >= 64 * COUNT, "{grown}");
}

/// Blocks that a log has replaced are kept, for comparison with their successors.
#[test]
fn replaced_blocks_of_a_log_count_as_memory() {
    const COUNT: u64 = 300;
    let opened = open(&new_device(""));
    let manager = &opened.manager;
    let log = |byte| {
        let mut session = manager.log_session().unwrap();
        for number in 0..COUNT {
            let (key, item) = xattr(256, &format!("user.{number}"), &[byte; 1000]);
            session.put(&opened.tree, key, item.into());
        }
        assert_eq!(session.write().unwrap(), LogOutcome::Written);
        drop(session);
        manager.logs.bytes()
    };
    opened.set(0, b"edited");
    let first = log(1);
    // The number of items is the same, but there are replaced blocks.
    let grown = log(2) - first;
    assert!(grown >= COUNT * 1000, "{grown}");
    opened.commit();
    assert_eq!(manager.logs.bytes(), 0);
}

/// DEVICE-SET-3
#[test]
fn commit_corrects_the_totals_of_the_superblock() {
    let device = new_device("");
    let stored = || {
        let mut block = [0; SUPERBLOCK_SIZE];
        device.read_at(&mut block, SUPERBLOCK_OFFSETS[0]).unwrap();
        Superblock::from_block(&block).unwrap().clone()
    };
    let sound = stored();
    let mut wrong = sound.clone();
    wrong.num_devices = 2.into();
    wrong.total_bytes = (DEVICE_BYTES + 4096).into();
    wrong.seal();
    device
        .write_at(wrong.as_bytes(), SUPERBLOCK_OFFSETS[0])
        .unwrap();

    let opened = open(&device);
    opened.set(0, b"edited");
    opened.close();
    let found = stored();
    assert_eq!(found.num_devices, sound.num_devices);
    assert_eq!(found.total_bytes, sound.total_bytes);
}

/// A commit with nothing to do does not write.
#[test]
fn commit_without_edits_writes_nothing() {
    let opened = open(&new_device(""));
    let before = opened.roots.superblock().generation.get();
    opened.commit();
    assert_eq!(opened.roots.superblock().generation.get(), before);
}
