//! Limits of read-ahead and pinned memory, and termination of the finder thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::{io, panic};

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, NewInode, OpenOptions, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;

use super::*;
use crate::scoped_thread::without_threads;
use crate::{SendOptions, Sender, StreamVersion, StreamWriter};

const DIRS: usize = 2048;
const LINKED_FILES: usize = DIRS / SOME_NAMES;

struct Pair {
    old: Snapshot,
    new: Snapshot,
}

fn volume(nodesize: u32) -> (Arc<Volume>, FileId) {
    let options = MkfsOptions {
        nodesize: Some(nodesize),
        ..MkfsOptions::default()
    };
    let device: Arc<dyn BlockDevice> = Arc::new(new_volume(&options, 512 << 20));
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let volume = Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    (volume, top)
}

fn snapshot(volume: &Arc<Volume>, name: &str) -> Snapshot {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let made = volume.snapshot(RootId::FS_TREE, top, name.as_bytes(), true);
    Snapshot::open(volume, made.unwrap()).unwrap()
}

/// Creates as many directories as are read ahead, and a second snapshot in which a few files have names in them.
fn many_names() -> Pair {
    let (volume, top) = volume(16 << 10);
    let dirs: Vec<FileId> = (0..DIRS)
        .map(|number| {
            let name = format!("dir {number}");
            let dir = NewInode::directory(0o755);
            volume.create(top, name.as_bytes(), &dir).unwrap()
        })
        .collect();
    let old = snapshot(&volume, "old");
    for number in 0..LINKED_FILES {
        let mut dirs = dirs[number * SOME_NAMES..][..SOME_NAMES].iter();
        let first = *dirs.next().unwrap();
        let new = NewInode::file(0o644);
        let file = volume.create(first, b"file", &new).unwrap();
        for dir in dirs {
            volume.link(file, *dir, b"file").unwrap();
        }
    }
    let new = snapshot(&volume, "new");
    Pair { old, new }
}

/// Collects all batches of a finder, and its last message.
fn find_all(pair: &Pair, wanted: WhichDifferences) -> (Vec<Vec<Difference>>, Found) {
    let leaves = [&pair.old, &pair.new].map(|of| RecentLeaves::of(of.view()));
    let is_over = AtomicBool::new(false);
    let mut finder = Finder::new(Some(&pair.old), &pair.new, wanted, &leaves, &is_over);
    let mut batches = Vec::new();
    loop {
        match finder.next() {
            Found::Batch(batch) => batches.push(batch),
            end => return (batches, end),
        }
    }
}

#[test]
fn look_ups_that_are_read_ahead_for_a_batch_are_bounded() {
    let pair = many_names();
    let leaves = [&pair.old, &pair.new].map(|of| RecentLeaves::of(of.view()));
    let tree = |snapshot, leaves| FileTree { snapshot, leaves };
    let mut ahead = ReadAhead {
        old: tree(&pair.old, &leaves[0]),
        new: tree(&pair.new, &leaves[1]),
        known: HashSet::new(),
    };
    // As one batch, which is possible on a volume with large leaves.
    let (batches, _) = find_all(&pair, WhichDifferences::All);
    let batch: Vec<Difference> = batches.into_iter().flatten().collect();

    let keys = ahead.entries_at_new_names(&batch);
    assert_eq!(keys.len(), MAX_KEYS);
    assert!(keys.is_sorted());

    let inodes: Vec<u64> = batch.iter().map(|of| of.key().objectid).collect();
    let mut dirs = Vec::new();
    for _ in 0..2 {
        let some = ahead.unread_dirs_of(&inodes, MAX_KEYS);
        assert_eq!(some.len(), MAX_KEYS);
        dirs.extend(some);
    }
    dirs.sort_unstable();
    dirs.dedup();
    // The second call continues where the first one stopped.
    assert_eq!(dirs.len(), DIRS);
    assert!(ahead.unread_dirs_of(&inodes, MAX_KEYS).is_empty());
}

/// Chains of directories with differences only at the bottom.
#[test]
fn directories_above_are_read_ahead_within_the_same_bound() {
    const CHAINS: usize = 400;
    const DEPTH: usize = 4;
    let (volume, top) = volume(16 << 10);
    let mut bottoms = Vec::new();
    for number in 0..CHAINS {
        let mut dir = top;
        for depth in 0..DEPTH {
            let name = format!("{number}-{depth}");
            let new = NewInode::directory(0o755);
            dir = volume.create(dir, name.as_bytes(), &new).unwrap();
        }
        let new = NewInode::file(0o644);
        bottoms.push(volume.create(dir, b"file", &new).unwrap().ino.0);
    }
    let (old, new) = (snapshot(&volume, "old"), snapshot(&volume, "new"));
    let leaves = [&old, &new].map(|of| RecentLeaves::of(of.view()));
    let tree = |snapshot, leaves| FileTree { snapshot, leaves };
    let mut ahead = ReadAhead {
        old: tree(&old, &leaves[0]),
        new: tree(&new, &leaves[1]),
        known: HashSet::new(),
    };
    ahead.read_dirs_above(bottoms);
    assert_eq!(ahead.known.len(), MAX_KEYS);
}

