//! Publication of a durable commit: readers see its roots, and freed space is queued for reuse.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::superblock::Superblock;

use super::Commit;

impl Commit<'_> {
    pub(super) fn publish(self, superblock: Superblock) {
        let Commit {
            roots,
            manager,
            transid,
            trees,
            changed_inodes,
            dropped_roots,
            removed_groups,
            ..
        } = self;
        let nodesize = u64::from(superblock.nodesize.get());
        let extent_tree = trees.get(&RootId::EXTENT_TREE);
        let extent_tree = extent_tree.map(|tree| tree.bytes_used(nodesize));
        for tree in trees.into_values() {
            tree.tree.change_item(|item| {
                item.bytenr = tree.root.bytenr.0.into();
                item.level = tree.root.level;
                item.generation = tree.root.generation.unwrap_or_default().0.into();
                item.generation_v2 = item.generation;
                item.bytes_used = tree.bytes_used(nodesize).into();
                item.last_snapshot = tree.item.last_snapshot;
                item.drop_progress = tree.item.drop_progress;
                item.drop_level = tree.item.drop_level;
                if tree.item.ctransid.get() > item.ctransid.get() {
                    item.ctransid = tree.item.ctransid;
                    item.ctime = tree.item.ctime;
                }
            });
            tree.tree.live().publish(tree.root);
            if let Some(frozen) = tree.frozen {
                manager.retired_sets.push(frozen);
            }
        }
        for (tree, ino) in changed_inodes {
            tree.inode_items.forget(tree.id(), ino);
        }
        for id in dropped_roots {
            roots.forget_tree(id);
        }
        roots.publish_superblock(superblock);
        manager.reservations.publish(extent_tree);
        manager.note_commit(transid);
        manager.shared_extents.forget(transid);
        // After the roots: a reader that takes the new epoch sees the new roots.
        let epoch = roots.node_store().next_epoch();
        // Discard first: after `free_device_space`, a new chunk may use the space.
        for removed in &removed_groups {
            manager.discard.discard_removed(removed);
            manager.space.free_device_space(removed);
        }
        // Pins the places of the logs, so it must precede `take_pinned`.
        manager.logs.end(&manager.space, nodesize);
        let pinned = manager.space.take_pinned();
        manager.pinned_by_epoch.lock().push(epoch, pinned);
        manager.release_freed();
        manager.shrink_reservation();
    }
}
