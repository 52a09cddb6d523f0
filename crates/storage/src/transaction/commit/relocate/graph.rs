//! The blocks of a batch and all of their ancestors, with the pointers between them.
//!
//! Not here: how parents are found (`plan`), the copies (`copies`).

use std::collections::{BTreeMap, BTreeSet};

use ubtrfs_format::ids::{Logical, RootId, Transid};

/// A block of the graph.
#[derive(Clone, Debug)]
pub(super) struct GraphBlock {
    pub(super) level: u8,
    pub(super) owner: RootId,
    pub(super) generation: Transid,
    /// Whether it refers to its children itself, instead of its owner.
    pub(super) full_backref: bool,
    /// The number of its items or pointers.
    pub(super) len: usize,
    /// All blocks that point to it.
    pub(super) parents: Vec<Logical>,
    /// The trees whose root it is.
    pub(super) roots: Vec<RootId>,
    /// Whether it is in the block group.
    pub(super) is_in_group: bool,
    /// Whether an address in it changes.
    pub(super) is_patched: bool,
    /// Whether it gets a new address.
    pub(super) moves: bool,
    /// Whether several trees reach it.
    pub(super) is_shared: bool,
}

impl GraphBlock {
    /// Returns whether the copy needs the flag RELOC (RELOCATE-3). The test for shared blocks never applies to roots.
    pub(super) fn needs_reloc_flag(&self) -> bool {
        self.owner.is_subvolume()
            && !self.parents.is_empty()
            && (self.is_shared || self.full_backref)
    }

    /// Returns whether the new block refers to its children itself. With the flag RELOC it must.
    pub(super) fn new_full_backref(&self) -> bool {
        self.full_backref || self.moves && self.needs_reloc_flag()
    }
}

/// The blocks of a batch by address.
#[derive(Debug, Default)]
pub(super) struct Graph {
    blocks: BTreeMap<Logical, GraphBlock>,
}

impl Graph {
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn contains(&self, bytenr: Logical) -> bool {
        self.blocks.contains_key(&bytenr)
    }

    pub(super) fn insert(&mut self, bytenr: Logical, block: GraphBlock) {
        self.blocks.insert(bytenr, block);
    }

    /// Notes that an address in a leaf changes.
    pub(super) fn patch(&mut self, leaf: Logical) {
        if let Some(block) = self.blocks.get_mut(&leaf) {
            block.is_patched = true;
        }
    }

    /// Returns the blocks that move or are changed in place, children before their parents.
    pub(super) fn in_order(&self) -> Vec<(Logical, &GraphBlock)> {
        let mut blocks: Vec<(Logical, &GraphBlock)> = self
            .blocks
            .iter()
            .filter(|(_, block)| block.moves || block.is_patched)
            .map(|(bytenr, block)| (*bytenr, block))
            .collect();
        blocks.sort_by_key(|(bytenr, block)| (block.level, *bytenr));
        blocks
    }

    /// Returns the number of blocks of the group that move.
    pub(super) fn moved_of_group(&self) -> u64 {
        let blocks = self.blocks.values();
        blocks.filter(|block| block.is_in_group).count() as u64
    }

    /// Returns the trees whose root moves.
    pub(super) fn moved_roots(&self) -> impl Iterator<Item = RootId> {
        let moved = self.blocks.values().filter(|block| block.moves);
        moved.flat_map(|block| block.roots.iter().copied())
    }

    /// Decides which blocks move in the commit of `transid`.
    pub(super) fn resolve(&mut self, transid: Transid) {
        let mut levels: Vec<(u8, Logical)> = self
            .blocks
            .iter()
            .map(|(bytenr, block)| (block.level, *bytenr))
            .collect();
        levels.sort_unstable();
        for (_, bytenr) in &levels {
            let Some(block) = self.blocks.get_mut(bytenr) else {
                continue;
            };
            // RELOCATE-4
            block.moves = block.is_in_group || block.is_patched && block.generation != transid;
            if block.moves {
                for parent in block.parents.clone() {
                    self.patch(parent);
                }
            }
        }
        // From the roots down: everything below a shared block is shared.
        let mut shared: BTreeSet<Logical> = BTreeSet::new();
        for (_, bytenr) in levels.iter().rev() {
            if let Some(block) = self.blocks.get_mut(bytenr) {
                block.is_shared = block.parents.len() + block.roots.len() > 1
                    || block.parents.iter().any(|parent| shared.contains(parent));
                if block.is_shared {
                    shared.insert(*bytenr);
                }
            }
        }
    }

    /// Returns the number of blocks whose references to their children change to the block's name.
    pub(super) fn converted_blocks(&self) -> u64 {
        let blocks = self.blocks.values();
        let converted = blocks.filter(|block| block.new_full_backref() && !block.full_backref);
        converted.count() as u64
    }

    /// Returns the number of references to children that change their form or their holder, at most.
    pub(super) fn changed_child_refs(&self) -> u64 {
        let moved = self.blocks.values().filter(|block| block.moves);
        let held = moved.filter(|block| block.new_full_backref());
        held.map(|block| block.len as u64).sum()
    }
}
