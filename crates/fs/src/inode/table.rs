//! Inodes in memory: one object for each inode in use, with the lock that protects its items.
//!
//! Invariants
//! - INODE-1: all users of an inode hold the same object. It stays in the table while it has buffered data or
//!   an unreported loss, or is open.
//! - INODE-2: a thread that waits for an inode's lock holds only locks of inodes with a lower `FileId`.
//!
//! Locks: `Inode::lock` protects every item of the inode. In a directory it also protects the entries and
//! their back references. It may be held while cold blocks are read: other waiting threads want the same
//! inode.
//!
//! `InodeTable::rename_lock` is taken before all inode locks. It is held while a directory moves to another
//! directory, and while a subvolume is made, moved or deleted. The paths from these to the top therefore do
//! not change. It also protects received UUIDs and the default subvolume. Creation of a subvolume releases it
//! before the commit, unless the subvolume has UUID items that no other operation may draft before they are
//! committed.
//!
//! The table's shards are leaves.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::acl::Acl;
use ubtrfs_storage::roots::{Roots, Tree};
use ubtrfs_storage::{ExtentBarrier, FileId, IdHasher, Reservation, TransactionHandle, lock};

use super::extents_lock::FileExtentsLock;
use super::{Inodes, WriteBuffer};
use crate::error::{Error, Result};

/// The attributes that new inodes inherit from their directory.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    pub(crate) default_acl: Option<Acl>,
    pub(crate) compression: Option<Compression>,
}

/// An inode in use.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) id: FileId,
    pub(crate) tree: Arc<Tree>,
    /// Held, before `lock`, by a thread that changes the file's extents, which may therefore read them
    /// without `lock`. It stays held while data is written to the devices. A commit never takes it.
    pub(crate) extents: FileExtentsLock,
    pub(crate) lock: RwLock<InodeState>,
    /// The span of extents that have changed since the last count of buffered bytes. A leaf.
    changed_extents: Mutex<Range<u64>>,
}

/// The state of an inode that is only in memory.
#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// Written data without an extent, and the file size that includes it.
    pub(crate) buffer: WriteBuffer,
    /// The index for the next entry of a directory. None until it is needed.
    pub(crate) next_index: Option<u64>,
    /// The settings that new inodes in a directory inherit. None until they are needed.
    pub(crate) inherited: Option<Arc<Inherited>>,
    /// The number of holds, which keep the inode after its last name is gone.
    pub(crate) open_count: u64,
    /// It has no name, and is kept only for its holds.
    pub(crate) unlinked: bool,
    /// It never had a name and may be given one.
    pub(crate) linkable: bool,
}

/// The inodes in use.
#[derive(Debug)]
pub(crate) struct InodeTable {
    shards: Vec<Mutex<Shard>>,
    /// The most unused inodes that a shard keeps.
    kept_per_shard: usize,
    /// The barrier of all extents of files.
    barrier: Arc<ExtentBarrier>,
    /// See the head of this file.
    pub(crate) rename_lock: Mutex<()>,
}

#[derive(Debug)]
struct Shard {
    inodes: HashMap<FileId, Arc<Inode>, BuildHasherDefault<IdHasher>>,
    /// The queue for checking whether inodes still have users. Some may be gone already.
    turns: VecDeque<FileId>,
}

impl Shard {
    /// Removes a few unused inodes. The work is bounded, because a caller waits for it.
    fn trim(&mut self, kept: usize) {
        for _ in 0..TURNS {
            let Some(id) = self.turns.pop_front() else {
                return;
            };
            let Some(inode) = self.inodes.get(&id) else {
                continue;
            };
            // INODE-1
            let is_free = Arc::strong_count(inode) == 1 && !inode.must_stay();
            if is_free && self.inodes.len() > kept {
                self.inodes.remove(&id);
            } else {
                self.turns.push_back(id);
            }
        }
    }
}

const SHARDS: usize = 64;
/// The approximate memory of an inode and its table entries.
const INODE_BYTES: u64 = size_of::<Inode>() as u64 + 128;
const MOST_PER_SHARD: u64 = 1024;
/// The number of inodes that one insertion checks.
const TURNS: usize = 3;

