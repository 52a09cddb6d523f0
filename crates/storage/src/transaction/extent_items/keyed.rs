//! The keyed references of one extent, which are items of their own.
//!
//! Changes are collected on top of the tree until the extent is closed. The key of a file's reference contains a hash.
//! On a collision, a new reference takes the next free offset, so a reference is at its hash or above it. Removals
//! leave holes, so a hole does not end a search.

use std::collections::BTreeMap;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::{ExtentDataRef, InlineRef, SharedDataRef};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Cursor;
use zerocopy::{FromBytes, IntoBytes};

use super::item::{data_root, inline_ref};
use super::undecodable;
use crate::error::{RefError, RefKey, Result};

/// How far beyond a free offset to search for a colliding reference before a new item is created. A reference further
/// away is not lost: its count is then split over two items, which the kernel and `lower` both accept.
const PROBE_BEYOND: u64 = 64;

#[derive(Debug)]
pub(super) struct KeyedRefs {
    bytenr: Logical,
    /// Whether the extent tree has keyed references of the extent.
    committed: bool,
    changes: BTreeMap<Key, Option<Vec<u8>>>,
}

impl KeyedRefs {
    pub(super) fn new(bytenr: Logical, committed: bool) -> KeyedRefs {
        KeyedRefs {
            bytenr,
            committed,
            changes: BTreeMap::new(),
        }
    }

    /// Returns whether there were any before the first drop.
    pub(super) fn were_any(&self) -> bool {
        self.committed || !self.changes.is_empty()
    }

    /// Returns whether any are left.
    pub(super) fn any(&self, cursor: &mut Cursor<'_>) -> Result<bool> {
        let first = Key::new(self.bytenr.0, KeyType::METADATA_ITEM, u64::MAX);
        Ok(self.at_or_above(cursor, first)?.is_some())
    }

    /// Adds `count` to a reference, and creates it if necessary.
    pub(super) fn raise(
        &mut self,
        cursor: &mut Cursor<'_>,
        reference: RefKey,
        count: u32,
    ) -> Result<()> {
        let bytenr = self.bytenr;
        let new = inline_ref(reference, count);
        let mut free = Key::new(bytenr.0, new.key_type(), new.sequence());
        let mut from = Some(free);
        while let Some(at) = from
            && let Some((key, bytes)) = self.at_or_above(cursor, at)?
        {
            let reach = match reference {
                RefKey::DataRoot { .. } => free.offset.saturating_add(PROBE_BEYOND),
                _ => free.offset,
            };
            if key.item_type != free.item_type || key.offset > reach {
                break;
            }
            let (found, old) = decode(key, &bytes).ok_or_else(|| undecodable(key))?;
            if found == reference {
                if !reference.is_data() {
                    return Err(RefError::SecondReference { bytenr, reference }.into());
                }
                let sum = u32::try_from(old + u64::from(count));
                let sum = sum.map_err(|_| RefError::Overflow { bytenr, reference })?;
                self.put(key, reference, sum);
                return Ok(());
            }
            // A colliding reference has this offset, so a new one would take the next.
            if key == free {
                free.offset = free.offset.saturating_add(1);
            }
            from = key.next();
        }
        self.put(free, reference, count);
        Ok(())
    }

    /// Subtracts up to `count` from a reference, and returns the subtracted number.
    pub(super) fn lower(
        &mut self,
        cursor: &mut Cursor<'_>,
        reference: RefKey,
        count: u64,
    ) -> Result<u64> {
        let wanted = inline_ref(reference, 0);
        let first = Key::new(self.bytenr.0, wanted.key_type(), wanted.sequence());
        let (mut from, mut taken) = (Some(first), 0);
        while taken < count
            && let Some(at) = from
            && let Some((key, bytes)) = self.at_or_above(cursor, at)?
            && key.item_type == first.item_type
        {
            let (found, old) = decode(key, &bytes).ok_or_else(|| undecodable(key))?;
            if found == reference {
                let take = old.min(count - taken);
                taken += take;
                match u32::try_from(old - take) {
                    Ok(left) if left > 0 => self.put(key, reference, left),
                    _ => self.remove(key),
                }
            }
            let collides = matches!(reference, RefKey::DataRoot { .. });
            from = key.next().filter(|_| collides);
        }
        Ok(taken)
    }

    /// Returns the changes, sorted.
    pub(super) fn into_changes(self) -> impl Iterator<Item = (Key, Option<Vec<u8>>)> {
        self.changes.into_iter()
    }

    fn put(&mut self, key: Key, reference: RefKey, count: u32) {
        let bytes = match inline_ref(reference, count) {
            InlineRef::ExtentData(data) => data.as_bytes().to_vec(),
            InlineRef::SharedData { count, .. } => count.to_le_bytes().to_vec(),
            InlineRef::TreeBlock { .. }
            | InlineRef::SharedBlock { .. }
            | InlineRef::Owner { .. } => Vec::new(),
        };
        self.changes.insert(key, Some(bytes));
    }

    /// Deletes a key. The tree need not contain it: `apply` accepts that.
    fn remove(&mut self, key: Key) {
        self.changes.insert(key, None);
    }

    /// Returns the first reference of this extent at or above `from`.
    fn at_or_above(&self, cursor: &mut Cursor<'_>, from: Key) -> Result<Option<(Key, Vec<u8>)>> {
        let committed = self.committed_at_or_above(cursor, from)?;
        let end = committed.as_ref().map_or(Key::MAX, |(key, _)| *key);
        let mut changed = self.changes.range(from..=end);
        let changed = changed.find_map(|(key, value)| Some((*key, value.clone()?)));
        Ok(changed.or(committed))
    }

    /// Returns the first committed reference of this extent at or above `from` without a change.
    fn committed_at_or_above(
        &self,
        cursor: &mut Cursor<'_>,
        from: Key,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        if !self.committed {
            return Ok(None);
        }
        let mut more = cursor.seek(&from)?;
        while more && let Some((key, bytes)) = cursor.current() {
            if key.objectid != self.bytenr.0 || !is_keyed_ref(key.item_type) {
                return Ok(None);
            }
            if !self.changes.contains_key(&key) {
                return Ok(Some((key, bytes.to_vec())));
            }
            more = cursor.advance()?;
        }
        Ok(None)
    }
}

/// Returns whether items of this type are between an extent's own item and its block group's.
pub(super) fn is_keyed_ref(item_type: KeyType) -> bool {
    item_type > KeyType::METADATA_ITEM && item_type < KeyType::BLOCK_GROUP_ITEM
}

/// Decodes a reference and its count. Returns None if the item is not a reference.
pub(super) fn decode(key: Key, bytes: &[u8]) -> Option<(RefKey, u64)> {
    Some(match key.item_type {
        KeyType::TREE_BLOCK_REF => (RefKey::TreeRoot(RootId(key.offset)), 1),
        KeyType::SHARED_BLOCK_REF => (RefKey::TreeParent(Logical(key.offset)), 1),
        KeyType::EXTENT_DATA_REF => {
            let data = ExtentDataRef::ref_from_bytes(bytes).ok()?;
            (data_root(data), u64::from(data.count.get()))
        }
        KeyType::SHARED_DATA_REF => {
            let shared = SharedDataRef::ref_from_bytes(bytes).ok()?;
            let parent = RefKey::DataParent(Logical(key.offset));
            (parent, u64::from(shared.count.get()))
        }
        _ => return None,
    })
}
