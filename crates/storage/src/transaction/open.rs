//! Opening a volume for writing: its preconditions, and its initial state in memory.

use std::sync::Arc;

use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::QgroupStatusItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;
use zerocopy::{FromZeros, IntoBytes};

use super::commit::free_by_extents;
use super::manager::TransactionManager;
use super::replace::refuse_unfinished;
use super::reservation::EditEstimate;
use crate::discard::DiscardOptions;
use crate::error::Result;
use crate::roots::Roots;
use crate::space::{DeviceSet, FreeSpaceSource, Space, SpaceParams, UsedExtent, free_space_tree};

const QGROUP_STATUS_ON: u64 = 1 << 0;
const QGROUP_STATUS_INCONSISTENT: u64 = 1 << 2;

/// Options for write access to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionOptions {
    /// Memory limit for the changes of one transaction, in bytes.
    pub delta_bytes: u64,
    /// Distrust the free-space tree, and rebuild it.
    pub clear_free_space_tree: bool,
    /// Create a free-space tree if there is none.
    pub free_space_tree: bool,
    pub discard: DiscardOptions,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions {
            delta_bytes: 128 << 20,
            clear_free_space_tree: false,
            free_space_tree: false,
            discard: DiscardOptions::default(),
        }
    }
}

impl TransactionManager {
    /// Makes the trees of `roots` writable.
    ///
    /// Errors: marks of a maker in the root tree; chunks with parity, or an inconsistent mapping; a tree that cannot be
    /// read.
    pub fn open(roots: &Arc<Roots>, options: &TransactionOptions) -> Result<TransactionManager> {
        roots.refuse_marked_roots()?;
        roots.refuse_parity()?;
        roots.refuse_moved_roots()?;
        refuse_unfinished(roots)?;
        let manager = TransactionManager::new(
            Arc::clone(roots),
            options.delta_bytes,
            Arc::new(open_space(roots, options.clear_free_space_tree)?),
            &options.discard,
        )?;
        let superblock = roots.superblock();
        let has_tree = superblock.compat_ro().contains(CompatRo::FREE_SPACE_TREE);
        let makes_tree = if has_tree {
            options.clear_free_space_tree
        } else {
            options.free_space_tree
        };
        if makes_tree {
            manager.cleaner.clear_free_space_tree();
        } else if !has_tree {
            tracing::info!(
                "the volume has no free-space tree: free space is read from the extent tree"
            );
        }
        manager.mark_qgroups_inconsistent()?;
        roots.root_tree_object().note_objectids()?;
        if roots.has_deleted_subvolumes()? {
            manager.cleaner.wake();
        }
        roots.pool().allow_mirror_repair();
        Ok(manager)
    }

    /// Marks quota groups as inconsistent, because this code does not maintain their sums.
    fn mark_qgroups_inconsistent(&self) -> Result<()> {
        let Some(tree) = self.roots.find_tree(RootId::QUOTA_TREE)? else {
            return Ok(());
        };
        let key = Key::new(0, KeyType::QGROUP_STATUS, 0);
        let Some(item) = tree.view.get(&key)? else {
            return Ok(());
        };
        // Items of volumes without simple quotas lack the last field.
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
        // `freeing`, because a full volume must be writable so that files can be deleted.
        let reservation = self.reserve_metadata(
            RootId::QUOTA_TREE,
            EditEstimate::items(1).with_global_reserve(),
        )?;
        self.join_transaction(reservation)?
            .put(&tree, key, &status.as_bytes()[..len]);
        Ok(())
    }
}

/// Reads the block groups, and checks them against chunks and device extents.
fn open_space(roots: &Roots, clears_tree: bool) -> Result<Space> {
    let mut groups = Vec::new();
    roots.for_each_block_group(&mut |group| groups.push(group))?;
    let extents = roots.device_extents()?;
    roots.check_mapping(&groups, &extents)?;
    let groups = groups
        .into_iter()
        .map(|group| (group.start, group.length, group.flags, group.used))
        .collect();
    let extents: Vec<UsedExtent> = extents
        .iter()
        .map(|extent| (extent.devid, extent.physical, extent.len))
        .collect();
    let space = Space::new(
        SpaceParams::of(&roots.superblock(), roots.chunk_tree_uuid()),
        groups,
        DeviceSet::new(roots.pool(), &extents),
        Arc::clone(roots.pool()),
        free_space_source(roots, clears_tree)?,
    );
    if space.is_mixed() {
        space.set_metadata_used(roots.most_tree_bytes()?);
    }
    Ok(space)
}

fn free_space_source(roots: &Roots, clears_tree: bool) -> Result<Arc<dyn FreeSpaceSource>> {
    let compat = roots.superblock().compat_ro();
    let whole = CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID;
    if clears_tree || !compat.contains(whole) {
        // Used until the volume is closed, even if a commit creates the tree.
        let tree = roots.tree(RootId::EXTENT_TREE)?;
        return Ok(Arc::new(FreeByExtents {
            nodesize: u64::from(roots.superblock().nodesize.get()),
            view: tree.live().committed_view(),
        }));
    }
    let tree = roots.tree(RootId::FREE_SPACE_TREE)?;
    let superblock = roots.superblock();
    Ok(Arc::new(CommittedFreeSpace {
        view: tree.live().committed_view(),
        sectorsize: superblock.sectorsize.get(),
    }))
}

/// Free space computed from the extent tree, on a volume without a valid free-space tree.
struct FreeByExtents {
    nodesize: u64,
    view: View,
}

impl FreeSpaceSource for FreeByExtents {
    fn load(&self, start: Logical, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        free_by_extents(&self.view, self.nodesize, (start, len), each)
    }
}

/// Free space in the free-space tree as of the last commit.
struct CommittedFreeSpace {
    view: View,
    sectorsize: u32,
}

impl FreeSpaceSource for CommittedFreeSpace {
    fn load(&self, start: Logical, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        free_space_tree::free_ranges(&self.view, start, len, self.sectorsize, each)
    }
}
