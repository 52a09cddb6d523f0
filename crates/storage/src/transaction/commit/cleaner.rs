//! Freeing the blocks of deleted subvolumes, a bounded step in each commit.
//!
//! The walk is depth first. Blocks that it has not reached yet stay referenced. The root item stores the position
//! (`drop_progress`, `drop_level`) in the kernel's format: on that level, everything left of the key is dropped. The
//! walk therefore resumes after a crash, and can continue a walk that the kernel began.
//!
//! A block shared with other trees only loses this tree's reference. If its children are referenced in this tree's
//! name, the cleaner first converts these references to the block's name, recursively (`convert_to_full_backrefs`). No
//! reference may outlive its tree. The position of an interrupted conversion is kept in memory only. Without it, the
//! conversion starts again at the shared block.
//!
//! A deleted subvolume that is in use is skipped. The release of its last hold wakes the cleaner.
//!
//! Invariants
//! - CLEAN-1: a block is converted after everything below it. So a block with FULL_BACKREF needs no second visit,
//!   unless the kernel set the flag. For that reason, nodes with the flag are visited nevertheless.
//! - CLEAN-2: a step always makes progress, even if its time is up. In a commit without other work, it does so even if
//!   there is no space for it.
//! - CLEAN-3: a step ends at a node, never in a leaf: the kernel panics on a `drop_level` of 0.

use std::time::{Duration, Instant};

use ubtrfs_device::clock;
use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid, objectid};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_tree::Block;

use super::Commit;
use super::blocks::Holder;
use crate::error::{RefKey, Result};

/// Maximum time that a commit spends on the cleaner.
const STEP: Duration = Duration::from_millis(50);

/// A node on the path, and the next child to visit.
struct Step {
    block: Block,
    slot: usize,
    /// The tree's reference to the block.
    held_by: RefKey,
    full_backref: bool,
}

/// A walk through one deleted tree.
struct Walk {
    root: RootId,
    /// For a snapshot, the transaction that created it. Older blocks belong to another tree.
    origin: Transid,
    path: Vec<Step>,
    limit: Limit,
    /// Whether anything was dropped or converted (CLEAN-2).
    has_begun: bool,
    /// Position of the conversion: references before this key are converted.
    converted_to: Option<Key>,
}

/// The limits of a step.
#[derive(Clone, Copy)]
struct Limit {
    until: Instant,
    refs: usize,
}

/// The result of visiting a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Dropped,
    Entered,
    /// The step has reached its limit.
    Interrupted,
}

