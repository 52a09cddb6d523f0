//! Changes of reference counts that are not yet in the extent tree.
//!
//! Counts are changed by increments, so pending changes are stored as differences, merged per extent and reference. The
//! commit applies them to the extent tree. Differences that add up to 0 are removed.
//!
//! Invariants
//! - REFS-1: no reference has a difference of 0, and every extent has a change.
//! - REFS-2: an extent that is marked as new has no item in the extent tree yet.
//! - REFS-3: a change that contradicts an earlier one of the same extent is kept as a [`Disagreement`], which fails the
//!   commit. A damaged volume can cause it, because it may name any extent.
//!
//! Locks: none. A caller that shares a [`DelayedRefs`] protects it with a lock of its own.
//! Not here: the update of the items (`extent_items`).

use std::collections::{BTreeMap, btree_map};

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::key::Key;

use crate::error::{ExtentShape, RefKey};

#[cfg(test)]
mod tests;

/// Whether an extent is new, and if so its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NewExtent {
    /// Its item is in the extent tree.
    No,
    Data,
    /// The item contains the first key if the volume lacks SKINNY_METADATA.
    Block {
        owner: RootId,
        first_key: Key,
    },
}

impl NewExtent {
    fn is_new(&self) -> bool {
        *self != NewExtent::No
    }
}

/// A contradiction between two changes of one extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disagreement {
    Shape(ExtentShape),
    /// The extent was created twice.
    NewExtent,
}

/// The pending changes of one extent.
#[derive(Clone, Debug)]
pub struct Head {
    pub(crate) shape: ExtentShape,
    pub(crate) new_extent: NewExtent,
    pub(crate) full_backref: bool,
    pub(crate) disagreement: Option<Disagreement>,
    changes: RefChanges,
}

impl Head {
    fn new(shape: ExtentShape) -> Head {
        Head {
            shape,
            new_extent: NewExtent::No,
            full_backref: false,
            disagreement: None,
            changes: RefChanges::default(),
        }
    }

    /// Returns the differences, all non-zero.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (RefKey, i64)> {
        self.changes.iter()
    }

    pub(crate) fn is_new(&self) -> bool {
        self.new_extent.is_new()
    }

    /// Returns the sum of the differences.
    pub(crate) fn refs(&self) -> i64 {
        self.changes()
            .fold(0, |sum, (_, delta)| sum.saturating_add(delta))
    }

    fn is_idle(&self) -> bool {
        let changed = self.is_new() || self.full_backref || self.disagreement.is_some();
        !changed && self.changes.len() == 0
    }

    fn expect_shape(&mut self, shape: ExtentShape) {
        // REFS-3
        if self.shape != shape {
            self.disagreement.get_or_insert(Disagreement::Shape(shape));
        }
    }

    fn set_new(&mut self, new_extent: NewExtent) {
        if self.is_new() {
            self.disagreement.get_or_insert(Disagreement::NewExtent);
        }
        self.new_extent = new_extent;
    }
}

/// The differences. Most extents have only one, which needs no allocation.
#[derive(Clone, Debug, Default)]
enum RefChanges {
    #[default]
    None,
    One(RefKey, i64),
    /// May be empty.
    Several(BTreeMap<RefKey, i64>),
}

impl RefChanges {
    #[inline]
    fn add(&mut self, key: RefKey, delta: i64) {
        if let RefChanges::One(only, sum) = self
            && *only != key
        {
            // Not `BTreeMap::from`, which sorts first.
            let mut map = BTreeMap::new();
            map.entry(*only).or_insert(*sum);
            *self = RefChanges::Several(map);
        }
        match self {
            RefChanges::None => *self = RefChanges::One(key, delta),
            RefChanges::One(_, sum) => {
                *sum = sum.saturating_add(delta);
                // REFS-1
                if *sum == 0 {
                    *self = RefChanges::None;
                }
            }
            RefChanges::Several(map) => match map.entry(key) {
                btree_map::Entry::Vacant(entry) => {
                    entry.insert(delta);
                }
                btree_map::Entry::Occupied(mut entry) => {
                    *entry.get_mut() = entry.get().saturating_add(delta);
                    // REFS-1
                    if *entry.get() == 0 {
                        entry.remove();
                    }
                }
            },
        }
    }

    fn len(&self) -> usize {
        match self {
            RefChanges::None => 0,
            RefChanges::One(..) => 1,
            RefChanges::Several(map) => map.len(),
        }
    }

