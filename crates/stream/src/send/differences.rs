//! The differences of both snapshots, found on a thread beside the one that sends them.
//!
//! That thread also reads ahead of look-ups: directories that have the names, and old entries at names that are new. Alone,
//! each would be waited for.
//!
//! Memory: [`QUEUED`] batches and two more, each with the leaves of up to [`LEAVES`] reads of the comparison. Of what is
//! read ahead, [`PORTION`] blocks and those above them are in memory outside the cache.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::{thread, vec};

use ubtrfs_engine::Snapshot;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_tree::{Comparison, Difference, RecentLeaves, TreeError};

use super::error::{Result, SendError};
use super::file_tree::{FileTree, Name, ROOT_DIR, push_names};
use super::walk::is_inode;

const QUEUED: usize = 2;
const LEAVES: usize = 64;
/// A batch that has so many takes no more leaves.
const ENOUGH: usize = 1024;
/// How many directories are remembered that were read ahead.
const MAX_KNOWN: usize = 1 << 16;
/// Directories above one another that are read ahead.
const MAX_DEPTH: usize = 16;
/// For so many names of an inode.
const SOME_NAMES: usize = 64;
/// Look-ups that are read ahead for a batch. All others are waited for.
const MAX_KEYS: usize = 1024;
/// Look-ups that are read at once.
const PORTION: usize = 128;

/// Which differences are wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wanted {
    /// The first of each inode.
    Inodes,
    All,
}

/// A message of the thread that finds differences.
enum Found {
    Batch(Vec<Difference>),
    /// The end of both trees.
    End,
    Failed(TreeError),
}

/// Differences in key order. Those of what is no inode are left out.
pub(super) struct Differences<'a> {
    batch: vec::IntoIter<Difference>,
    found: Receiver<Found>,
    /// Tells the thread that none are wanted any more.
    is_over: &'a AtomicBool,
}

impl Drop for Differences<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Differences<'_> {
    /// None at the end of both trees.
    pub(super) fn next(&mut self) -> Result<Option<Difference>> {
        loop {
            if let Some(difference) = self.batch.next() {
                return Ok(Some(difference));
            }
            match self.found.recv() {
                Ok(Found::Batch(batch)) => self.batch = batch.into_iter(),
                Ok(Found::End) => return Ok(None),
                Ok(Found::Failed(error)) => return Err(error.into()),
                // Its panic goes on once this has returned.
                Err(gone) => return Err(SendError::Thread(io::Error::other(gone))),
            }
        }
    }
}

