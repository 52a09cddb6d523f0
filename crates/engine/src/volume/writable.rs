//! Opening for writing: what must hold before, and what a writable volume keeps in memory.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ubtrfs_device::MappedChunk;
use ubtrfs_device::chunk_layout::DeviceSpace;
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::ids::{DevId, Logical, RootId, Transid, objectid};
use ubtrfs_format::item::{QgroupStatusItem, RootItem, Timespec};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::ITEM_HEAD_SIZE;
use ubtrfs_format::superblock::{Superblock, flags};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_tree::{BlockFormat, CommittedRoot, View};
use zerocopy::{FromZeros, IntoBytes};

use super::mapping::PlacedExtent;
use super::{OpenOptions, Tree, Volume, open_tree};
use crate::error::{Error, Result};
use crate::space::{FreeSpaceSource, Space, SpaceParams, free_space_tree};
use crate::txn::{Balance, Cost, Writer, free_by_extents};

const QGROUP_STATUS_ON: u64 = 1 << 0;
const QGROUP_STATUS_INCONSISTENT: u64 = 1 << 2;

/// Refuses by name what this code reads but does not keep true when writing.
pub(super) fn check_writable(sb: &Superblock) -> Result<()> {
    let refuse = |why: String| Err(Error::Unwritable(why));
    let unknown = sb.read_only_features();
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        return refuse(format!("it uses {}", names.join(", ")));
    }
    if sb.incompat().contains(Incompat::SIMPLE_QUOTA) {
        return refuse("it uses squota".to_owned());
    }
    let changing = flags::CHANGING_FSID
        | flags::CHANGING_FSID_V2
        | flags::CHANGING_BG_TREE
        | flags::CHANGING_DATA_CSUM
        | flags::CHANGING_META_CSUM;
    if sb.flags.get() & changing != 0 {
        return refuse("a conversion of it was broken off".to_owned());
    }
    if sb.flags.get() & flags::SEEDING != 0 {
        return Err(Error::Seed);
    }
    if sb.flags.get() & (flags::METADUMP | flags::METADUMP_V2) != 0 {
        return refuse("it is a dump of metadata".to_owned());
    }
    if sb.log_root.get() != 0 {
        return Err(Error::LogTree);
    }
    Ok(())
}

/// The time for items, to the nanosecond.
pub(crate) fn now() -> Timespec {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timespec {
        sec: (since.as_secs() as i64).into(),
        nsec: since.subsec_nanos().into(),
    }
}

