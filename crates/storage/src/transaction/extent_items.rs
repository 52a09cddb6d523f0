//! Conversion of pending reference changes to changes of extent tree items.
//!
//! A pure function over a view of the extent tree. Extents are processed in address order. Within an extent, all
//! additions precede all drops, so an extent whose references are replaced is never free in between.
//!
//! A new reference is stored inline in the extent's item while the item stays below the kernel's limit. Otherwise it
//! becomes an item of its own (keyed). If an extent has keyed references, new ones are keyed as well, until the last
//! keyed one is dropped. A reference that is not inline thus needs a search only if the extent has keyed references.
//!
//! Invariants
//! - EXTENT-1: an item's count is the sum of its references, inline and keyed. A change that would violate this is an
//!   error that names the extent.
//! - EXTENT-2: an extent without references has no items.
//! - EXTENT-3: the changes ascend by key and contain each key once.
//!
//! Locks: none.
//! Not here: the reference changes for copies of shared blocks; the reuse of freed space.

mod item;
mod keyed;
mod record;

use std::collections::BTreeMap;

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::ExtentFlags;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_tree::{Cursor, View};

use crate::error::{CorruptItem, Error, ExtentShape, RefError, RefKey, Result};
use item::ExtentItem;
use keyed::KeyedRefs;
pub(crate) use record::ExtentRecord;

use super::delayed_refs::{Disagreement, Head, NewExtent};

#[cfg(test)]
mod tests;

/// Number of extents whose items are read ahead in one batch.
const PREFETCHED: usize = 1024;

/// Parameters of extent items, in addition to the references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentContext {
    pub(crate) transid: Transid,
    pub(crate) skinny_metadata: bool,
    pub(crate) nodesize: usize,
}

impl ExtentContext {
    /// Returns the size limit of items with inline references. A reference is not added if the item would reach it. The
    /// kernel calls it BTRFS_MAX_EXTENT_ITEM_SIZE.
    fn item_limit(&self) -> usize {
        (leaf_data_size(self.nodesize) >> 4) - ITEM_HEAD_SIZE
    }
}

/// An extent that got its item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Used {
    pub(crate) start: Logical,
    pub(crate) len: u64,
    pub(crate) is_data: bool,
}

/// An extent whose last reference was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Freed {
    pub(crate) start: Logical,
    pub(crate) len: u64,
    pub(crate) kind: FreedKind,
    /// False if it was created and dropped between two runs, so that it never had an item.
    pub(crate) had_item: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FreedKind {
    Data,
    Block {
        level: u8,
        /// The tree that dropped it last; None if a shared block did.
        owner: Option<RootId>,
    },
}

/// The changes that a run of delayed refs makes to the extent tree and to space.
#[derive(Debug, Default)]
pub(crate) struct ExtentBatch {
    /// Ascending; None deletes.
    pub(crate) changes: Vec<(Key, Option<Vec<u8>>)>,
    pub(crate) used: Vec<Used>,
    pub(crate) freed: Vec<Freed>,
}

/// Computes the changes for `heads` to the extent tree in `view`.
pub(crate) fn run(
    heads: BTreeMap<Logical, Head>,
    view: &View,
    context: &ExtentContext,
) -> Result<ExtentBatch> {
    let mut batch = ExtentBatch::default();
    let mut cursor = view.cursor();
    let places: Vec<Logical> = heads.keys().copied().collect();
    let mut prefetched = 0;
    for (number, (bytenr, head)) in heads.into_iter().enumerate() {
        if number == prefetched {
            let coming = &places[number..places.len().min(number + PREFETCHED)];
            prefetch(coming, view);
            prefetched += coming.len();
        }
        let mut extent = Extent::open(bytenr, &head, &mut cursor, context)?;
        extent.add(&head)?;
        extent.drop(&head)?;
        extent.close(&head, &mut batch)?;
    }
    Ok(batch)
}

/// Reads ahead the leaves with the items of these extents.
fn prefetch(extents: &[Logical], view: &View) {
    if extents.len() < 2 {
        return;
    }
    // A search for the first item of a leaf begins in the leaf before it.
    let ends = |extent: &Logical| {
        [
            Key::new(extent.0, KeyType::EXTENT_ITEM, 0),
            Key::new(extent.0, KeyType(u8::MAX), u64::MAX),
        ]
    };
    let keys: Vec<Key> = extents.iter().flat_map(ends).collect();
    view.prefetch(&keys);
}

/// One extent during the update of its references.
struct Extent<'a, 'v> {
    bytenr: Logical,
    item: ExtentItem,
    keyed: KeyedRefs,
    cursor: &'a mut Cursor<'v>,
    context: &'a ExtentContext,
}

impl<'a, 'v> Extent<'a, 'v> {
    fn open(
        bytenr: Logical,
        head: &Head,
        cursor: &'a mut Cursor<'v>,
        context: &'a ExtentContext,
    ) -> Result<Self> {
        let shape = head.shape;
        match head.disagreement {
            None => {}
            Some(Disagreement::Shape(other)) => {
                let one = shape;
                return Err(RefError::Shapes { bytenr, one, other }.into());
            }
            Some(Disagreement::NewExtent) => return Err(RefError::MadeTwice { bytenr }.into()),
        }
        let (item, has_keyed) = match (find(bytenr, cursor)?, head.is_new()) {
            (Found::Nothing, true) => (ExtentItem::new(bytenr, head, context), false),
            (Found::Item(item, has_keyed), false) if item.is_of(shape, context) => {
                (item, has_keyed)
            }
            (Found::Item(item, _), false) => {
                let key = item.key;
                return Err(RefError::Unlike { bytenr, shape, key }.into());
            }
            // REFS-2
            (Found::Item(ExtentItem { key, .. }, _) | Found::Stray(key), true) => {
                return Err(RefError::Exists { bytenr, shape, key }.into());
            }
            (Found::Nothing | Found::Stray(_), false) => {
                let reference = head.changes().next().map(|(key, _)| key);
                return Err(RefError::NoExtent {
                    bytenr,
                    shape,
                    reference,
                }
                .into());
            }
        };
        Ok(Extent {
            bytenr,
            item,
            keyed: KeyedRefs::new(bytenr, has_keyed),
            cursor,
            context,
        })
    }

