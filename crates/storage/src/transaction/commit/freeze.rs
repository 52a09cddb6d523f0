//! The freeze: the edits of the running transaction become immutable, and the next transaction begins.
//!
//! The guard is held only for pointer swaps, one for each edited tree.

use std::collections::BTreeMap;

use ubtrfs_format::ids::Transid;

use super::blocks::Blocks;
use super::{Commit, CommitTree};
use crate::error::Result;
use crate::transaction::manager::TransactionManager;
use crate::transaction::relocation::RelocationBatch;
use crate::transaction::running::RunningTransaction;

impl<'v> Commit<'v> {
    /// Freezes the running transaction and begins its commit. Returns None if there is nothing to commit.
    ///
    /// With extents to move there is something to commit.
    pub(super) fn freeze(
        manager: &'v TransactionManager,
        relocation: Option<&'v RelocationBatch>,
    ) -> Result<Option<Commit<'v>>> {
        let (old, trees, needs_cleaner, roots_in_use) = {
            // RUN-2
            let mut running = manager.running.write();
            let needs_cleaner = manager.cleaner.take_request();
            if running.running().is_empty() && !needs_cleaner && relocation.is_none() {
                drop(running);
                // Wake waiting threads even without a freeze: there is nothing to wait for.
                manager.threads.notify_frozen();
                return Ok(None);
            }
            let next = RunningTransaction::new(Transid(running.running().transid.0 + 1));
            let old = running.replace(next);
            // Operations must not join before this. Otherwise a sum of the reservations could miss the frozen edits
            // (RESERVATION-1).
            manager.reservations.freeze(old.counts());
            manager.logs.freeze();
            let dirty = std::mem::take(&mut *old.dirty.lock());
            let trees: Vec<CommitTree> = dirty
                .into_iter()
                .map(|tree| CommitTree {
                    frozen: tree.live().freeze(),
                    item_is_stale: true,
                    ..CommitTree::unchanged(tree)
                })
                .collect();
            let roots_in_use = if needs_cleaner {
                manager.roots.subvolumes_in_use()
            } else {
                Vec::new()
            };
            (old, trees, needs_cleaner, roots_in_use)
        };
        manager.threads.notify_frozen();
        let transid = old.transid;
        let refs = std::mem::take(&mut *old.refs.lock());
        let pending_subvolumes = std::mem::take(&mut *old.pending_subvolumes.lock());
        let uuids = std::mem::take(&mut *old.uuids.lock());
        let edits = std::mem::take(&mut *old.superblock.lock());
        tracing::debug!(%transid, trees = trees.len(), edits = old.edits(), bytes = old.bytes(), "freeze");
        Ok(Some(Commit {
            roots: &manager.roots,
            manager,
            transid,
            counts: old.counts(),
            trees: trees
                .into_iter()
                .map(|tree| (tree.tree.id(), tree))
                .collect(),
            pending_subvolumes,
            uuids,
            blocks: Blocks::new(manager, transid, refs),
            groups: BTreeMap::new(),
            freed_data: Vec::new(),
            changed_inodes: Vec::new(),
            dropped_roots: Vec::new(),
            removed_groups: Vec::new(),
            needs_cleaner,
            relocation,
            roots_in_use,
            rebuilt: false,
            edits,
            new_system_chunks: Vec::new(),
            removed_system_chunks: Vec::new(),
        }))
    }
}
