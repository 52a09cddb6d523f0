//! Opening for writing: what must hold before, and what a writable volume keeps in memory.

use std::sync::Arc;

use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::QgroupStatusItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;
use zerocopy::{FromZeros, IntoBytes};

use super::{OpenOptions, Volume};
use crate::error::Result;
use crate::space::{FreeSpaceSource, Space, SpaceParams, free_space_tree};
use crate::txn::{Balance, Cost, Writer, free_by_extents};

const QGROUP_STATUS_ON: u64 = 1 << 0;
const QGROUP_STATUS_INCONSISTENT: u64 = 1 << 2;

impl Volume {
    pub(super) fn make_writable(self: &Arc<Self>, options: &OpenOptions) -> Result<()> {
        self.roots.refuse_parity()?;
        let mut groups = Vec::new();
        self.for_each_block_group(&mut |group| groups.push(group))?;
        let extents = self.roots.device_extents()?;
        self.roots.check_mapping(&groups, &extents)?;
        let groups = groups
            .into_iter()
            .map(|group| (group.start, group.length, group.flags, group.used))
            .collect();
        let superblock = self.superblock();
        let extent_tree = self.tree(RootId::EXTENT_TREE)?.item().bytes_used.get();
        let space = Arc::new(Space::new(
            SpaceParams::of(&superblock, self.roots.chunk_tree_uuid()),
            groups,
            self.roots.device_spaces(&extents),
            Arc::clone(self.roots.pool()),
            self.free_space_source(options.clear_free_space_tree)?,
        ));
        if space.is_mixed() {
            space.set_metadata_used(self.roots.most_tree_bytes()?);
        }
        let writer = Writer::new(
            superblock.transid(),
            options.delta_bytes,
            Arc::clone(self.roots.lazy_times()),
            Balance::new(
                &space,
                u64::from(superblock.nodesize.get()),
                extent_tree,
                Arc::clone(self.roots.sharing()),
            ),
            space,
        );
        let _ = self.writer.set(Arc::new(writer));
        let has_tree = superblock.compat_ro().contains(CompatRo::FREE_SPACE_TREE);
        let makes_tree = match has_tree {
            true => options.clear_free_space_tree,
            false => options.free_space_tree,
        };
        if makes_tree {
            self.writer()?.clear_free_space_tree();
        } else if !has_tree {
            tracing::info!(
                "the volume has no free-space tree: what is free is read from the extent tree"
            );
        }
        self.distrust_quotas()?;
        self.roots.root_tree_object().note_objectids()?;
        if self.roots.has_deleted_subvolumes()? {
            self.writer()?.set_unclean();
        }
        if let Some(interval) = options.commit_interval {
            self.start_background(interval)?;
        }
        Ok(())
    }

    /// Says that the sums of quota groups are not to be relied on: they are not kept here.
    fn distrust_quotas(&self) -> Result<()> {
        let Some(tree) = self.find_tree(RootId::QUOTA_TREE)? else {
            return Ok(());
        };
        let key = Key::new(0, KeyType::QGROUP_STATUS, 0);
        let Some(item) = tree.view.get(&key)? else {
            return Ok(());
        };
        // Items of volumes without simple quotas end before the last field.
        let mut status = QgroupStatusItem::new_zeroed();
        let len = item.len().min(size_of::<QgroupStatusItem>());
        status.as_mut_bytes()[..len].copy_from_slice(&item[..len]);
        let flags = status.flags.get();
        if flags & QGROUP_STATUS_ON == 0 || flags & QGROUP_STATUS_INCONSISTENT != 0 {
            return Ok(());
        }
        tracing::warn!(
            "quotas are on: their sums are not kept, run a rescan on a mount by the kernel"
        );
        status.flags = (flags | QGROUP_STATUS_INCONSISTENT).into();
        // A full volume must be opened, so that something of it can be deleted.
        let permit = self.admit(Cost::items(1).freeing())?;
        self.enter(permit)?
            .put(&tree, key, &status.as_bytes()[..len]);
        Ok(())
    }

    fn free_space_source(&self, clears_tree: bool) -> Result<Arc<dyn FreeSpaceSource>> {
        let compat = self.superblock().compat_ro();
        let whole = CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID;
        if clears_tree || !compat.contains(whole) {
            // If a commit makes the tree, this does until the volume is closed.
            let tree = self.tree(RootId::EXTENT_TREE)?;
            return Ok(Arc::new(FreeByExtents {
                nodesize: u64::from(self.superblock().nodesize.get()),
                view: tree.live().committed_view(),
            }));
        }
        let tree = self.tree(RootId::FREE_SPACE_TREE)?;
        let superblock = self.superblock();
        Ok(Arc::new(CommittedFreeSpace {
            view: tree.live().committed_view(),
            sectorsize: superblock.sectorsize.get(),
        }))
    }
}

/// Free space where no tree says it.
struct FreeByExtents {
    nodesize: u64,
    view: View,
}

impl FreeSpaceSource for FreeByExtents {
    fn load(&self, start: Logical, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        free_by_extents(&self.view, self.nodesize, (start, len), each)
    }
}

/// Free space as the last commit left it.
struct CommittedFreeSpace {
    view: View,
    sectorsize: u32,
}

impl FreeSpaceSource for CommittedFreeSpace {
    fn load(&self, start: Logical, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        free_space_tree::free_ranges(&self.view, start, len, self.sectorsize, each)
    }
}
