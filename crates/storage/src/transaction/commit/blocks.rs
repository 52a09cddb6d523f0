//! Tree blocks in a commit: the places of new blocks, and the references of replaced blocks.
//!
//! A tree drops each block that it replaces (`drop_block`): the block loses the tree's reference. If other trees share
//! the block, the references of its children are adjusted first, by the kernel's rule. Parents are dropped before their
//! children, so the count of a child is final when the child is dropped.
//!
//! A block that this commit created and that no snapshot shares is not dropped. Its place is reused for the next block
//! of the same tree and level. Later rounds of the same change therefore need no space and change no reference.
//!
//! Invariants
//! - BLOCKS-1: a place in `spare` has a reference of its tree, in the extent tree or pending. A block that reuses the
//!   place inherits the reference.
//! - BLOCKS-2: the count of a block in the extent tree equals the number of trees and shared blocks that point to it.
//! - BLOCKS-3: staged blocks that wait to be written stay within the store's budget, however many leaves one batch of
//!   changes touches. The names of one directory, for example, are spread over all of its leaves.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ubtrfs_format::check::Expect;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{InodeNr, Logical, RootId, Transid};
use ubtrfs_format::item::{ExtentFlags, FileExtent, decode_extent};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::header_flags;
use ubtrfs_tree::{
    ApplyIo, Block, BlockFormat, BlockSink, CommittedRoot, NodeStore, TreeBlock, View,
};

use crate::error::{CorruptItem, Error, RefKey, Result};
use crate::roots::Roots;
use crate::space::BlockKind;
use crate::transaction::delayed_refs::DelayedRefs;
use crate::transaction::manager::TransactionManager;

/// State shared by all trees of a commit.
pub(super) struct Blocks<'v> {
    store: Arc<NodeStore>,
    roots: &'v Roots,
    manager: &'v TransactionManager,
    pub(super) transid: Transid,
    pub(super) refs: DelayedRefs,
    /// The extent tree for lookups of shared blocks.
    pub(super) extent_root: CommittedRoot,
    /// Places of replaced blocks of this commit, oldest first (BLOCKS-1).
    spare: HashMap<(RootId, u8), VecDeque<Logical>>,
    /// Allocated places whose block has not been emitted yet.
    allocated: HashSet<Logical>,
    nodesize: u64,
    skinny: bool,
}

/// The reference count of a block, and the kind of its references to its children.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing {
    pub(super) refs: u64,
    pub(super) full_backref: bool,
}

