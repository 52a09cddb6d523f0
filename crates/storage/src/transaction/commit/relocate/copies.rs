//! The copies of a planned batch: new blocks, and the changes of references that follow from them.

use std::collections::BTreeMap;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::key::Key;
use ubtrfs_format::node::{HEADER_SIZE, Header, KeyPtr, header_flags};
use ubtrfs_tree::{Block, CommittedRoot, TreeBlock};
use zerocopy::FromBytes;

use super::super::Commit;
use super::graph::GraphBlock;
use super::leaves::{extents_of, patch_extents};
use super::plan::Plan;
use crate::error::{RefKey, Result};

/// The old and the new addresses of a batch.
#[derive(Debug, Default)]
struct Moved {
    data: BTreeMap<Logical, Logical>,
    blocks: BTreeMap<Logical, Logical>,
}

impl Commit<'_> {
    /// Moves the extents of a plan. Returns the number of copied blocks.
    pub(super) fn move_extents(&mut self, plan: Plan) -> Result<u64> {
        let mut moved = Moved::default();
        for copy in &plan.data {
            self.blocks.refs.new_data(copy.new, copy.len);
            moved.data.insert(copy.old, copy.new);
        }
        // RELOCATE-2
        for (bytenr, block) in plan.graph.in_order() {
            let copied = self.copy_block(bytenr, block, &mut moved)?;
            for &id in &block.roots {
                if block.moves {
                    self.change_root_ref(id, bytenr, &copied)?;
                }
            }
        }
        let mut csums = plan.csums;
        csums.sort_by_key(|(key, _)| *key);
        self.apply_owned(RootId::CSUM_TREE, &csums)?;
        Ok(moved.blocks.len() as u64)
    }

    /// Writes a block with the new addresses of its children, at a new place if it moves.
    fn copy_block(
        &mut self,
        bytenr: Logical,
        block: &GraphBlock,
        moved: &mut Moved,
    ) -> Result<Block> {
        let store = self.roots.node_store();
        let expect = Expect {
            level: Some(block.level),
            generation: Some(block.generation),
            ..Expect::at(bytenr)
        };
        let old = store.read(block.owner, &expect)?;
        let mut bytes = old.bytes().to_vec();
        if block.level == 0 {
            patch_extents(&mut bytes, &moved.data);
        } else {
            self.patch_pointers(&mut bytes, old.node().len(), &moved.blocks);
        }
        let first_key = old.node().key(0).unwrap_or(Key::MIN);
        let mut place = bytenr;
        if block.moves {
            place = self.blocks.allocate(block.owner)?;
            moved.blocks.insert(bytenr, place);
            self.put_header(&mut bytes, place, block);
            let refs = &mut self.blocks.refs;
            refs.new_unreferenced_block(place, block.level, block.owner, first_key);
            if block.new_full_backref() {
                refs.set_full_backref(place, block.level);
            }
        }
        let new = self.blocks.stage(TreeBlock {
            logical: place,
            owner: block.owner,
            level: block.level,
            first_key,
            bytes,
        })?;
        self.change_child_refs(&old, &new, block);
        Ok(new)
    }

    /// Fills in the header of a copy.
    fn put_header(&self, bytes: &mut [u8], place: Logical, block: &GraphBlock) {
        let format = self.roots.block_format(self.transid);
        let (header, _) = Header::mut_from_prefix(bytes).expect("a block has a header");
        let mut flags = header.flags.get() & !header_flags::RELOC;
        if block.needs_reloc_flag() {
            // RELOCATE-3
            flags |= header_flags::RELOC;
        }
        header.flags = flags.into();
        header.bytenr = place.0.into();
        header.generation = self.transid.0.into();
        // A block of a seed has the seed's.
        header.fsid = format.fsid;
        header.chunk_tree_uuid = format.chunk_tree_uuid;
    }

    fn patch_pointers(&self, bytes: &mut [u8], len: usize, moved: &BTreeMap<Logical, Logical>) {
        let (ptrs, _) = <[KeyPtr]>::mut_from_prefix_with_elems(&mut bytes[HEADER_SIZE..], len)
            .expect("the checker has compared the length");
        for ptr in ptrs {
            if let Some(new) = moved.get(&Logical(ptr.blockptr.get())) {
                ptr.blockptr = new.0.into();
                ptr.generation = self.transid.0.into();
            }
        }
    }

    /// Moves the references to the children of a block from the old block to its copy, where they differ.
    fn change_child_refs(&mut self, old: &Block, new: &Block, block: &GraphBlock) {
        let (old, new) = (old.node(), new.node());
        let nodesize = u64::from(self.roots.superblock().nodesize.get());
        let (was_full, is_full) = (block.full_backref, block.new_full_backref());
        // Otherwise the tree holds the references to unmoved children before and after.
        let changes_holder = is_full && (block.moves || !was_full);
        let refs = &mut self.blocks.refs;
        let Some(below) = block.level.checked_sub(1) else {
            for (before, after) in extents_of(&old).zip(extents_of(&new)) {
                if before.disk == after.disk && !changes_holder {
                    continue;
                }
                let drop = if was_full {
                    RefKey::DataParent(old.bytenr())
                } else {
                    before.held_by(block.owner)
                };
                let add = if is_full {
                    RefKey::DataParent(new.bytenr())
                } else {
                    after.held_by(block.owner)
                };
                refs.change(before.disk, before.len, drop, -1, None);
                refs.change(after.disk, after.len, add, 1, None);
            }
            return;
        };
        let holder = |is_full: bool, parent: Logical| {
            if is_full {
                RefKey::TreeParent(parent)
            } else {
                RefKey::TreeRoot(block.owner)
            }
        };
        let (drop, add) = (
            holder(was_full, old.bytenr()),
            holder(is_full, new.bytenr()),
        );
        for (before, after) in old.ptrs().iter().zip(new.ptrs()) {
            let (before, after) = (before.blockptr.get(), after.blockptr.get());
            if before != after || changes_holder {
                refs.change(Logical(before), nodesize, drop, -1, Some(below));
                refs.change(Logical(after), nodesize, add, 1, Some(below));
            }
        }
    }

    /// Moves the reference of a tree to its root block.
    fn change_root_ref(&mut self, id: RootId, old: Logical, new: &Block) -> Result<()> {
        let node = new.node();
        let nodesize = u64::from(self.roots.superblock().nodesize.get());
        let (level, held_by) = (node.level(), RefKey::TreeRoot(id));
        let refs = &mut self.blocks.refs;
        refs.change(old, nodesize, held_by, -1, Some(level));
        refs.change(node.bytenr(), nodesize, held_by, 1, Some(level));
        let root = CommittedRoot {
            tree: id,
            bytenr: node.bytenr(),
            level,
            generation: Some(self.transid),
        };
        self.move_root(id, root)
    }
}