/// Creates one difference in each leaf of 64 KiB.
#[test]
fn bytes_of_leaves_in_a_batch_are_bounded() {
    const NODESIZE: usize = 64 << 10;
    const FILES: usize = 1600;
    const IN_A_LEAF: usize = 40;
    let (volume, top) = volume(NODESIZE as u32);
    let files: Vec<FileId> = (0..FILES)
        .map(|number| {
            let name = format!("file {number}");
            let new = NewInode::file(0o644);
            let file = volume.create(top, name.as_bytes(), &new).unwrap();
            volume.write(file, 0, &[7; 2000]).unwrap();
            file
        })
        .collect();
    let old = snapshot(&volume, "old");
    for file in files.iter().step_by(IN_A_LEAF) {
        volume.write(*file, 0, &[8; 100]).unwrap();
    }
    let new = snapshot(&volume, "new");
    let (batches, end) = find_all(&Pair { old, new }, WhichDifferences::Inodes);
    assert!(matches!(end, Found::End));
    let count = |batch: &Vec<Difference>| batch.len();
    let differences: usize = batches.iter().map(count).sum();
    assert!(differences >= FILES / IN_A_LEAF, "{differences}");
    // Each difference refers to two leaves.
    let most = batches.iter().map(count).max().unwrap();
    assert!(most * 2 * NODESIZE <= BATCH_BYTES, "{most} differences");
    assert!(batches.len() >= 3);
}

/// DIFFERENCES-2
#[test]
fn nothing_is_found_for_a_sender_that_has_ended() {
    let pair = many_names();
    let leaves = [&pair.old, &pair.new].map(|of| RecentLeaves::of(of.view()));
    let is_over = AtomicBool::new(true);
    let mut finder = Finder::new(
        Some(&pair.old),
        &pair.new,
        WhichDifferences::All,
        &leaves,
        &is_over,
    );
    let store = pair.new.view().store();
    let looked = || store.stats().hits + store.stats().misses;
    let before = looked();
    assert!(matches!(finder.next(), Found::End));
    assert_eq!(looked(), before);
}

/// DIFFERENCES-1
#[test]
fn thread_that_is_gone_is_no_end() {
    let is_over = AtomicBool::new(false);
    let (out, found) = mpsc::sync_channel(QUEUED);
    let mut differences = Differences::new(DifferenceSource::Beside(found), &is_over);
    out.send(Found::Batch(Vec::new())).unwrap();
    drop(out);
    assert!(matches!(differences.next(), Err(SendError::Thread)));

    let (out, found) = mpsc::sync_channel(QUEUED);
    let mut differences = Differences::new(DifferenceSource::Beside(found), &is_over);
    let panicking = thread::spawn(move || {
        let _out = out;
        panic::panic_any("meant");
    });
    assert!(matches!(differences.next(), Err(SendError::Thread)));
    panicking.join().unwrap_err();

    let (out, found) = mpsc::sync_channel(QUEUED);
    let mut differences = Differences::new(DifferenceSource::Beside(found), &is_over);
    out.send(Found::End).unwrap();
    assert!(differences.next().unwrap().is_none());
}

fn sent(pair: &Pair) -> Vec<u8> {
    let options = SendOptions::default();
    let mut out = StreamWriter::new(Vec::new(), StreamVersion::V1).unwrap();
    let sender = Sender::new(&pair.new, options).parent(&pair.old);
    sender.send(&mut out).unwrap();
    out.into_inner()
}

#[test]
fn send_without_threads_gives_the_same_stream() {
    let (volume, top) = volume(16 << 10);
    let create = |name: String| {
        let new = NewInode::file(0o644);
        volume.create(top, name.as_bytes(), &new).unwrap()
    };
    for number in 0..500 {
        create(format!("file {number}"));
    }
    let old = snapshot(&volume, "old");
    for number in 0..500 {
        create(format!("new file {number}"));
    }
    // Parts of this file are read on a second thread.
    let large = create("large".to_owned());
    for part in 0..9u64 {
        volume
            .write(large, part << 20, &[part as u8; 1 << 20])
            .unwrap();
    }
    let pair = Pair {
        old,
        new: snapshot(&volume, "new"),
    };
    let wanted = sent(&pair);
    assert!(wanted.len() > 9 << 20);
    assert!(without_threads(|| sent(&pair)) == wanted);
}

#[test]
fn error_of_a_sender_ends_the_search() {
    let pair = many_names();
    let failed = || SendError::Spill(io::ErrorKind::StorageFull.into());
    let take = |differences: &mut Differences<'_>| {
        differences.next()?;
        Err::<(), _>(failed())
    };
    let (old, new) = (Some(&pair.old), &pair.new);
    let error = find_beside(old, new, WhichDifferences::All, take).unwrap_err();
    assert!(matches!(error, SendError::Spill(_)));
    let error = without_threads(|| find_beside(old, new, WhichDifferences::All, take)).unwrap_err();
    assert!(matches!(error, SendError::Spill(_)));
}
