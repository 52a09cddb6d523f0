//! The volume under check: its devices and where its trees begin, as the superblock or the options say.

use std::sync::Arc;

use ubtrfs_device::{DeviceSuperblocks, Pool};
use ubtrfs_format::check::{BlockContext, Expect, check_block};
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::node::Node;
use ubtrfs_format::superblock::{RootBackup, SUPERBLOCK_OFFSETS, Superblock};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_tree::{CommittedRoot, NodeStore, StoreOptions, View};

use crate::error::CheckError;
use crate::options::CheckOptions;
use crate::tree_root::TreeRoot;

pub(crate) struct CheckedVolume {
    pool: Arc<Pool>,
    superblock: Box<Superblock>,
    /// For what is sought rather than walked.
    store: Arc<NodeStore>,
    seed_fsids: Vec<Uuid>,
    chunk_root: TreeRoot,
    tree_root: TreeRoot,
    /// The roots are those that the superblock means today.
    is_current: bool,
}

impl CheckedVolume {
    pub(crate) fn new(pool: Pool, options: &CheckOptions) -> Result<CheckedVolume, CheckError> {
        let pool = Arc::new(pool);
        let superblock = chosen_superblock(&pool, options)?;
        let cache_bytes = options.memory_bytes / 8;
        let store_options = StoreOptions {
            cache_bytes,
            ..StoreOptions::default()
        };
        let store = Arc::new(NodeStore::new(Arc::clone(&pool), &store_options));
        let chunk_root = TreeRoot {
            tree: RootId::CHUNK_TREE,
            bytenr: Logical(superblock.chunk_root.get()),
            level: superblock.chunk_root_level,
            generation: Some(Transid(superblock.chunk_root_generation.get())),
            dropped: None,
        };
        let tree_root = TreeRoot {
            tree: RootId::ROOT_TREE,
            bytenr: Logical(superblock.root.get()),
            level: superblock.root_level,
            generation: Some(superblock.transid()),
            dropped: None,
        };
        let mut volume = CheckedVolume {
            seed_fsids: pool.seed_fsids(),
            pool,
            superblock,
            store,
            chunk_root,
            tree_root,
            is_current: true,
        };
        volume.override_roots(options)?;
        Ok(volume)
    }

    fn override_roots(&mut self, options: &CheckOptions) -> Result<(), CheckError> {
        if options.backup_root {
            let backup = newest_backup(&self.superblock).ok_or(CheckError::NoBackupRoot)?;
            self.tree_root.bytenr = Logical(backup.tree_root.get());
            self.tree_root.level = backup.tree_root_level;
            self.tree_root.generation = Some(Transid(backup.tree_root_gen.get()));
            self.chunk_root.bytenr = Logical(backup.chunk_root.get());
            self.chunk_root.level = backup.chunk_root_level;
            self.chunk_root.generation = Some(Transid(backup.chunk_root_gen.get()));
            self.is_current = self.tree_root.bytenr.0 == self.superblock.root.get();
        }
        if let Some(bytenr) = options.chunk_root {
            self.chunk_root = self.root_at(RootId::CHUNK_TREE, bytenr)?;
            self.is_current = false;
        }
        if let Some(bytenr) = options.tree_root {
            self.tree_root.bytenr = bytenr;
            self.is_current = false;
        }
        Ok(())
    }

    /// The root tree may be in a chunk that only the chunk tree names.
    pub(crate) fn choose_tree_root(&mut self, options: &CheckOptions) -> Result<(), CheckError> {
        self.seed_fsids = self.pool.seed_fsids();
        self.store.adopt_seeds();
        if let Some(bytenr) = options.tree_root {
            self.tree_root = self.root_at(RootId::ROOT_TREE, bytenr)?;
        }
        Ok(())
    }

    /// A root of which only the place is known.
    fn root_at(&self, tree: RootId, bytenr: Logical) -> Result<TreeRoot, CheckError> {
        let mut block = vec![0; self.nodesize()];
        let expect = Expect {
            owner: Some(tree),
            ..Expect::at(bytenr)
        };
        let context = self.context();
        let read = self
            .pool
            .read_checked(bytenr, &mut block, self.nodesize(), &mut |_, block| {
                check_block(block, &context, &expect).is_ok()
            });
        let is_aligned = bytenr.0.is_multiple_of(u64::from(self.sectorsize()));
        match Node::new(&block).filter(|_| read.is_ok() && is_aligned) {
            Some(node) => Ok(TreeRoot {
                tree,
                bytenr,
                level: node.level(),
                generation: Some(node.generation()),
                dropped: None,
            }),
            None => Err(CheckError::NoTreeRoot { bytenr: bytenr.0 }),
        }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub(crate) fn nodesize(&self) -> usize {
        self.superblock.nodesize.get() as usize
    }

    pub(crate) fn sectorsize(&self) -> u32 {
        self.superblock.sectorsize.get()
    }

    /// What all blocks of the volume have in common.
    pub(crate) fn context(&self) -> BlockContext<'_> {
        BlockContext {
            seed_fsids: &self.seed_fsids,
            ..BlockContext::new(&self.superblock)
        }
    }

    pub(crate) fn chunk_root(&self) -> TreeRoot {
        self.chunk_root
    }

    pub(crate) fn tree_root(&self) -> TreeRoot {
        self.tree_root
    }

    /// False if the trees are older ones, to which the superblock's sums do not apply.
    pub(crate) fn is_current(&self) -> bool {
        self.is_current
    }

    /// A tree in which single items are sought.
    pub(crate) fn view(&self, root: &TreeRoot) -> View {
        let committed = CommittedRoot {
            tree: root.tree,
            bytenr: root.bytenr,
            level: root.level,
            generation: root.generation,
        };
        View::new(Arc::clone(&self.store), committed)
    }
}

fn chosen_superblock(pool: &Pool, options: &CheckOptions) -> Result<Box<Superblock>, CheckError> {
    let Some(mirror) = options.superblock_copy else {
        return Ok(Box::new(pool.superblock().clone()));
    };
    let missing = CheckError::NoSuperblockCopy { mirror };
    let Some(&offset) = SUPERBLOCK_OFFSETS.get(mirror) else {
        return Err(missing);
    };
    let devices = pool.devices();
    let first = devices.iter().find(|device| !device.is_missing());
    let Some(device) = first.and_then(|info| pool.device(info.devid)) else {
        return Err(missing);
    };
    let copies = DeviceSuperblocks::read(device.as_ref()).copies;
    let copy = copies.into_iter().find(|copy| copy.mirror == mirror);
    let block = copy.and_then(|copy| copy.block).ok_or(missing)?;
    block
        .validate(offset)
        .and_then(|()| block.check_supported())
        .map_err(|source| CheckError::SuperblockCopy { mirror, source })?;
    Ok(block)
}

/// The one with the highest generation whose fields are sane.
fn newest_backup(superblock: &Superblock) -> Option<&RootBackup> {
    let sectorsize = u64::from(superblock.sectorsize.get());
    let sane = |backup: &&RootBackup| {
        let (root, chunk) = (backup.tree_root.get(), backup.chunk_root.get());
        root != 0
            && root.is_multiple_of(sectorsize)
            && chunk.is_multiple_of(sectorsize)
            && backup.tree_root_level <= ubtrfs_format::superblock::MAX_LEVEL
            && backup.chunk_root_level <= ubtrfs_format::superblock::MAX_LEVEL
            && backup.tree_root_gen.get() <= superblock.generation.get()
    };
    let backups = superblock.super_roots.iter().filter(sane);
    backups.max_by_key(|backup| backup.tree_root_gen.get())
}