impl<'v> Blocks<'v> {
    pub(super) fn new(
        manager: &'v TransactionManager,
        transid: Transid,
        refs: DelayedRefs,
    ) -> Blocks<'v> {
        let roots = &*manager.roots;
        let superblock = roots.superblock();
        // `Commit::apply` replaces it before the first lookup.
        let placeholder = roots.root_tree().committed();
        Blocks {
            store: Arc::clone(roots.node_store()),
            roots,
            manager,
            transid,
            refs,
            extent_root: placeholder,
            spare: HashMap::new(),
            allocated: HashSet::new(),
            nodesize: u64::from(superblock.nodesize.get()),
            skinny: superblock.incompat().contains(Incompat::SKINNY_METADATA),
        }
    }

    /// Drops the places that no block has reused. Returns true if there were any.
    pub(super) fn drop_spare(&mut self) -> bool {
        let spare = std::mem::take(&mut self.spare);
        let mut any = false;
        for ((tree, level), places) in spare {
            for place in places {
                any = true;
                self.store.unstage(place);
                let key = RefKey::TreeRoot(tree);
                self.refs.change(place, self.nodesize, key, -1, Some(level));
            }
        }
        any
    }

    /// Stages a block (BLOCKS-3). A block that was written early and changes again is written again.
    pub(super) fn stage(&mut self, block: TreeBlock) -> Result<Block> {
        // COMMIT-4
        let block = self.store.stage(block)?;
        if self.store.is_over_staged_budget() {
            self.write_staged()?;
        }
        Ok(block)
    }

    /// Allocates a place for a block of `tree`.
    pub(super) fn allocate(&mut self, tree: RootId) -> Result<Logical> {
        let kind = match tree {
            RootId::CHUNK_TREE => BlockKind::System,
            _ => BlockKind::Metadata,
        };
        let space = &self.manager.space;
        let place = space.allocate_block(kind, self.transid)?;
        // A reused place was charged when it was allocated.
        if kind == BlockKind::Metadata {
            self.manager.reservations.charge_block();
        }
        Ok(place)
    }

    /// Writes all staged blocks in address order.
    pub(super) fn write_staged(&mut self) -> Result<()> {
        let staged = self.store.staged();
        let written = {
            let parts = staged
                .iter()
                .map(|block| (block.node().bytenr(), block.bytes()));
            super::output::write(parts, |writes| self.roots.pool().write(writes))?
        };
        let counter = &self.manager.counters.node_bytes;
        counter.fetch_add(written, Ordering::Relaxed);
        self.store.cache_written(&staged);
        Ok(())
    }

    pub(super) fn sharing(&self, bytenr: Logical, level: u8) -> Result<Sharing> {
        let mut sharing = Sharing {
            refs: 0,
            full_backref: false,
        };
        let pending = self.refs.pending(bytenr);
        // A new block has no item yet: all of its references are pending.
        if pending.is_none_or(|pending| !pending.is_new) {
            sharing = self.stored_sharing(bytenr, level)?;
        }
        if let Some(pending) = pending {
            sharing.refs = sharing.refs.saturating_add_signed(pending.refs);
            sharing.full_backref |= pending.full_backref;
        }
        if sharing.refs == 0 {
            return Err(Error::Corrupt {
                tree: RootId::EXTENT_TREE,
                key: Key::new(bytenr.0, KeyType::METADATA_ITEM, u64::from(level)),
                what: CorruptItem::Unreferenced,
            });
        }
        Ok(sharing)
    }

    pub(super) fn drop_block_ref(&mut self, bytenr: Logical, held_by: RefKey, level: u8) {
        self.refs
            .change(bytenr, self.nodesize, held_by, -1, Some(level));
    }

    fn stored_sharing(&self, bytenr: Logical, level: u8) -> Result<Sharing> {
        let view = View::new(Arc::clone(&self.store), self.extent_root);
        let skinny = Key::new(bytenr.0, KeyType::METADATA_ITEM, u64::from(level));
        let fat = Key::new(bytenr.0, KeyType::EXTENT_ITEM, self.nodesize);
        // A converted volume has items of both kinds.
        let keys = if self.skinny {
            [skinny, fat]
        } else {
            [fat, skinny]
        };
        for key in keys {
            if let Some(item) = view.get(&key)? {
                let extent = decode_extent(key.item_type, &item).ok_or(Error::Corrupt {
                    tree: RootId::EXTENT_TREE,
                    key,
                    what: CorruptItem::Undecodable,
                })?;
                return Ok(Sharing {
                    refs: extent.head.refs.get(),
                    full_backref: extent.head.flags().contains(ExtentFlags::FULL_BACKREF),
                });
            }
        }
        Ok(Sharing {
            refs: 0,
            full_backref: false,
        })
    }

    /// Adds `delta` to the references that `holder` has to all children of a block.
    pub(super) fn change_children(
        &mut self,
        block: &Block,
        holder: Holder,
        delta: i64,
    ) -> Result<()> {
        let node = block.node();
        if let Some(below) = node.level().checked_sub(1) {
            let key = match holder {
                Holder::Tree(root) => RefKey::TreeRoot(root),
                Holder::Block => RefKey::TreeParent(node.bytenr()),
            };
            for ptr in node.ptrs() {
                let child = Logical(ptr.blockptr.get());
                self.refs
                    .change(child, self.nodesize, key, delta, Some(below));
            }
            return Ok(());
        }
        for slot in 0..node.len() {
            let Some((key, bytes)) = node.item(slot) else {
                continue;
            };
            if key.item_type != KeyType::EXTENT_DATA {
                continue;
            }
            let Some(FileExtent::Regular { body, .. }) = FileExtent::decode(bytes) else {
                continue;
            };
            let Some(disk) = body.disk() else { continue };
            let reference = match holder {
                Holder::Tree(root) => RefKey::DataRoot {
                    root,
                    ino: InodeNr(key.objectid),
                    offset: key.offset.wrapping_sub(body.offset.get()),
                },
                Holder::Block => RefKey::DataParent(node.bytenr()),
            };
            let len = body.disk_num_bytes.get();
            self.refs.change(disk, len, reference, delta, None);
        }
        Ok(())
    }

    /// Drops the reference of tree `root` to a block. The extent tree is consulted only if the block `may_be_shared`.
    fn drop_block(&mut self, block: &Block, root: RootId, may_be_shared: bool) -> Result<()> {
        let node = block.node();
        let (bytenr, level) = (node.bytenr(), node.level());
        let sharing = if may_be_shared {
            self.sharing(bytenr, level)?
        } else {
            Sharing {
                refs: 1,
                full_backref: false,
            }
        };
        // BLOCKS-2
        match sharing {
            Sharing {
                refs: 2..,
                full_backref: false,
            } if node.owner() == root => {
                // The owner leaves a shared block. Its references to the children pass to the new copy, and the block
                // gets references in its own name.
                self.change_children(block, Holder::Block, 1)?;
                self.refs.set_full_backref(bytenr, level);
            }
            // The children are referenced in another name, so the new copy needs references of its own.
            Sharing { refs: 2.., .. } => self.change_children(block, Holder::Tree(root), 1)?,
            Sharing {
                full_backref: true, ..
            } => {
                // The last user leaves: the references of the block become references of the tree, for the new copy.
                self.change_children(block, Holder::Tree(root), 1)?;
                self.change_children(block, Holder::Block, -1)?;
            }
            // Not shared: the new copy inherits the references to the children.
            _ => {}
        }
        let key = RefKey::TreeRoot(root);
        self.refs
            .change(bytenr, self.nodesize, key, -1, Some(level));
        Ok(())
    }
}