impl InodeTable {
    /// Creates a table that keeps as many unused inodes as the budget allows, up to a limit.
    pub(crate) fn new(budget_bytes: u64, barrier: Arc<ExtentBarrier>) -> Self {
        let kept = (budget_bytes / INODE_BYTES / SHARDS as u64).min(MOST_PER_SHARD);
        let shard = || Shard {
            inodes: HashMap::default(),
            turns: VecDeque::new(),
        };
        InodeTable {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            kept_per_shard: kept as usize,
            barrier,
            rename_lock: Mutex::default(),
        }
    }

    fn shard(&self, id: FileId) -> &Mutex<Shard> {
        let hash = BuildHasherDefault::<IdHasher>::default().hash_one(id);
        // The map selects buckets by the low bits of the hash, and compares the highest ones.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// Returns the object of an inode. The caller must check under its lock that the inode exists.
    pub(crate) fn get(&self, roots: &Roots, id: FileId) -> Result<Arc<Inode>> {
        if let Some(inode) = self.find(id) {
            return Ok(inode);
        }
        let tree = roots.tree_of(id)?;
        Ok(self.get_in(&tree, id))
    }

    /// Returns the object of an inode of `tree`.
    pub(crate) fn get_in(&self, tree: &Arc<Tree>, id: FileId) -> Arc<Inode> {
        let mut shard = self.shard(id).lock();
        // INODE-1
        let vacant = match shard.inodes.entry(id) {
            Entry::Occupied(occupied) => return Arc::clone(occupied.get()),
            Entry::Vacant(vacant) => vacant,
        };
        let inode = Arc::new(Inode {
            id,
            tree: Arc::clone(tree),
            extents: FileExtentsLock::new(&self.barrier),
            lock: RwLock::default(),
            changed_extents: Mutex::default(),
        });
        vacant.insert(Arc::clone(&inode));
        shard.turns.push_back(id);
        if shard.turns.len() > self.kept_per_shard {
            shard.trim(self.kept_per_shard);
        }
        inode
    }

    /// Removes an inode from the table after a call, unless another thread uses it. A program that visits all
    /// files of a directory then reuses the same memory.
    pub(crate) fn release(&self, inode: &Arc<Inode>) {
        let mut shard = self.shard(inode.id).lock();
        // The references of the table and of the caller.
        if Arc::strong_count(inode) == 2 && !inode.must_stay() {
            shard.inodes.remove(&inode.id);
            // Usually it was inserted last. Remove its entry in the queue as well.
            if shard.turns.back() == Some(&inode.id) {
                shard.turns.pop_back();
            }
        }
    }

    /// Returns the object of an inode, if it is in the table.
    pub(crate) fn find(&self, id: FileId) -> Option<Arc<Inode>> {
        self.shard(id).lock().inodes.get(&id).cloned()
    }

    /// Removes all inodes of a deleted subvolume, and returns them.
    pub(crate) fn take_subvolume(&self, root: RootId) -> Vec<Arc<Inode>> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let of_root = shard.inodes.extract_if(|id, _| id.root == root);
            taken.extend(of_root.map(|(_, inode)| inode));
        }
        taken
    }
}

impl Inodes {
    /// Reports a write-back error in a subvolume that no sync has reported. By INODE-1, such a file is in the
    /// table.
    pub(crate) fn report_loss_in(&self, root: RootId) -> Result<()> {
        for shard in &self.table.shards {
            let shard = shard.lock();
            let of_root = shard.inodes.values().filter(|inode| inode.id.root == root);
            let of_root: Vec<Arc<Inode>> = of_root.cloned().collect();
            drop(shard);
            for inode in of_root {
                let mut state = inode.lock.write();
                let errors = state.buffer.writeback_errors_mut();
                if errors.is_unreported()
                    && let Some(reason) = errors.report()
                {
                    let file = inode.id;
                    return Err(Error::DataLost { file, reason });
                }
            }
        }
        Ok(())
    }
}

impl Inode {
    /// Notes that the extents in `range` change. The caller holds the inode's lock.
    pub(crate) fn note_extents_changed(&self, range: Range<u64>) {
        let mut changed = self.changed_extents.lock();
        *changed = if changed.is_empty() {
            range
        } else {
            changed.start.min(range.start)..changed.end.max(range.end)
        };
    }