    fn add(&mut self, head: &Head) -> Result<()> {
        let bytenr = self.bytenr;
        for (reference, delta) in head.changes().filter(|(_, delta)| *delta > 0) {
            let overflow = RefError::Overflow { bytenr, reference };
            let count = u32::try_from(delta).map_err(|_| overflow)?;
            if !reference.is_data() && count > 1 {
                return Err(RefError::SecondReference { bytenr, reference }.into());
            }
            let refs = self.item.refs.checked_add(u64::from(count));
            // EXTENT-1
            self.item.refs = refs.ok_or(overflow)?;
            let limit = self.context.item_limit();
            // First try to raise an existing inline reference; insert a new one only if there are no keyed ones.
            let is_inline = self.item.raise(reference, count)?
                || (!self.keyed.were_any() && self.item.insert(reference, count, limit));
            if !is_inline {
                self.keyed.raise(self.cursor, reference, count)?;
            }
        }
        Ok(())
    }

    fn drop(&mut self, head: &Head) -> Result<()> {
        let bytenr = self.bytenr;
        for (reference, delta) in head.changes().filter(|(_, delta)| *delta < 0) {
            let dropped = delta.unsigned_abs();
            let mut found = self.item.lower(reference, dropped);
            if found < dropped && self.keyed.were_any() {
                let rest = dropped - found;
                found += self.keyed.lower(self.cursor, reference, rest)?;
            }
            if found < dropped {
                return Err(RefError::NoReference {
                    bytenr,
                    reference,
                    dropped,
                    found,
                }
                .into());
            }
            let refs = self.item.refs;
            let left = refs.checked_sub(dropped);
            self.item.refs = left.ok_or(RefError::Sum { bytenr, refs })?;
        }
        Ok(())
    }

    fn close(mut self, head: &Head, batch: &mut ExtentBatch) -> Result<()> {
        let is_free = self.item.refs == 0;
        let has_refs =
            self.item.has_inline() || (self.keyed.were_any() && self.keyed.any(self.cursor)?);
        // EXTENT-1
        if is_free == has_refs {
            let (bytenr, refs) = (self.bytenr, self.item.refs);
            return Err(RefError::Sum { bytenr, refs }.into());
        }
        if head.full_backref {
            self.item.flags |= ExtentFlags::FULL_BACKREF;
        }
        let (start, key, is_new) = (self.bytenr, self.item.key, head.is_new());
        let len = match head.shape {
            ExtentShape::Data { len } => len,
            ExtentShape::Block { .. } => self.context.nodesize as u64,
        };
        if is_free {
            let kind = freed_kind(head);
            batch.freed.push(Freed {
                start,
                len,
                kind,
                had_item: !is_new,
            });
        } else if is_new {
            let is_data = matches!(head.shape, ExtentShape::Data { .. });
            batch.used.push(Used {
                start,
                len,
                is_data,
            });
        }
        if !(is_free && is_new) {
            // EXTENT-2
            let value = (!is_free).then(|| self.item.encode());
            batch.changes.push((key, value));
        }
        // EXTENT-3: the keys of keyed references are greater than the key of the extent item.
        batch.changes.extend(self.keyed.into_changes());
        Ok(())
    }
}

fn freed_kind(head: &Head) -> FreedKind {
    let ExtentShape::Block { level } = head.shape else {
        return FreedKind::Data;
    };
    let dropped_by = head.changes().find_map(|(key, _)| match key {
        RefKey::TreeRoot(root) => Some(root),
        _ => None,
    });
    let owner = match head.new_extent {
        NewExtent::Block { owner, .. } => Some(owner),
        NewExtent::No | NewExtent::Data => dropped_by,
    };
    FreedKind::Block { level, owner }
}

enum Found {
    Nothing,
    /// The item, and whether keyed references follow it.
    Item(ExtentItem, bool),
    /// A reference to an extent without an item.
    Stray(Key),
}

fn find(bytenr: Logical, cursor: &mut Cursor<'_>) -> Result<Found> {
    let first = Key::new(bytenr.0, KeyType::EXTENT_ITEM, 0);
    if !cursor.seek(&first)? {
        return Ok(Found::Nothing);
    }
    let Some((key, bytes)) = cursor.current().filter(|(key, _)| key.objectid == bytenr.0) else {
        return Ok(Found::Nothing);
    };
    if !matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM) {
        return Ok(if keyed::is_keyed_ref(key.item_type) {
            Found::Stray(key)
        } else {
            Found::Nothing
        });
    }
    let item = ExtentItem::decode(key, bytes).ok_or_else(|| undecodable(key))?;
    let has_keyed = cursor.advance()?
        && cursor
            .current()
            .is_some_and(|(key, _)| key.objectid == bytenr.0 && keyed::is_keyed_ref(key.item_type));
    Ok(Found::Item(item, has_keyed))
}

fn undecodable(key: Key) -> Error {
    Error::Corrupt {
        tree: RootId::EXTENT_TREE,
        key,
        what: CorruptItem::Undecodable,
    }
}
