//! The differences between both snapshots, found on a second thread.
//!
//! This thread also reads ahead for later look-ups: directories that contain the names, and old entries at new names.
//! Without it, each look-up would wait for a read.
//!
//! Invariants
//! - DIFFERENCES-1: only an explicit message from the thread marks the end. A terminated thread is an error.
//! - DIFFERENCES-2: an unneeded comparison stops, even within leaves without differences.
//!
//! Memory: [`QUEUED`] batches and two more, each with leaves of [`BATCH_BYTES`]. For read-ahead, [`PORTION`] blocks
//! and those above them are in memory outside of the cache.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::{thread, vec};

use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::Snapshot;
use ubtrfs_tree::{Comparison, Difference, RecentLeaves, TreeError};

use super::error::{Result, SendError};
use super::file_tree::{FileTree, Name, ROOT_DIR, is_inode, push_names};
use crate::scoped_thread;

#[cfg(test)]
mod tests;

const QUEUED: usize = 2;
/// Maximum bytes of leaves that a batch refers to.
const BATCH_BYTES: usize = 2 << 20;
/// Number of differences after which a batch adds no more leaves.
const ENOUGH: usize = 1024;
/// Maximum number of remembered directories for read-ahead.
const MAX_KNOWN: usize = 1 << 16;
/// Maximum depth of directories that are read ahead.
const MAX_DEPTH: usize = 16;
/// Maximum number of names per inode for read-ahead.
const SOME_NAMES: usize = 64;
/// Maximum number of keys per batch for read-ahead, counted over both trees for directories. Other look-ups wait.
const MAX_KEYS: usize = 1024;
/// Number of look-ups that are read in one batch.
const PORTION: usize = 128;

/// The selection of differences.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WhichDifferences {
    /// Only the first one of each inode.
    Inodes,
    All,
}

/// A message from a finder.
enum Found {
    Batch(Vec<Difference>),
    /// The end of both trees.
    End,
    Failed(TreeError),
}

/// Differences in key order, without items that do not belong to inodes.
pub(super) struct Differences<'a> {
    batch: vec::IntoIter<Difference>,
    source: DifferenceSource<'a>,
    /// Signals the finder to stop.
    is_over: &'a AtomicBool,
}

enum DifferenceSource<'a> {
    Beside(Receiver<Found>),
    /// The system could not create a thread.
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
                // DIFFERENCES-1: a panic of the thread is propagated after this function returns.
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

/// Passes the differences to `take` while they are being found. Without a second thread, `take` waits for each batch.
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
        // On an error the channel is dropped, which stops the thread.
        take(&mut Differences::new(source, &is_over))
    })
}

/// Returns whether one snapshot is derived from the other, or both from one subvolume. Then a directory with
/// different entries also has a different inode item. In unrelated volumes made by mkfs, the items may be equal.
fn are_kin(old: &Snapshot, new: &Snapshot) -> bool {
    let (old, new) = (old.item(), new.item());
    let is_parent = |uuid: Uuid, of: Uuid| uuid == of && !of.is_nil();
    is_parent(old.uuid, new.parent_uuid)
        || is_parent(new.uuid, old.parent_uuid)
        || is_parent(old.parent_uuid, new.parent_uuid)
}

/// Compares the trees and reads ahead.
struct Finder<'a> {
    comparison: Comparison,
    wanted: WhichDifferences,
    /// The highest inode so far.
    last: u64,
    /// Number of comparison steps for a batch.
    reads: usize,
    ahead: Option<ReadAhead<'a>>,
    is_over: &'a AtomicBool,
    /// The message after a batch, if it is already known.
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
            // Directory entries are not needed: the back references of inodes also show their changes.
            comparison = comparison.without(KeyType::DIR_ITEM..=KeyType::DIR_INDEX);
        }
        let tree = |snapshot, leaves| FileTree { snapshot, leaves };
        let ahead = old.map(|old| ReadAhead {
            old: tree(old, old_leaves),
            new: tree(new, new_leaves),
            known: HashSet::new(),
        });
        // One leaf of each tree.
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
            // This fails if the sender has stopped.
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

    /// Fills a batch. Returns false if there are no more differences after it.
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

/// Read-ahead for look-ups. An unreadable block is an error only when it is looked up.
struct ReadAhead<'a> {
    old: FileTree<'a>,
    new: FileTree<'a>,
    /// Some of the directories that were already read.
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

    /// Returns up to `most` directories with names of inodes, ascending, which were not read ahead yet. Marks them as
    /// read.
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

    /// Lists the old snapshot's entries at new names, ascending.
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