impl Commit<'_> {
    /// Cleans deleted subvolumes for one step, if there are any.
    pub(super) fn clean_deleted_subvolumes(&mut self) -> Result<()> {
        if !self.needs_cleaner {
            return Ok(());
        }
        self.blocks.extent_root = self.tree(RootId::EXTENT_TREE)?.root;
        let deleted = self.deleted_subvolumes()?;
        // RELOCATE-5: begin with no tree before the batch of this commit, and complete those that were begun.
        if self.relocation.is_some() && !self.has_partly_dropped_tree()? {
            self.manager.cleaner.wake();
            return Ok(());
        }
        // No space: try again in the next commit.
        let Some(refs) = self.manager.cleaner_refs(self.counts) else {
            self.manager.cleaner.wake();
            return Ok(());
        };
        let refs = usize::try_from(refs).unwrap_or(usize::MAX);
        let limit = Limit {
            until: clock::now() + STEP,
            refs: self.blocks.refs.len().saturating_add(refs),
        };
        for id in deleted {
            if !self.clean(id, limit)? {
                self.manager.cleaner.wake();
                break;
            }
        }
        Ok(())
    }

    pub(super) fn deleted_subvolumes(&mut self) -> Result<Vec<RootId>> {
        let view = self.view(RootId::ROOT_TREE)?;
        let mut cursor = view.cursor();
        let first = Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, 0);
        let mut found = Vec::new();
        let mut more = cursor.seek(&first)?;
        while more && let Some((key, _)) = cursor.current() {
            if (key.objectid, key.item_type) != (first.objectid, first.item_type) {
                break;
            }
            // Orphans of the root tree itself are inodes of free-space caches.
            let id = RootId(key.offset);
            if id.is_subvolume()
                && !self.roots_in_use.contains(&id)
                && let Some(tree) = self.roots.find_tree(id)?
                && tree.item().refs.get() == 0
            {
                found.push(id);
            }
            more = cursor.advance()?;
        }
        Ok(found)
    }

    /// Drops blocks of a tree up to the limit. Returns true if nothing of the tree is left.
    fn clean(&mut self, id: RootId, limit: Limit) -> Result<bool> {
        let mut walk = self.begin_walk(id, limit)?;
        while let Some(step) = walk.path.last() {
            let (block, slot) = (step.block.clone(), step.slot);
            let level = block.node().level();
            // CLEAN-3: a leaf is finished before the step can end.
            if level == 0 || slot >= block.node().len() {
                self.finish_block(&mut walk)?;
                walk.has_begun = true;
                continue;
            }
            let is_over = self.is_over(&walk) || self.visit_child(&mut walk)? == Visit::Interrupted;
            if is_over && let Some(key) = block.node().key(slot) {
                let tree = self.tree(id)?;
                // In the kernel's format, so that either can resume the walk.
                tree.item.drop_progress = DiskKey::from(key);
                tree.item.drop_level = level;
                tree.item_is_stale = true;
                self.manager.cleaner.note_converted(id, walk.converted_to);
                return Ok(false);
            }
        }
        self.remove_root(id)?;
        Ok(true)
    }

    fn is_over(&self, walk: &Walk) -> bool {
        let Limit { until, refs } = walk.limit;
        // CLEAN-2: never before some progress was made.
        walk.has_begun && (clock::now() >= until || self.blocks.refs.len() >= refs)
    }

    /// Begins a walk at the end of the last step, or at the root.
    fn begin_walk(&mut self, id: RootId, limit: Limit) -> Result<Walk> {
        let view = self.view(id)?;
        let tree = self.tree(id)?;
        let progress = tree.item.drop_progress.get();
        let drop_level = tree.item.drop_level;
        let resumes = progress.objectid != 0 || progress.item_type.0 != 0 || progress.offset != 0;
        let mut walk = Walk {
            root: id,
            origin: Transid(tree.tree.key_offset),
            path: Vec::new(),
            limit,
            has_begun: false,
            converted_to: self.manager.cleaner.converted_to(id),
        };
        let mut block = view.read_root()?;
        let mut held_by = RefKey::TreeRoot(id);
        loop {
            let node = block.node();
            let sharing = self.blocks.sharing(node.bytenr(), node.level())?;
            let full_backref = sharing.full_backref;
            // Descend along the recorded key to the level at which the last step ended.
            let stop = !resumes || node.level() <= drop_level || node.is_leaf();
            let slot = if resumes && !node.is_leaf() {
                node.child_slot(&progress)
            } else {
                0
            };
            let child = (!stop).then(|| walk.expect(&block, slot)).flatten();
            let next_held = child_holder(id, &block, full_backref);
            walk.path.push(Step {
                block,
                slot,
                held_by,
                full_backref,
            });
            let Some(expect) = child else {
                return Ok(walk);
            };
            block = self.read_block(id, &expect)?;
            held_by = next_held;
        }
    }

    fn read_block(&self, id: RootId, expect: &Expect) -> Result<Block> {
        Ok(self.roots.node_store().read_held(id, expect)?)
    }

    /// Drops the reference to the next child of the last node, or descends into it.
    fn visit_child(&mut self, walk: &mut Walk) -> Result<Visit> {
        let (id, origin) = (walk.root, walk.origin);
        let Some(step) = walk.path.last_mut() else {
            return Ok(Visit::Entered);
        };
        let slot = step.slot;
        let held_by = child_holder(id, &step.block, step.full_backref);
        let block = step.block.clone();
        let Some(expect) = walk.expect(&block, slot) else {
            return Ok(Visit::Entered);
        };
        let level = block.node().level() - 1;
        let sharing = self.blocks.sharing(expect.bytenr, level)?;
        // No other tree uses the child, so its subtree must be dropped as well.
        if sharing.refs == 1 {
            let child = self.read_block(id, &expect)?;
            walk.path.push(Step {
                block: child,
                slot: 0,
                held_by,
                full_backref: sharing.full_backref,
            });
            return Ok(Visit::Entered);
        }
        // Shared: the subtree stays. Only references to its children in this tree's name must be converted.
        let is_own = expect
            .generation
            .is_none_or(|generation| generation > origin);
        if is_own
            && !(level == 0 && sharing.full_backref)
            && self.convert_to_full_backrefs(walk, &expect)? == Visit::Interrupted
        {
            return Ok(Visit::Interrupted);
        }
        self.blocks.drop_block_ref(expect.bytenr, held_by, level);
        walk.has_begun = true;
        if let Some(step) = walk.path.last_mut() {
            step.slot += 1;
        }
        Ok(Visit::Dropped)
    }

    /// Converts the references of a shared block to its children to the block's name (CLEAN-1).
    fn convert_to_full_backrefs(&mut self, walk: &mut Walk, expect: &Expect) -> Result<Visit> {
        if self.is_over(walk) {
            walk.converted_to = expect.first_key;
            return Ok(Visit::Interrupted);
        }
        let block = self.read_block(walk.root, expect)?;
        let node = block.node();
        // A block of another owner has no references in this tree's name.
        if node.owner() != walk.root {
            return Ok(Visit::Dropped);
        }
        if !node.is_leaf() {
            let first = walk.converted_to;
            let first = first.map_or(0, |key| node.child_slot(&key));
            for slot in first..node.len() {
                let Some(child) = walk.expect(&block, slot) else {
                    continue;
                };
                let is_own = child
                    .generation
                    .is_none_or(|generation| generation > walk.origin);
                if is_own && self.convert_to_full_backrefs(walk, &child)? == Visit::Interrupted {
                    return Ok(Visit::Interrupted);
                }
            }
        }
        // Everything below is converted, so this block can follow (CLEAN-1).
        let sharing = self.blocks.sharing(node.bytenr(), node.level())?;
        if !sharing.full_backref {
            self.blocks.change_children(&block, Holder::Block, 1)?;
            self.blocks
                .change_children(&block, Holder::Tree(walk.root), -1)?;
            self.blocks
                .refs
                .set_full_backref(node.bytenr(), node.level());
            walk.has_begun = true;
        }
        Ok(Visit::Dropped)
    }

    /// Frees the last block of the path. Its child blocks are already dropped; a leaf's data references are dropped
    /// here.
    fn finish_block(&mut self, walk: &mut Walk) -> Result<()> {
        let Some(step) = walk.path.pop() else {
            return Ok(());
        };
        let node = step.block.node();
        if node.is_leaf() {
            let holder = if step.full_backref {
                Holder::Block
            } else {
                Holder::Tree(walk.root)
            };
            self.blocks.change_children(&step.block, holder, -1)?;
        }
        self.blocks
            .drop_block_ref(node.bytenr(), step.held_by, node.level());
        if let Some(parent) = walk.path.last_mut() {
            parent.slot += 1;
        }
        Ok(())
    }

    fn remove_root(&mut self, id: RootId) -> Result<()> {
        let key_offset = self.tree(id)?.tree.key_offset;
        let mut changes = vec![
            (Key::new(objectid::ORPHAN, KeyType::ORPHAN_ITEM, id.0), None),
            (Key::new(id.0, KeyType::ROOT_ITEM, key_offset), None),
        ];
        changes.sort_by_key(|(key, _)| *key);
        self.apply_owned(RootId::ROOT_TREE, &changes)?;
        self.trees.remove(&id);
        self.dropped_roots.push(id);
        Ok(())
    }
}

impl Walk {
    fn expect(&self, parent: &Block, slot: usize) -> Option<Expect> {
        expect_child(self.root, parent, slot)
    }
}

/// Returns the expected properties of a child of a block in tree `root`.
pub(super) fn expect_child(root: RootId, parent: &Block, slot: usize) -> Option<Expect> {
    let node = parent.node();
    let ptr = node.ptrs().get(slot)?;
    Some(Expect {
        bytenr: Logical(ptr.blockptr.get()),
        level: Some(node.level().checked_sub(1)?),
        generation: Some(Transid(ptr.generation.get())),
        owner: Some(root),
        first_key: Some(ptr.key.get()),
    })
}

/// Returns the reference that tree `root` has to the children of a block.
fn child_holder(root: RootId, block: &Block, full_backref: bool) -> RefKey {
    if full_backref {
        RefKey::TreeParent(block.node().bytenr())
    } else {
        RefKey::TreeRoot(root)
    }
}