/// The holder of the references to the children of a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder {
    Tree(RootId),
    /// The block itself.
    Block,
}

/// The blocks of one tree during one `apply`.
pub(super) struct BlockIo<'c, 'v> {
    blocks: &'c mut Blocks<'v>,
    root: CommittedRoot,
    last_snapshot: Transid,
    made: i64,
}

impl<'c, 'v> BlockIo<'c, 'v> {
    pub(super) fn new(
        blocks: &'c mut Blocks<'v>,
        root: CommittedRoot,
        last_snapshot: Transid,
    ) -> BlockIo<'c, 'v> {
        BlockIo {
            blocks,
            root,
            last_snapshot,
            made: 0,
        }
    }

    pub(super) fn format(&self) -> BlockFormat {
        self.blocks.roots.block_format(self.blocks.transid)
    }

    /// Returns the number of blocks created minus blocks dropped.
    pub(super) fn net_blocks(&self) -> i64 {
        self.made
    }

    /// Returns whether another tree may point to the block. Only blocks of subvolumes can be shared, and of these only
    /// blocks not newer than the last snapshot or marked by relocation. The root cannot, because a snapshot copies it.
    fn may_be_shared(&self, block: &Block) -> bool {
        let node = block.node();
        let relocated = node.header().flags.get() & header_flags::RELOC != 0;
        self.root.tree.is_subvolume()
            && node.bytenr() != self.root.bytenr
            && (node.generation() <= self.last_snapshot || relocated)
    }
}

impl BlockSink for BlockIo<'_, '_> {
    type Error = Error;

    fn place(&mut self, level: u8, _: &Key) -> Result<Logical> {
        self.made += 1;
        let spare = self.blocks.spare.get_mut(&(self.root.tree, level));
        if let Some(place) = spare.and_then(VecDeque::pop_front) {
            return Ok(place);
        }
        let place = self.blocks.allocate(self.root.tree)?;
        self.blocks.allocated.insert(place);
        Ok(place)
    }

    fn emit(&mut self, block: TreeBlock) -> Result<()> {
        // A reused place already has its reference (BLOCKS-1).
        if self.blocks.allocated.remove(&block.logical) {
            self.blocks.refs.new_block(
                block.logical,
                block.level,
                block.owner,
                RefKey::TreeRoot(block.owner),
                block.first_key,
            );
        }
        self.blocks.stage(block)?;
        Ok(())
    }
}

impl ApplyIo for BlockIo<'_, '_> {
    fn announce(&mut self, keys: &[Key]) {
        if keys.len() < 2 {
            return;
        }
        let store = &self.blocks.store;
        let touched = View::new(Arc::clone(store), self.root).prefetch(keys);
        if !self.root.tree.is_subvolume() {
            return;
        }
        // `drop_block` will look up the references of these blocks.
        let is_old = |expect: &&Expect| expect.generation <= Some(self.last_snapshot);
        let mut items: Vec<Key> = touched
            .iter()
            .filter(is_old)
            .map(|expect| Key::new(expect.bytenr.0, KeyType::METADATA_ITEM, 0))
            .collect();
        if items.len() > 1 {
            items.sort_unstable();
            View::new(Arc::clone(store), self.blocks.extent_root).prefetch(&items);
        }
    }

    fn read(&mut self, expect: &Expect) -> Result<Block> {
        let block = self.blocks.store.read_held(self.root.tree, expect)?;
        let node = block.node();
        let shared = self.may_be_shared(&block);
        // Created by this commit: reuse its place, and keep its reference.
        if node.generation() == self.blocks.transid && !shared {
            let places = self.blocks.spare.entry((self.root.tree, node.level()));
            places.or_default().push_back(node.bytenr());
        } else {
            self.blocks.drop_block(&block, self.root.tree, shared)?;
        }
        self.made -= 1;
        Ok(block)
    }
}