    /// Returns the number of differences in allocated memory.
    fn spilled(&self) -> usize {
        match self {
            RefChanges::None | RefChanges::One(..) => 0,
            RefChanges::Several(map) => map.len(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (RefKey, i64)> {
        let (one, several) = match self {
            RefChanges::None => (None, None),
            RefChanges::One(key, delta) => (Some((*key, *delta)), None),
            RefChanges::Several(map) => (None, Some(map)),
        };
        let several = several.into_iter().flatten();
        one.into_iter()
            .chain(several.map(|(key, delta)| (*key, *delta)))
    }
}

/// The pending changes of an extent's item in the extent tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pending {
    pub(crate) refs: i64,
    /// Set by a change; an item that has the flag keeps it.
    pub(crate) full_backref: bool,
    /// Whether there is no item yet.
    pub(crate) is_new: bool,
}

/// Pending changes by extent address.
#[derive(Clone, Debug, Default)]
pub struct DelayedRefs {
    heads: BTreeMap<Logical, Head>,
    /// Number of differences in allocated memory.
    spilled: usize,
}

impl DelayedRefs {
    /// Adds a data extent that this transaction created. [`DelayedRefs::change`] adds its references. If there are
    /// none, or all are dropped again, the extent is reported as freed and never gets an item.
    pub fn new_data(&mut self, bytenr: Logical, num_bytes: u64) {
        let shape = ExtentShape::Data { len: num_bytes };
        self.edit(bytenr, shape, |head| head.set_new(NewExtent::Data));
    }

    /// Adds a tree block that this commit created, with the reference to it. If the address was used by an older block,
    /// that block's item must have been deleted by an earlier run.
    pub(crate) fn new_block(
        &mut self,
        bytenr: Logical,
        level: u8,
        owner: RootId,
        reference: RefKey,
        first_key: Key,
    ) {
        assert!(!reference.is_data(), "files do not refer to tree blocks");
        self.new_unreferenced_block(bytenr, level, owner, first_key);
        self.edit(bytenr, ExtentShape::Block { level }, |head| {
            head.changes.add(reference, 1);
        });
    }

    /// Adds a tree block like [`DelayedRefs::new_block`], whose references [`DelayedRefs::change`] adds.
    pub(crate) fn new_unreferenced_block(
        &mut self,
        bytenr: Logical,
        level: u8,
        owner: RootId,
        first_key: Key,
    ) {
        self.edit(bytenr, ExtentShape::Block { level }, |head| {
            head.set_new(NewExtent::Block { owner, first_key });
        });
    }

    /// Adds `delta` references from `key`. `level` is required for tree blocks, and absent for data.
    pub fn change(
        &mut self,
        bytenr: Logical,
        num_bytes: u64,
        key: RefKey,
        delta: i64,
        level: Option<u8>,
    ) {
        assert_eq!(key.is_data(), level.is_none(), "only blocks have a level");
        if delta == 0 {
            return;
        }
        let shape = match level {
            Some(level) => ExtentShape::Block { level },
            None => ExtentShape::Data { len: num_bytes },
        };
        self.edit(bytenr, shape, |head| head.changes.add(key, delta));
    }

    /// Notes that the tree block itself refers to its children from now on.
    pub(crate) fn set_full_backref(&mut self, bytenr: Logical, level: u8) {
        let shape = ExtentShape::Block { level };
        self.edit(bytenr, shape, |head| head.full_backref = true);
    }

    pub(crate) fn pending(&self, bytenr: Logical) -> Option<Pending> {
        self.heads.get(&bytenr).map(|head| Pending {
            refs: head.refs(),
            full_backref: head.full_backref,
            is_new: head.is_new(),
        })
    }

    /// Takes all pending changes, in address order.
    pub fn take(&mut self) -> BTreeMap<Logical, Head> {
        std::mem::take(self).heads
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Returns the number of extents with pending changes.
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Estimates the memory in use.
    pub(crate) fn bytes(&self) -> usize {
        // Nodes of a `BTreeMap` are about two thirds full.
        let head_bytes = size_of::<(Logical, Head)>() * 3 / 2;
        let ref_bytes = size_of::<(RefKey, i64)>() * 3 / 2;
        self.len() * head_bytes + self.spilled * ref_bytes
    }

    fn edit(&mut self, bytenr: Logical, shape: ExtentShape, edit: impl FnOnce(&mut Head)) {
        match self.heads.entry(bytenr) {
            btree_map::Entry::Vacant(entry) => {
                let mut head = Head::new(shape);
                edit(&mut head);
                self.spilled += head.changes.spilled();
                entry.insert(head);
            }
            btree_map::Entry::Occupied(mut entry) => {
                let head = entry.get_mut();
                self.spilled -= head.changes.spilled();
                head.expect_shape(shape);
                edit(head);
                let spilled = head.changes.spilled();
                self.spilled += spilled;
                // REFS-1
                if spilled == 0 && head.is_idle() {
                    entry.remove();
                }
            }
        }
    }
}
