//! Replay: applies the items of a log to the trees that they were copied from.
//!
//! Stages per subvolume: inodes, directory entries, all other items, link counts. This is the kernel's order.
//! Missing entries count as removed, and each stage relies on the ones before.
//!
//! A writable volume commits the result. A volume opened for reading keeps it in memory.
//!
//! Invariants
//! - REPLAY-1: blocks and data of the log are not allocated before the replay is committed.
//! - REPLAY-2: nothing is written before the whole log was replayed. A log that cannot be replayed leaves the
//!   volume unchanged.
//!
//! Not here: the choice of the items in a log.

mod extent_table;
mod extents;
mod inodes;
mod links;
mod names;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;

use super::read::{Log, SubvolumeLog};
use crate::error::{Error, Result};
use crate::inode::Inodes;
use extent_table::ExtentTable;
use ubtrfs_storage::FileId;
use ubtrfs_storage::failpoint::{Failpoint, reach};
use ubtrfs_storage::roots::{Roots, Tree, blocks};
use ubtrfs_storage::{EditTarget, EditsInMemory, Reservation};

/// Replays the log of a volume that is opened for writing, and commits. Does nothing without a log.
pub(crate) fn replay(inodes: &Inodes) -> Result<()> {
    let manager = inodes.transactions()?;
    let Some(log) = Log::open(&inodes.roots).map_err(unreadable)? else {
        return Ok(());
    };
    tracing::info!(subvolumes = log.subvolumes.len(), "replaying the fsync log");
    reach(Failpoint::LogFound)?;
    let nodesize = inodes.roots.node_store().nodesize() as u64;
    // REPLAY-1: unpinned after the commit.
    for block in log.blocks().map_err(unreadable)? {
        manager.space.pin(block, nodesize);
    }
    // No reservation: a full volume must mount, and the kernel does not reserve here either.
    let txn = manager.join_transaction(Reservation::already_made())?;
    let extents = ExtentTable::new(inodes, &txn)?;
    let replayed = replay_into(inodes, &log, &txn, Some(extents))
        .and_then(|()| Ok(reach(Failpoint::LogReplayed)?));
    txn.edit_superblock(|edits| edits.log_replayed = true);
    drop(txn);
    // REPLAY-2
    if let Err(error) = &replayed {
        manager.abort(error);
    }
    replayed?;
    Ok(manager.commit_running()?)
}

/// Replays the log of a volume that is opened for reading, in memory only.
pub(crate) fn replay_in_memory(inodes: &Inodes) -> Result<()> {
    let Some(log) = Log::open(&inodes.roots).map_err(unreadable)? else {
        return Ok(());
    };
    let target = EditsInMemory {
        transid: log.transid,
    };
    replay_into(inodes, &log, &target, None)
}

fn replay_into(
    inodes: &Inodes,
    log: &Log,
    target: &dyn EditTarget,
    mut extents: Option<ExtentTable<'_>>,
) -> Result<()> {
    for log in log.subvolumes.iter().rev() {
        let tree = match inodes.roots.find_tree(log.subvolume)? {
            Some(tree) if log.subvolume.is_subvolume() && !tree.is_deleted() => tree,
            _ => {
                tracing::warn!(subvolume = %log.subvolume, "the log of a subvolume that does not exist is skipped");
                continue;
            }
        };
        let subvolume = Replay {
            inodes,
            log: &log.view,
            tree,
            target,
            extents: extents.as_mut(),
            skipped: HashSet::new(),
            recount: BTreeSet::new(),
            nbytes: None,
        };
        subvolume.run(log)?;
        reach(Failpoint::SubvolumeReplayed)?;
    }
    Ok(())
}

/// The replay of one subvolume's log.
struct Replay<'r, 'v> {
    inodes: &'r Inodes,
    log: &'r View,
    tree: Arc<Tree>,
    target: &'r dyn EditTarget,
    /// The extents on disk. None in a replay in memory, which keeps no references.
    extents: Option<&'r mut ExtentTable<'v>>,
    /// Inodes without a name according to the log. Their other items are skipped.
    skipped: HashSet<u64>,
    /// Inodes whose names are counted in the last stage.
    recount: BTreeSet<InodeNr>,
    /// The change of an inode's `nbytes` that is not in its item yet.
    nbytes: Option<(InodeNr, i64)>,
}

/// A stage: a function that is called for each item.
type Stage<'r, 'v> = fn(&mut Replay<'r, 'v>, Key, &[u8]) -> Result<()>;

impl<'r, 'v> Replay<'r, 'v> {
    fn run(mut self, log: &SubvolumeLog) -> Result<()> {
        let stages: [Stage<'r, 'v>; 3] = [
            Replay::replay_inode,
            Replay::replay_entry,
            Replay::replay_other,
        ];
        for stage in stages {
            self.for_each_item(log, stage)?;
        }
        self.count_links()
    }

    fn for_each_item(&mut self, log: &SubvolumeLog, stage: Stage<'r, 'v>) -> Result<()> {
        let view = self.log;
        let mut cursor = view.cursor().sequential();
        let mut more = cursor.seek(&Key::MIN)?;
        while more && let Some((key, bytes)) = cursor.current() {
            if !self.skipped.contains(&key.objectid) {
                stage(self, key, bytes).map_err(|source| at_item(log, key, source))?;
            }
            more = cursor.advance()?;
        }
        self.flush_nbytes()
    }

    /// Replays items other than inode items and directory entries.
    fn replay_other(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        match key.item_type {
            KeyType::INODE_REF | KeyType::INODE_EXTREF => self.replay_refs(key, bytes),
            KeyType::XATTR_ITEM => self.replay_xattr(key, bytes),
            KeyType::EXTENT_DATA => self.replay_extent(key, bytes),
            // Checksums are replayed together with their extents.
            _ => Ok(()),
        }
    }

    fn roots(&self) -> &'r Roots {
        &self.inodes.roots
    }

    fn root(&self) -> RootId {
        self.tree.id()
    }

    fn file(&self, ino: InodeNr) -> FileId {
        FileId::new(self.root(), ino)
    }
}

fn unreadable(source: Error) -> Error {
    if source.is_would_block() {
        source
    } else {
        Error::LogRead(Box::new(source))
    }
}

/// Adds the log item that caused an error, and the item's block.
fn at_item(log: &SubvolumeLog, key: Key, source: Error) -> Error {
    if source.is_would_block() {
        return source;
    }
    let block = blocks::find(&log.view, &key, 0).ok().flatten();
    Error::LogItem {
        subvolume: log.subvolume,
        block: block.map_or(Logical(0), |block| block.node().bytenr()),
        key,
        source: Box::new(source),
    }
}
