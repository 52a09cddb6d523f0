//! The differences of both snapshots, found on a thread beside the one that sends them.
//!
//! That thread also reads ahead of look-ups: directories that have the names, and old entries at names that are new. Alone,
//! each would be waited for.
//!
//! Invariants
//! - DIFFERENCES-1: an end is one only if the thread says so. A thread that is gone is an error.
//! - DIFFERENCES-2: a comparison that nobody waits for ends, also amid leaves that are alike.
//!
//! Memory: [`QUEUED`] batches and two more, each with leaves of [`BATCH_BYTES`]. Of what is read ahead, [`PORTION`] blocks
//! and those above them are in memory outside the cache.

use std::collections::HashSet;
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
use crate::scoped_thread;

#[cfg(test)]
mod tests;

const QUEUED: usize = 2;
/// The leaves that a batch refers to.
const BATCH_BYTES: usize = 2 << 20;
/// A batch that has so many takes no more leaves.
const ENOUGH: usize = 1024;
/// How many directories are remembered that were read ahead.
const MAX_KNOWN: usize = 1 << 16;
/// Directories above one another that are read ahead.
const MAX_DEPTH: usize = 16;
/// For so many names of an inode.
const SOME_NAMES: usize = 64;
/// Keys that are read ahead for a batch, those of directories in both trees. All others are waited for.
const MAX_KEYS: usize = 1024;
/// Look-ups that are read at once.
const PORTION: usize = 128;

/// Which differences are wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WhichDifferences {
    /// The first of each inode.
    Inodes,
    All,
}

/// A message of a finder.
enum Found {
    Batch(Vec<Difference>),
    /// The end of both trees.
    End,
    Failed(TreeError),
}

/// Differences in key order. Those of what is no inode are left out.
pub(super) struct Differences<'a> {
    batch: vec::IntoIter<Difference>,
    source: DifferenceSource<'a>,
    /// Tells the finder that none are wanted any more.
    is_over: &'a AtomicBool,
}

enum DifferenceSource<'a> {
    Beside(Receiver<Found>),
    /// The system had no thread to give.
    Here(Box<Finder<'a>>),
}

impl Drop for Differences<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl<'a> Differences<'a> {
    fn new(source: DifferenceSource<'a>, is_over: &'a AtomicBool) -> Differences<'a> {
        Differences {
            batch: Vec::new().into_iter(),
            source,
            is_over,
        }
    }

    /// Returns the next difference, or None at the end of both trees.
    pub(super) fn next(&mut self) -> Result<Option<Difference>> {
        loop {
            if let Some(difference) = self.batch.next() {
                return Ok(Some(difference));
            }
            let found = match &mut self.source {
                // DIFFERENCES-1: its panic goes on once this has returned.
                DifferenceSource::Beside(found) => found.recv().map_err(|_| SendError::Thread)?,
                DifferenceSource::Here(finder) => finder.next(),
            };
            match found {
                Found::Batch(batch) => self.batch = batch.into_iter(),
                Found::End => return Ok(None),
                Found::Failed(error) => return Err(error.into()),
            }
        }
    }
}

/// Lets `take` have the differences while they are found. Without a thread for that, `take` waits for each batch.
pub(super) fn find_beside<T>(
    old: Option<&Snapshot>,
    new: &Snapshot,
    wanted: WhichDifferences,
    take: impl FnOnce(&mut Differences<'_>) -> Result<T>,
) -> Result<T> {
    let recent = || [old.unwrap_or(new), new].map(|of| RecentLeaves::of(of.view()));
    let is_over = AtomicBool::new(false);
    let (out, found) = mpsc::sync_channel(QUEUED);
    thread::scope(|scope| {
        let finder = scoped_thread::start(scope, "ubtrfs-compare", || {
            let leaves = recent();
            Finder::new(old, new, wanted, &leaves, &is_over).send_all(out);
        });
        let leaves = recent();
        let source = match finder {
            Ok(_) => DifferenceSource::Beside(found),
            Err(_) => {
                DifferenceSource::Here(Box::new(Finder::new(old, new, wanted, &leaves, &is_over)))
            }
        };
        // An error drops them, which ends the thread.
        take(&mut Differences::new(source, &is_over))
    })
}

/// Returns whether one snapshot came from the other, or both came from one subvolume. Then a directory whose entries
/// differ has another inode item, too. Of two directories that mkfs has filled the items may be alike.
fn are_kin(old: &Snapshot, new: &Snapshot) -> bool {
    let (old, new) = (old.item(), new.item());
    let is_parent = |uuid: Uuid, of: Uuid| uuid == of && !of.is_nil();
    is_parent(old.uuid, new.parent_uuid)
        || is_parent(new.uuid, old.parent_uuid)
        || is_parent(old.parent_uuid, new.parent_uuid)
}

/// Compares, and reads ahead of look-ups.
struct Finder<'a> {
    comparison: Comparison,
    wanted: WhichDifferences,
    /// The highest inode so far.
    last: u64,
    /// Reads of the comparison for a batch.
    reads: usize,
    ahead: Option<ReadAhead<'a>>,
    is_over: &'a AtomicBool,
    /// The message after a batch, if it is known.
    end: Option<Found>,
}