    /// Returns the span of changed extents, and clears it.
    pub(super) fn take_changed_extents(&self) -> Range<u64> {
        std::mem::take(&mut self.changed_extents.lock())
    }

    /// Returns whether it must stay in memory. The caller has made sure that no other thread uses it, so the
    /// lock is free.
    fn must_stay(&self) -> bool {
        self.lock
            .try_read()
            .is_none_or(|state| state.buffer.must_stay() || state.open_count > 0)
    }
}

impl Inodes {
    /// Returns the object of an inode that is about to be changed. `inode_flag_checks` checks for a read-only
    /// subvolume later, in the kernel's order.
    ///
    /// Errors: read-only volume; an empty subvolume directory; an inode of a deleted subvolume.
    pub(crate) fn inode_in_use(&self, id: FileId) -> Result<Arc<Inode>> {
        self.transactions()?;
        if id.is_empty_subvolume_dir() {
            return Err(Error::NotPermitted(id));
        }
        let inode = self.get(id)?;
        inode.tree.check_alive()?;
        if !inode.tree.is_read_only() {
            self.finish_orphans_once(&inode.tree)?;
        }
        Ok(inode)
    }

    /// Returns the object of an inode that is about to be changed, in a writable subvolume.
    pub(crate) fn inode_to_change(&self, id: FileId) -> Result<Arc<Inode>> {
        let inode = self.inode_in_use(id)?;
        inode.tree.check_writable()?;
        Ok(inode)
    }

    /// Joins the running transaction to change a subvolume, unless it was deleted or became read-only since
    /// its inode was looked up.
    pub(crate) fn join_to_change<'v>(
        &'v self,
        reservation: Reservation<'v>,
        tree: &Tree,
    ) -> Result<TransactionHandle<'v>> {
        let txn = self.join_transaction(reservation)?;
        tree.check_writable()?;
        Ok(txn)
    }
}

/// Guards of several locked inodes.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    guards: [Option<(FileId, RwLockWriteGuard<'a, InodeState>)>; MOST_LOCKED],
    len: usize,
}

/// The most inodes that a rename locks: two directories, and the inodes of both names.
const MOST_LOCKED: usize = 4;

impl<'a> Locked<'a> {
    /// Locks all of them in the order of INODE-2. Duplicates are locked once.
    pub(crate) fn all(inodes: impl IntoIterator<Item = &'a Arc<Inode>>) -> Result<Locked<'a>> {
        let mut ordered: [Option<&Arc<Inode>>; MOST_LOCKED] = [None; MOST_LOCKED];
        let mut len = 0;
        for inode in inodes {
            ordered[len] = Some(inode);
            len += 1;
        }
        ordered[..len].sort_unstable_by_key(|inode| inode.map(|inode| inode.id));
        let mut locked = Locked {
            guards: [const { None }; MOST_LOCKED],
            len: 0,
        };
        for inode in ordered.into_iter().flatten() {
            if !locked.holds(inode.id) {
                locked.push(inode.id, lock::write(&inode.lock)?);
            }
        }
        Ok(locked)
    }

    fn holds(&self, id: FileId) -> bool {
        self.guards.iter().flatten().any(|(held, _)| *held == id)
    }

    fn push(&mut self, id: FileId, guard: RwLockWriteGuard<'a, InodeState>) {
        self.guards[self.len] = Some((id, guard));
        self.len += 1;
    }

    /// Locks one more inode if its lock is free. If it returns false, release all and lock them together.
    #[must_use]
    pub(crate) fn try_add(&mut self, inode: &'a Arc<Inode>) -> bool {
        if self.holds(inode.id) {
            return true;
        }
        match inode.lock.try_write() {
            Some(guard) => {
                self.push(inode.id, guard);
                true
            }
            None => false,
        }
    }

    /// Returns the state of one of the locked inodes.
    pub(crate) fn state(&mut self, id: FileId) -> &mut InodeState {
        let mut guards = self.guards.iter_mut().flatten();
        let found = guards.find(|(locked, _)| *locked == id);
        &mut found.expect("only locked inodes are looked up").1
    }
}