impl Volume {
    pub(super) fn make_writable(self: &Arc<Self>, options: &OpenOptions) -> Result<()> {
        self.refuse_parity()?;
        let root = self.root_tree.view.read_root()?;
        let chunk_tree_uuid = root.node().header().chunk_tree_uuid;
        let _ = self.chunk_tree_uuid.set(chunk_tree_uuid);
        let mut groups = Vec::new();
        self.for_each_block_group(&mut |group| groups.push(group))?;
        let extents = self.device_extents()?;
        self.check_mapping(&groups, &extents)?;
        let groups = groups
            .into_iter()
            .map(|group| (group.start, group.length, group.flags, group.used))
            .collect();
        let superblock = self.superblock();
        let extent_tree = self.tree(RootId::EXTENT_TREE)?.item().bytes_used.get();
        let space = Arc::new(Space::new(
            SpaceParams::of(&superblock, chunk_tree_uuid),
            groups,
            self.device_spaces(&extents),
            Arc::clone(&self.pool),
            self.free_space_source(options.clear_free_space_tree)?,
        ));
        if space.is_mixed() {
            space.set_metadata_used(self.most_tree_bytes()?);
        }
        let writer = Writer::new(
            superblock.transid(),
            options.delta_bytes,
            Arc::clone(&self.tree_use.inode_items.lazy),
            Balance::new(
                &space,
                u64::from(superblock.nodesize.get()),
                extent_tree,
                Arc::clone(&self.tree_use.sharing),
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
        self.root_tree.note_objectids()?;
        if self.has_deleted_subvolumes()? {
            self.writer()?.set_unclean();
        }
        if let Some(interval) = options.commit_interval {
            self.start_background(interval)?;
        }
        Ok(())
    }

    /// What all trees take at most: blocks that snapshots share count once for each. Mixed block groups do not tell.
    fn most_tree_bytes(&self) -> Result<u64> {
        const ROOT_TREE_BLOCKS: u64 = 16;
        let nodesize = u64::from(self.superblock().nodesize.get());
        // The root tree has no item: its blocks are half full at least.
        let mut bytes = ROOT_TREE_BLOCKS * nodesize;
        let mut cursor = self.root_tree.view.cursor().sequential();
        let mut more = cursor.seek(&Key::new(0, KeyType(0), 0))?;
        while more && let Some((key, value)) = cursor.current() {
            bytes = bytes.saturating_add(2 * (ITEM_HEAD_SIZE + value.len()) as u64);
            if key.item_type == KeyType::ROOT_ITEM
                && let Some(item) = RootItem::decode(value)
            {
                bytes = bytes.saturating_add(item.bytes_used.get());
            }
            more = cursor.advance()?;
        }
        Ok(bytes)
    }

    fn refuse_parity(&self) -> Result<()> {
        let chunks = self.pool.chunk_map().all();
        match chunks.iter().find(|chunk| MappedChunk::has_parity(chunk)) {
            None => Ok(()),
            Some(chunk) => Err(Error::Unwritable(format!(
                "chunk {} is {}, which is only read",
                chunk.logical(),
                chunk.profile().name()
            ))),
        }
    }

    fn device_spaces(&self, extents: &[PlacedExtent]) -> Vec<DeviceSpace> {
        let (items, superblock) = (self.pool.dev_items(), self.superblock());
        let own = |fsid: &Uuid| fsid == superblock.metadata_fsid();
        let of = |devid: u64| extents.iter().filter(move |extent| extent.devid.0 == devid);
        items
            .iter()
            .filter(|item| own(&item.fsid))
            .map(|item| DeviceSpace {
                devid: DevId(item.devid.get()),
                uuid: item.uuid,
                total_bytes: item.total_bytes.get(),
                extents: of(item.devid.get())
                    .map(|extent| (extent.physical, extent.len))
                    .collect(),
            })
            .collect()
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

    /// Subvolumes that wait to be freed are named by orphan items of the root tree.
    fn has_deleted_subvolumes(&self) -> Result<bool> {
        let view = self.root_tree();
        let mut cursor = view.cursor();
        let first = Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, 0);
        if !cursor.seek(&first)? {
            return Ok(false);
        }
        let key = cursor
            .current()
            .map(|(key, _)| (key.objectid, key.item_type));
        Ok(key == Some((first.objectid, first.item_type)))
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

    /// A tree for the commit: also those that the superblock names.
    pub(crate) fn tree_for_commit(&self, id: RootId) -> Result<Arc<Tree>> {
        match id {
            RootId::ROOT_TREE => Ok(Arc::clone(&self.root_tree)),
            RootId::CHUNK_TREE => Ok(Arc::clone(&self.chunk_tree)),
            _ => self.tree(id),
        }
    }

    /// Has the volume know a tree that a commit has just built and that no root item names yet.
    pub(crate) fn adopt_tree(&self, root: CommittedRoot, item: RootItem) -> Arc<Tree> {
        let tree = open_tree(&self.store, root, &self.tree_use, 0, Some(item));
        self.trees.get_or_insert(tree, u64::MAX)
    }

    /// What the blocks of a transaction have in common.
    pub(crate) fn block_format(&self, generation: Transid) -> BlockFormat {
        let superblock = self.superblock();
        BlockFormat {
            nodesize: superblock.nodesize.get() as usize,
            fsid: *superblock.metadata_fsid(),
            chunk_tree_uuid: self.chunk_tree_uuid.get().copied().unwrap_or_default(),
            generation,
        }
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
