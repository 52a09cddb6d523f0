//! The volume under check: its devices, and its tree roots according to the superblock or the options.

use std::cmp::Reverse;
use std::sync::Arc;

use ubtrfs_device::{DeviceSuperblocks, Pool};
use ubtrfs_format::check::{BlockContext, Expect, check_block};
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::node::Node;
use ubtrfs_format::superblock::{MAX_LEVEL, RootBackup, SUPERBLOCK_OFFSETS, Superblock, flags};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_tree::{CommittedRoot, NodeStore, StoreOptions, View};

use crate::error::CheckError;
use crate::options::CheckOptions;
use crate::tree_root::TreeRoot;

pub(crate) struct CheckedVolume {
    pool: Arc<Pool>,
    superblock: Box<Superblock>,
    /// For individual look-ups, as opposed to walks.
    store: Arc<NodeStore>,
    seed_fsids: Vec<Uuid>,
    chunk_root: TreeRoot,
    tree_root: TreeRoot,
    /// Alternative roots, the best first; empty unless the options request a backup root.
    backups: Vec<RootBackup>,
    /// Whether the roots are the superblock's current ones.
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
            backups: Vec::new(),
            is_current: true,
        };
        volume.override_roots(options)?;
        Ok(volume)
    }

    fn override_roots(&mut self, options: &CheckOptions) -> Result<(), CheckError> {
        if options.backup_root {
            self.backups = sane_backups(&self.superblock);
            let mut roots = self.backups.iter().map(backup_chunk_root);
            let readable = roots.find(|root| self.is_readable(root));
            self.chunk_root = readable.ok_or(CheckError::NoBackupRoot)?;
        }
        if let Some(bytenr) = options.chunk_root {
            self.chunk_root = self.root_at(RootId::CHUNK_TREE, bytenr)?;
            self.is_current = false;
        }
        if options.tree_root.is_some() {
            self.is_current = false;
        }
        Ok(())
    }

    /// Chooses the root tree, which may be in a chunk that is only in the chunk tree.
    pub(crate) fn choose_tree_root(&mut self, options: &CheckOptions) -> Result<(), CheckError> {
        self.seed_fsids = self.pool.seed_fsids();
        self.store.adopt_seeds();
        if let Some(bytenr) = options.tree_root {
            self.tree_root = self.root_at(RootId::ROOT_TREE, bytenr)?;
        } else if options.backup_root {
            self.tree_root = self.backup_tree_root().ok_or(CheckError::NoBackupRoot)?;
            self.is_current &= self.tree_root.bytenr.0 == self.superblock.root.get();
        }
        Ok(())
    }

    /// Finds a readable root tree among the backups. Backups with the loaded chunk tree are tried first, because
    /// others may need different chunks.
    fn backup_tree_root(&self) -> Option<TreeRoot> {
        let is_of_chunk_root = |backup: &&RootBackup| backup_chunk_root(backup) == self.chunk_root;
        let (first, then): (Vec<_>, Vec<_>) = self.backups.iter().partition(is_of_chunk_root);
        let mut roots = first.into_iter().chain(then).map(|backup| TreeRoot {
            tree: RootId::ROOT_TREE,
            bytenr: Logical(backup.tree_root.get()),
            level: backup.tree_root_level,
            generation: Some(Transid(backup.tree_root_gen.get())),
            dropped: None,
        });
        roots.find(|root| self.is_readable(root))
    }

    /// Returns whether the expected block is readable.
    fn is_readable(&self, root: &TreeRoot) -> bool {
        let expect = Expect {
            owner: Some(root.tree),
            level: Some(root.level),
            generation: root.generation,
            ..Expect::at(root.bytenr)
        };
        self.read_block(&expect).is_some()
    }

    /// Reads a root by its address alone.
    fn root_at(&self, tree: RootId, bytenr: Logical) -> Result<TreeRoot, CheckError> {
        let expect = Expect {
            owner: Some(tree),
            ..Expect::at(bytenr)
        };
        let block = self.read_block(&expect);
        match block.as_deref().and_then(Node::new) {
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

    /// Reads a block. Returns None if no mirror has a valid block with the expected properties.
    fn read_block(&self, expect: &Expect) -> Option<Vec<u8>> {
        let is_aligned = expect.bytenr.0.is_multiple_of(u64::from(self.sectorsize()));
        let mut block = vec![0; self.nodesize()];
        let context = self.context();
        let read = self.pool.read_checked(
            expect.bytenr,
            &mut block,
            self.nodesize(),
            &mut |_, block| check_block(block, &context, expect).is_ok(),
        );
        (is_aligned && read.is_ok()).then_some(block)
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

    /// Returns the properties that all blocks of the volume share.
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

    /// Returns whether the volume was restored from a metadata dump, which has no data.
    pub(crate) fn is_dump(&self) -> bool {
        self.superblock.flags.get() & (flags::METADUMP | flags::METADUMP_V2) != 0
    }

    /// Returns whether the trees are the superblock's current ones. Its totals do not apply to older trees.
    pub(crate) fn is_current(&self) -> bool {
        self.is_current
    }

    /// Returns a view of a tree for individual look-ups.
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

/// Returns the backups with plausible fields. Backups of the current roots are last, because these need no backup. The
/// others are sorted from new to old. `btrfs check -b` uses the first of these.
fn sane_backups(superblock: &Superblock) -> Vec<RootBackup> {
    let sectorsize = u64::from(superblock.sectorsize.get());
    let newest = superblock.generation.get();
    let sane = |backup: &&RootBackup| {
        let (root, chunk) = (backup.tree_root.get(), backup.chunk_root.get());
        root != 0
            && root.is_multiple_of(sectorsize)
            && chunk.is_multiple_of(sectorsize)
            && backup.tree_root_level <= MAX_LEVEL
            && backup.chunk_root_level <= MAX_LEVEL
            && backup.tree_root_gen.get() <= newest
    };
    let mut backups: Vec<_> = superblock
        .super_roots
        .iter()
        .filter(sane)
        .cloned()
        .collect();
    backups.sort_by_key(|backup| {
        let generation = backup.tree_root_gen.get();
        (generation == newest, Reverse(generation))
    });
    backups
}

fn backup_chunk_root(backup: &RootBackup) -> TreeRoot {
    TreeRoot {
        tree: RootId::CHUNK_TREE,
        bytenr: Logical(backup.chunk_root.get()),
        level: backup.chunk_root_level,
        generation: Some(Transid(backup.chunk_root_gen.get())),
        dropped: None,
    }
}
