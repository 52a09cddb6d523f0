//! Concurrent readers, one editor and one committer.
//!
//! A value is the number of the edit that wrote it, so that each reader must see the numbers of a key grow.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ubtrfs_sim::Rng;

use super::*;

const KEYS: u64 = 2000;

fn numbered(edit: u64) -> Arc<[u8]> {
    let mut value = [0; 90];
    value[..8].copy_from_slice(&edit.to_le_bytes());
    Arc::from(value)
}

fn edit_of(value: &[u8]) -> u64 {
    assert_eq!(value.len(), 90);
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// Edits at random keys: even keys always exist, odd ones are inserted and deleted.
fn write(tree: &LiveTree, rng: &mut Rng, edits: u64) {
    let mut there = vec![false; KEYS as usize];
    for edit in 1..=edits {
        let number = rng.below(KEYS);
        let is_there = &mut there[number as usize];
        if number.is_multiple_of(2) {
            tree.put(key(number), numbered(edit));
        } else if *is_there {
            tree.delete(key(number));
            *is_there = false;
        } else {
            tree.insert(key(number), numbered(edit));
            *is_there = true;
        }
    }
}

/// Alternates scans and look-ups.
fn read(view: &View, rng: &mut Rng, stop: &AtomicBool) -> u64 {
    let mut seen = vec![0; KEYS as usize];
    let mut note = |key: Key, value: &[u8]| {
        let (edit, seen) = (edit_of(value), &mut seen[key.objectid as usize]);
        // LIVE-1
        assert!(edit >= *seen, "{key} went back from {seen} to {edit}");
        *seen = edit;
    };
    let mut scans = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut cursor = view.cursor().sequential();
        let backwards = rng.one_in(2);
        let mut more = if backwards {
            cursor.seek_floor(&Key::MAX).unwrap()
        } else {
            cursor.seek(&Key::MIN).unwrap()
        };
        let mut last = None;
        let mut even = 0;
        while more {
            let (key, value) = cursor.current().unwrap();
            assert!(last.is_none_or(|last| if backwards { key < last } else { key > last }));
            last = Some(key);
            even += u64::from(key.objectid % 2 == 0);
            note(key, value);
            more = if backwards {
                cursor.retreat().unwrap()
            } else {
                cursor.advance().unwrap()
            };
        }
        assert_eq!(even, KEYS / 2, "a key that is always there was missed");
        for _ in 0..100 {
            let key = key(rng.below(KEYS));
            match view.get(&key).unwrap() {
                Some(item) => note(key, &item),
                None => assert_eq!(key.objectid % 2, 1),
            }
        }
        scans += 1;
    }
    scans
}

/// Stops the readers even if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// LIVE-2: no edit is lost to a freeze. EPOCH-1: no reader sees a block whose address was reused.
#[test]
fn readers_see_every_key_move_forward() {
    let seed = ubtrfs_sim::seed("readers_see_every_key_move_forward");
    let edits = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => 3_000_000,
        None => 200_000,
    };
    let mut volume = TestVolume::new(64 << 10);
    let tree = volume.tree(TREE);
    for number in (0..KEYS).step_by(2) {
        tree.insert(key(number), numbered(0));
    }
    let stop = AtomicBool::new(false);
    let scans = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for reader in 0..3 {
            let view = tree.view();
            let (stop, scans) = (&stop, &scans);
            scope.spawn(move || {
                let done = read(&view, &mut Rng::new(seed + reader), stop);
                scans.lock().unwrap().push(done);
            });
        }
        let writer = scope.spawn(|| write(&tree, &mut Rng::new(seed), edits));
        while !writer.is_finished() {
            tree.freeze();
            thread::yield_now();
            volume.commit(&tree);
        }
        tree.freeze();
        volume.commit(&tree);
    });
    assert!(!tree.is_dirty());
    assert_eq!(forwards(&tree.view()), forwards(&tree.committed_view()));
    volume.commit(&tree);
    assert_eq!(volume.pinned_epochs(), 0);
    println!("scans: {:?}", scans.into_inner().unwrap());
}
