//! Back references read from the extent tree: the users of an extent, and the roots that reach a tree block.
//!
//! A look-up reads all trees in one state, live or committed.
//!
//! An extent item names its users by root, or, if the referring tree block is shared, by that block. A leaf shared by
//! snapshots is in all of their trees although its owner is only one of them. The roots of a leaf are therefore found
//! by walking up from parent to parent.
//!
//! Invariants
//! - BACKREF-1: a walk goes up one level at a time and visits each block once, so it ends on any tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_format::item::{
    ExtentDataRef, ExtentFlags, FileExtent, InlineRef, SharedDataRef, decode_extent,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{Block, View};
use zerocopy::FromBytes;

use crate::FileId;
use crate::error::{CorruptItem, Error, Result};
use crate::roots::{TreeSource, blocks};

/// Cache limit: the total number of roots of all blocks. A block without a root counts as one.
const MAX_REMEMBERED: usize = 1 << 18;

/// A place in a file that references an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtentUser {
    pub root: RootId,
    pub ino: InodeNr,
    /// The offset in the file.
    pub offset: u64,
}

impl ExtentUser {
    pub fn file(&self) -> FileId {
        FileId::new(self.root, self.ino)
    }
}

/// The roots that reach each tree block, cached across lookups in one state.
#[derive(Debug, Default)]
pub struct RootsOfBlocks {
    known: BTreeMap<u64, BTreeSet<RootId>>,
    /// The size of `known`, counted as for `MAX_REMEMBERED`.
    remembered: usize,
}

impl RootsOfBlocks {
    fn remember(&mut self, bytenr: Logical, roots: BTreeSet<RootId>) {
        let count = roots.len().max(1);
        if self.remembered.saturating_add(count) > MAX_REMEMBERED {
            self.known.clear();
            self.remembered = 0;
        }
        self.remembered += count;
        self.known.insert(bytenr.0, roots);
    }
}

/// A data extent, as recorded in the extent tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataExtent {
    pub start: Logical,
    pub len_bytes: u64,
}

/// The references to an extent or a tree block.
#[derive(Debug)]
struct References {
    is_data: bool,
    full_backref: bool,
    refs: Vec<InlineRef>,
}

/// Look-ups in one state of the trees.
#[derive(Clone, Copy)]
pub struct BackRefs<'s> {
    trees: &'s dyn TreeSource,
}

impl std::fmt::Debug for BackRefs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackRefs").finish_non_exhaustive()
    }
}

impl<'s> BackRefs<'s> {
    pub fn new(trees: &'s dyn TreeSource) -> BackRefs<'s> {
        BackRefs { trees }
    }

    /// Returns the data extent that holds a logical address, or None for free space and tree blocks.
    pub fn data_extent_at(&self, logical: Logical) -> Result<Option<DataExtent>> {
        let view = self.extent_tree()?;
        let mut cursor = view.cursor();
        let mut more = cursor.seek_floor(&Key::new(logical.0, KeyType(u8::MAX), u64::MAX))?;
        // At most the references of this extent and one block group item are between the address and the extent item.
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if key.item_type == KeyType::METADATA_ITEM {
                break;
            }
            if key.item_type == KeyType::EXTENT_ITEM {
                let holds = logical
                    .0
                    .checked_sub(key.objectid)
                    .is_some_and(|at| at < key.offset);
                let is_data = decode_extent(key.item_type, bytes)
                    .is_some_and(|extent| extent.head.flags().contains(ExtentFlags::DATA));
                let extent = DataExtent {
                    start: Logical(key.objectid),
                    len_bytes: key.offset,
                };
                return Ok((holds && is_data).then_some(extent));
            }
            more = cursor.retreat()?;
        }
        Ok(None)
    }

    /// Returns the number of references to a data extent, or 0 if there is no such extent.
    pub fn data_extent_refs(&self, extent: Logical) -> Result<u64> {
        let view = self.extent_tree()?;
        let mut cursor = view.cursor();
        let found = cursor.seek(&Key::new(extent.0, KeyType::EXTENT_ITEM, 0))?;
        let item = cursor.current().filter(|(key, _)| {
            found && (key.objectid, key.item_type) == (extent.0, KeyType::EXTENT_ITEM)
        });
        let refs = item.and_then(|(key, bytes)| decode_extent(key.item_type, bytes));
        Ok(refs.map_or(0, |extent| extent.head.refs.get()))
    }