/// Lets `take` have the differences while they are found.
pub(super) fn find_beside<T>(
    old: Option<&Snapshot>,
    new: &Snapshot,
    wanted: Wanted,
    take: impl FnOnce(&mut Differences<'_>) -> Result<T>,
) -> Result<T> {
    let (out, found) = mpsc::sync_channel(QUEUED);
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    thread::scope(|scope| {
        let finder = thread::Builder::new().name("ubtrfs-compare".to_owned());
        finder
            .spawn_scoped(scope, move || find(old, new, wanted, &out, is_over))
            .map_err(SendError::Thread)?;
        // An error drops it, which ends the thread.
        let mut differences = Differences {
            batch: Vec::new().into_iter(),
            found,
            is_over,
        };
        take(&mut differences)
    })
}

/// Whether one snapshot came from the other, or both came from one subvolume. Then a directory whose entries differ has
/// another inode item, too. Of two directories that mkfs has filled the items may be alike.
fn are_kin(old: &Snapshot, new: &Snapshot) -> bool {
    let (old, new) = (old.item(), new.item());
    let is_parent = |uuid: Uuid, of: Uuid| uuid == of && !of.is_nil();
    is_parent(old.uuid, new.parent_uuid)
        || is_parent(new.uuid, old.parent_uuid)
        || is_parent(old.parent_uuid, new.parent_uuid)
}

fn find(
    old: Option<&Snapshot>,
    new: &Snapshot,
    wanted: Wanted,
    out: &SyncSender<Found>,
    is_over: &AtomicBool,
) {
    let mut comparison = new.compare_with(old);
    if old.is_none_or(|old| are_kin(old, new)) {
        // References to names tell of entries as well.
        comparison = comparison.without(KeyType::DIR_ITEM..=KeyType::DIR_INDEX);
    }
    let leaves = [old.unwrap_or(new), new].map(|of| RecentLeaves::of(of.view()));
    let mut ahead = old.map(|old| ReadAhead {
        old: FileTree {
            snapshot: old,
            leaves: &leaves[0],
        },
        new: FileTree {
            snapshot: new,
            leaves: &leaves[1],
        },
        known: HashSet::new(),
    });
    let mut last = 0;
    loop {
        let mut batch = Vec::new();
        let more = fill(&mut comparison, wanted, &mut last, &mut batch);
        if let Some(ahead) = &mut ahead {
            ahead.read(&batch, wanted);
        }
        let is_sent = batch.is_empty() || out.send(Found::Batch(batch)).is_ok();
        let last = match more {
            // The sender may have failed.
            Ok(true) if is_sent && !is_over.load(Ordering::Relaxed) => continue,
            Ok(_) => Found::End,
            Err(error) => Found::Failed(error),
        };
        let _ = out.send(last);
        return;
    }
}

/// Fills a batch. False if there is nothing behind it.
fn fill(
    comparison: &mut Comparison,
    wanted: Wanted,
    last: &mut u64,
    batch: &mut Vec<Difference>,
) -> std::result::Result<bool, TreeError> {
    for _ in 0..LEAVES {
        if batch.len() >= ENOUGH {
            break;
        }
        let from = batch.len();
        let more = comparison.next_of_leaves(batch);
        let mut at = 0;
        batch.retain(|difference| {
            at += 1;
            let ino = difference.key().objectid;
            let is_wanted = at <= from || is_inode(ino) && (wanted == Wanted::All || ino > *last);
            *last = ino.max(*last);
            is_wanted
        });
        if !more? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads ahead of look-ups. A block that cannot be read is an error once it is looked up.
struct ReadAhead<'a> {
    old: FileTree<'a>,
    new: FileTree<'a>,
    /// Some of the directories that were read.
    known: HashSet<u64>,
}

impl ReadAhead<'_> {
    fn read(&mut self, batch: &[Difference], wanted: Wanted) {
        match wanted {
            Wanted::Inodes => {
                let inodes = batch.iter().map(|difference| difference.key().objectid);
                let inodes: Vec<u64> = inodes.collect();
                self.read_dirs_above(inodes);
            }
            Wanted::All => self.read_entries(batch),
        }
    }

    fn read_dirs_above(&mut self, mut inodes: Vec<u64>) {
        for _ in 0..MAX_DEPTH {
            let mut dirs = Vec::new();
            for &ino in &inodes {
                for tree in [self.old, self.new] {
                    let names = tree.names_until(ino, |names| names.len() >= SOME_NAMES);
                    let names = names.unwrap_or_default();
                    dirs.extend(names.iter().map(|name| name.dir));
                }
            }
            dirs.sort_unstable();
            dirs.dedup();
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
            }
            dirs.retain(|&dir| dir != ROOT_DIR && !self.known.contains(&dir));
            dirs.truncate(MAX_KEYS);
            if dirs.is_empty() {
                return;
            }
            self.known.extend(&dirs);
            let keys = dirs
                .iter()
                .map(|&dir| Key::new(dir, KeyType::INODE_ITEM, 0));
            let keys: Vec<Key> = keys.collect();
            for tree in [self.old, self.new] {
                prefetch(tree, &keys);
            }
            inodes = dirs;
        }
    }

    /// Reads the entries of the old snapshot at names that are new.
    fn read_entries(&mut self, batch: &[Difference]) {
        let mut keys = Vec::new();
        for difference in batch {
            if keys.len() >= MAX_KEYS {
                break;
            }
            let Some(item) = difference.new_item() else {
                continue;
            };
            let (mut before, mut after) = (Vec::new(), Vec::new());
            push_names(item.key(), item, &mut after);
            if let Some(item) = difference.old_item() {
                push_names(item.key(), item, &mut before);
            }
            let is_new = |name: &Name| !before.contains(name);
            for name in after.into_iter().filter(is_new).take(SOME_NAMES) {
                let is_there =
                    name.dir == ROOT_DIR || self.old.inode(name.dir).is_ok_and(|dir| dir.is_some());
                if is_there {
                    let hash = u64::from(name_hash(&name.name));
                    keys.push(Key::new(name.dir, KeyType::DIR_ITEM, hash));
                }
            }
        }
        keys.sort_unstable();
        prefetch(self.old, &keys);
    }
}

fn prefetch(tree: FileTree<'_>, keys: &[Key]) {
    for portion in keys.chunks(PORTION) {
        tree.snapshot.view().prefetch(portion);
    }
}