impl<'a> Finder<'a> {
    fn new(
        old: Option<&'a Snapshot>,
        new: &'a Snapshot,
        wanted: WhichDifferences,
        [old_leaves, new_leaves]: &'a [RecentLeaves; 2],
        is_over: &'a AtomicBool,
    ) -> Finder<'a> {
        let mut comparison = new.compare_with(old);
        if old.is_none_or(|old| are_kin(old, new)) {
            // References to names tell of entries as well.
            comparison = comparison.without(KeyType::DIR_ITEM..=KeyType::DIR_INDEX);
        }
        let tree = |snapshot, leaves| FileTree { snapshot, leaves };
        let ahead = old.map(|old| ReadAhead {
            old: tree(old, old_leaves),
            new: tree(new, new_leaves),
            known: HashSet::new(),
        });
        // One of each tree.
        let leaves_of_read = 2 * new.view().store().nodesize();
        Finder {
            comparison,
            wanted,
            last: 0,
            reads: (BATCH_BYTES / leaves_of_read).max(1),
            ahead,
            is_over,
            end: None,
        }
    }

    fn send_all(mut self, out: SyncSender<Found>) {
        loop {
            let found = self.next();
            let is_last = !matches!(found, Found::Batch(_));
            // The sender may have failed.
            if out.send(found).is_err() || is_last {
                return;
            }
        }
    }

    fn next(&mut self) -> Found {
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            let mut batch = Vec::new();
            let more = self.fill(&mut batch);
            if let Some(ahead) = &mut self.ahead {
                ahead.read(&batch, self.wanted);
            }
            self.end = match more {
                Ok(true) if !self.is_over.load(Ordering::Relaxed) => None,
                Ok(_) => Some(Found::End),
                Err(error) => Some(Found::Failed(error)),
            };
            if !batch.is_empty() {
                return Found::Batch(batch);
            }
        }
    }

    /// Fills a batch. False if there is nothing behind it.
    fn fill(&mut self, batch: &mut Vec<Difference>) -> std::result::Result<bool, TreeError> {
        for _ in 0..self.reads {
            // DIFFERENCES-2
            if batch.len() >= ENOUGH || self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let from = batch.len();
            let more = self.comparison.next_of_leaves(batch);
            let (wanted, last) = (self.wanted, &mut self.last);
            let mut at = 0;
            batch.retain(|difference| {
                at += 1;
                let ino = difference.key().objectid;
                let is_wanted =
                    at <= from || is_inode(ino) && (wanted == WhichDifferences::All || ino > *last);
                *last = ino.max(*last);
                is_wanted
            });
            if !more? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Reads ahead of look-ups. A block that cannot be read is an error once it is looked up.
struct ReadAhead<'a> {
    old: FileTree<'a>,
    new: FileTree<'a>,
    /// Some of the directories that were read.
    known: HashSet<u64>,
}

impl ReadAhead<'_> {
    fn read(&mut self, batch: &[Difference], wanted: WhichDifferences) {
        match wanted {
            WhichDifferences::Inodes => {
                let inodes = batch.iter().map(|difference| difference.key().objectid);
                let inodes: Vec<u64> = inodes.collect();
                self.read_dirs_above(inodes);
            }
            WhichDifferences::All => prefetch(self.old, &self.entries_at_new_names(batch)),
        }
    }

    fn read_dirs_above(&mut self, mut inodes: Vec<u64>) {
        let mut left = MAX_KEYS;
        for _ in 0..MAX_DEPTH {
            let dirs = self.unread_dirs_of(&inodes, left);
            if dirs.is_empty() {
                return;
            }
            left -= dirs.len();
            let inode_item = |&dir| Key::new(dir, KeyType::INODE_ITEM, 0);
            let keys: Vec<Key> = dirs.iter().map(inode_item).collect();
            for tree in [self.old, self.new] {
                prefetch(tree, &keys);
            }
            inodes = dirs;
        }
    }

    /// Returns up to `most` directories with names of inodes that were not read ahead, ascending. It notes that they
    /// are read ahead now.
    fn unread_dirs_of(&mut self, inodes: &[u64], most: usize) -> Vec<u64> {
        if most == 0 {
            return Vec::new();
        }
        let mut dirs = Vec::new();
        for &ino in inodes {
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
        dirs.truncate(most);
        self.known.extend(&dirs);
        dirs
    }

    /// Lists the entries of the old snapshot at names that are new, ascending.
    fn entries_at_new_names(&self, batch: &[Difference]) -> Vec<Key> {
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
        keys.truncate(MAX_KEYS);
        keys.sort_unstable();
        keys
    }
}

fn prefetch(tree: FileTree<'_>, keys: &[Key]) {
    for portion in keys.chunks(PORTION) {
        tree.snapshot.view().prefetch(portion);
    }
}