    /// Calls `each` with every use of a data extent, until it breaks. With `at`, only uses of that byte of the extent
    /// are reported. Otherwise each use is reported with the offset at its start.
    pub fn extent_users(
        &self,
        extent: Logical,
        at: Option<u64>,
        roots: &mut RootsOfBlocks,
        each: &mut dyn FnMut(ExtentUser) -> ControlFlow<()>,
    ) -> Result<()> {
        let Some(references) = self.references(extent)? else {
            return Ok(());
        };
        // Only the addresses are kept in memory, because an extent can have any number of users.
        let mut leaves: BTreeSet<Logical> = BTreeSet::new();
        for reference in &references.refs {
            match *reference {
                InlineRef::ExtentData(data) => self.leaves_of_root(extent, &data, &mut leaves)?,
                InlineRef::SharedData { parent, .. } => {
                    leaves.insert(Logical(parent));
                }
                _ => {}
            }
        }
        for bytenr in leaves {
            let leaf = self.block(RootId::FS_TREE, bytenr)?;
            self.find_roots(&leaf, roots)?;
            let Some(roots) = roots.known.get(&bytenr.0) else {
                continue;
            };
            for (ino, offset) in uses_in_leaf(&leaf, extent, at) {
                for &root in roots {
                    if each(ExtentUser { root, ino, offset }).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn block(&self, tree: RootId, bytenr: Logical) -> Result<Block> {
        Ok(self.trees.store().read(tree, &Expect::at(bytenr))?)
    }

    /// Lists the references to the extent or block at `bytenr`.
    fn references(&self, bytenr: Logical) -> Result<Option<References>> {
        let view = self.extent_tree()?;
        let mut cursor = view.cursor();
        let mut found: Option<References> = None;
        let mut more = cursor.seek(&Key::new(bytenr.0, KeyType::EXTENT_ITEM, 0))?;
        while more {
            let Some((key, bytes)) = cursor.current().filter(|(key, _)| key.objectid == bytenr.0)
            else {
                break;
            };
            let corrupt = || Error::Corrupt {
                tree: RootId::EXTENT_TREE,
                key,
                what: CorruptItem::Undecodable,
            };
            match key.item_type {
                KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => {
                    let extent = decode_extent(key.item_type, bytes).ok_or_else(corrupt)?;
                    found = Some(References {
                        is_data: extent.head.flags().contains(ExtentFlags::DATA),
                        full_backref: extent.head.flags().contains(ExtentFlags::FULL_BACKREF),
                        refs: extent.refs.collect(),
                    });
                }
                _ => {
                    let reference = keyed_reference(key, bytes).ok_or_else(corrupt);
                    if let Some(found) = &mut found
                        && let Some(reference) = reference?
                    {
                        found.refs.push(reference);
                    }
                }
            }
            more = cursor.advance()?;
        }
        Ok(found)
    }

    /// Collects the leaves of the root named by `data` that reference the extent.
    fn leaves_of_root(
        &self,
        extent: Logical,
        data: &ExtentDataRef,
        leaves: &mut BTreeSet<Logical>,
    ) -> Result<()> {
        let Some(view) = self.trees.find_view(RootId(data.root.get()))? else {
            return Ok(());
        };
        let ino = data.objectid.get();
        // A negative offset wrapped around. The first reference is then at the start of the file.
        let first = match data.offset.get() {
            offset if offset as i64 >= 0 => offset,
            _ => 0,
        };
        let mut left = data.count.get();
        let mut last: Option<(Logical, bool)> = None;
        let mut cursor = view.cursor();
        let mut more = cursor.seek(&Key::new(ino, KeyType::EXTENT_DATA, first))?;
        while more && left > 0 {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if (key.objectid, key.item_type) != (ino, KeyType::EXTENT_DATA) {
                break;
            }
            if let Some(FileExtent::Regular { body, .. }) = FileExtent::decode(bytes)
                && body.disk() == Some(extent)
                && key.offset.wrapping_sub(body.offset.get()) == data.offset.get()
            {
                let leaf = blocks::find(&view, &key, 0)?;
                let at = leaf.as_ref().map(|leaf| leaf.node().bytenr());
                let is_held = match (last, &leaf) {
                    (Some((known, is_held)), _) if Some(known) == at => is_held,
                    (_, Some(leaf)) => self.is_held_by_owner(leaf, view.tree())?,
                    (_, None) => false,
                };
                last = at.map(|at| (at, is_held));
                // The references of other leaves are in the leaf's name, or in another tree's.
                if is_held {
                    left -= 1;
                    leaves.extend(at);
                }
            }
            more = cursor.advance()?;
        }
        Ok(())
    }

    /// Returns whether the references of a leaf are in the name of `tree`.
    fn is_held_by_owner(&self, leaf: &Block, tree: RootId) -> Result<bool> {
        if leaf.node().owner() != tree {
            return Ok(false);
        }
        let references = self.references(leaf.node().bytenr())?;
        Ok(references.is_none_or(|references| !references.full_backref))
    }

    /// Finds all roots that reach `block`, and caches the roots of its ancestors on the way.
    fn find_roots(&self, block: &Block, roots: &mut RootsOfBlocks) -> Result<()> {
        let bytenr = block.node().bytenr();
        if roots.known.contains_key(&bytenr.0) {
            return Ok(());
        }
        let level = block.node().level();
        let first_key = block.node().key(0);
        let mut found = BTreeSet::new();
        let mut parents = Vec::new();
        let references = self.references(bytenr)?.filter(|r| !r.is_data);
        for reference in references.iter().flat_map(|references| &references.refs) {
            match *reference {
                InlineRef::TreeBlock { root } => {
                    let root = RootId(root);
                    let Some(view) = self.trees.find_view(root)? else {
                        continue;
                    };
                    if view.committed().bytenr == bytenr {
                        found.insert(root);
                    } else if let Some(key) = first_key
                        && let Some(parent) = blocks::find(&view, &key, level.saturating_add(1))?
                    {
                        parents.push(parent);
                    }
                }
                InlineRef::SharedBlock { parent } => {
                    parents.push(self.block(block.node().owner(), Logical(parent))?);
                }
                _ => {}
            }
        }
        for parent in parents {
            // BACKREF-1: a damaged extent tree may name any block as the parent.
            let node = parent.node();
            let is_parent = node.level() == level.saturating_add(1)
                && node.ptrs().iter().any(|ptr| ptr.blockptr.get() == bytenr.0);
            if !is_parent {
                continue;
            }
            self.find_roots(&parent, roots)?;
            found.extend(roots.known.get(&node.bytenr().0).into_iter().flatten());
        }
        roots.remember(bytenr, found);
        Ok(())
    }

    fn extent_tree(&self) -> Result<View> {
        let id = RootId::EXTENT_TREE;
        self.trees.find_view(id)?.ok_or(Error::NoSuchTree(id))
    }
}

/// Decodes a reference stored as an item of its own. Returns Some(None) for an item of another kind.
fn keyed_reference(key: Key, bytes: &[u8]) -> Option<Option<InlineRef>> {
    let reference = match key.item_type {
        KeyType::TREE_BLOCK_REF => InlineRef::TreeBlock { root: key.offset },
        KeyType::SHARED_BLOCK_REF => InlineRef::SharedBlock { parent: key.offset },
        KeyType::EXTENT_DATA_REF => {
            InlineRef::ExtentData(*ExtentDataRef::ref_from_prefix(bytes).ok()?.0)
        }
        KeyType::SHARED_DATA_REF => InlineRef::SharedData {
            parent: key.offset,
            count: SharedDataRef::ref_from_prefix(bytes).ok()?.0.count.get(),
        },
        _ => return Some(None),
    };
    Some(Some(reference))
}

/// Returns the places where files in a leaf use the extent; with `at`, only the uses of that byte.
fn uses_in_leaf(leaf: &Block, extent: Logical, at: Option<u64>) -> Vec<(InodeNr, u64)> {
    let mut uses = Vec::new();
    for (key, bytes) in leaf.node().items() {
        if key.item_type != KeyType::EXTENT_DATA {
            continue;
        }
        let Some(FileExtent::Regular { head, body, .. }) = FileExtent::decode(bytes) else {
            continue;
        };
        if body.disk() != Some(extent) {
            continue;
        }
        let within = match at {
            // A byte of a compressed extent cannot be located, so every use of the extent counts.
            Some(at) if head.compression == 0 => match at.checked_sub(body.offset.get()) {
                Some(within) if within < body.num_bytes.get() => within,
                _ => continue,
            },
            _ => 0,
        };
        uses.push((InodeNr(key.objectid), key.offset.saturating_add(within)));
    }
    uses
}
