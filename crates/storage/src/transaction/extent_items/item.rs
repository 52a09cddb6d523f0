//! The item of one extent in decoded form, for changes.

use ubtrfs_format::ids::{InodeNr, Logical, RootId, Transid};
use ubtrfs_format::item::{
    ExtentDataRef, ExtentFlags, ExtentHead, InlineRef, TreeBlockInfo, decode_extent,
};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::IntoBytes;

use super::ExtentContext;
use crate::error::{ExtentShape, RefError, RefKey};
use crate::transaction::delayed_refs::{Head, NewExtent};

/// An EXTENT_ITEM or METADATA_ITEM.
#[derive(Debug)]
pub(super) struct ExtentItem {
    pub(super) key: Key,
    pub(super) refs: u64,
    pub(super) flags: ExtentFlags,
    pub(super) generation: Transid,
    /// The first key and level of a tree block whose item is not skinny.
    pub(super) tree_block: Option<TreeBlockInfo>,
    /// By type ascending, then by sequence descending.
    pub(super) inline: Vec<InlineRef>,
}

impl ExtentItem {
    /// Creates the item of a new extent, without references.
    pub(super) fn new(bytenr: Logical, head: &Head, context: &ExtentContext) -> ExtentItem {
        let (key, flags) = match head.shape {
            ExtentShape::Data { len } => (
                Key::new(bytenr.0, KeyType::EXTENT_ITEM, len),
                ExtentFlags::DATA,
            ),
            ExtentShape::Block { level } if context.skinny_metadata => (
                Key::new(bytenr.0, KeyType::METADATA_ITEM, u64::from(level)),
                ExtentFlags::TREE_BLOCK,
            ),
            ExtentShape::Block { .. } => (
                Key::new(bytenr.0, KeyType::EXTENT_ITEM, context.nodesize as u64),
                ExtentFlags::TREE_BLOCK,
            ),
        };
        let tree_block = match (head.shape, head.new_extent) {
            (ExtentShape::Block { level }, NewExtent::Block { first_key, .. })
                if !context.skinny_metadata =>
            {
                Some(TreeBlockInfo {
                    key: first_key.into(),
                    level,
                })
            }
            _ => None,
        };
        ExtentItem {
            key,
            refs: 0,
            flags,
            generation: context.transid,
            tree_block,
            inline: Vec::new(),
        }
    }

    /// Decodes an item. Returns None if the bytes are not exactly one item.
    pub(super) fn decode(key: Key, bytes: &[u8]) -> Option<ExtentItem> {
        let mut extent = decode_extent(key.item_type, bytes)?;
        let inline = extent.refs.by_ref().collect();
        extent.refs.rest().is_empty().then(|| ExtentItem {
            key,
            refs: extent.head.refs.get(),
            flags: extent.head.flags(),
            generation: Transid(extent.head.generation.get()),
            tree_block: extent.tree_block.copied(),
            inline,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let head = ExtentHead {
            refs: self.refs.into(),
            generation: self.generation.0.into(),
            flags: self.flags.bits().into(),
        };
        let mut bytes = Vec::with_capacity(self.len());
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(self.tree_block.as_slice().as_bytes());
        for reference in &self.inline {
            reference.encode(&mut bytes);
        }
        bytes
    }

    /// Returns whether the item describes an extent of this shape.
    pub(super) fn is_of(&self, shape: ExtentShape, context: &ExtentContext) -> bool {
        let kind = self.flags & (ExtentFlags::DATA | ExtentFlags::TREE_BLOCK);
        match shape {
            ExtentShape::Data { len } => {
                kind == ExtentFlags::DATA
                    && self.key.item_type == KeyType::EXTENT_ITEM
                    && self.key.offset == len
            }
            ExtentShape::Block { level } => {
                kind == ExtentFlags::TREE_BLOCK
                    && match self.tree_block {
                        Some(info) => {
                            info.level == level && self.key.offset == context.nodesize as u64
                        }
                        None => self.key.offset == u64::from(level),
                    }
            }
        }
    }

    /// Adds `count` to an inline reference. Returns false if there is no such reference.
    pub(super) fn raise(&mut self, reference: RefKey, count: u32) -> Result<bool, RefError> {
        let bytenr = Logical(self.key.objectid);
        let Some(slot) = self.find(reference) else {
            return Ok(false);
        };
        match &mut self.inline[slot] {
            InlineRef::ExtentData(data) => {
                let sum = data.count.get().checked_add(count);
                let sum = sum.ok_or(RefError::Overflow { bytenr, reference })?;
                data.count = sum.into();
            }
            InlineRef::SharedData { count: own, .. } => {
                let sum = own.checked_add(count);
                *own = sum.ok_or(RefError::Overflow { bytenr, reference })?;
            }
            _ => return Err(RefError::SecondReference { bytenr, reference }),
        }
        Ok(true)
    }

    /// Inserts a new reference, unless the item would grow to `limit` bytes.
    pub(super) fn insert(&mut self, reference: RefKey, count: u32, limit: usize) -> bool {
        let new = inline_ref(reference, count);
        if self.len() + new.encoded_len() >= limit {
            return false;
        }
        let (new_type, sequence) = (new.key_type(), new.sequence());
        let before = |old: &InlineRef| {
            old.key_type() < new_type || (old.key_type() == new_type && old.sequence() >= sequence)
        };
        let slot = self.inline.iter().position(|old| !before(old));
        self.inline.insert(slot.unwrap_or(self.inline.len()), new);
        true
    }

    /// Subtracts up to `count` from an inline reference, and returns the subtracted number.
    pub(super) fn lower(&mut self, reference: RefKey, count: u64) -> u64 {
        let Some(slot) = self.find(reference) else {
            return 0;
        };
        let old = &mut self.inline[slot];
        let taken = old.count().min(count);
        // Cannot truncate: the old count was a u32.
        let left = (old.count() - taken) as u32;
        match old {
            _ if left == 0 => {
                self.inline.remove(slot);
            }
            InlineRef::ExtentData(data) => data.count = left.into(),
            InlineRef::SharedData { count, .. } => *count = left,
            InlineRef::TreeBlock { .. }
            | InlineRef::SharedBlock { .. }
            | InlineRef::Owner { .. } => {}
        }
        taken
    }

    /// Returns whether there is an inline reference with a non-zero count.
    pub(super) fn has_inline(&self) -> bool {
        self.inline.iter().any(|reference| reference.count() > 0)
    }

    fn find(&self, wanted: RefKey) -> Option<usize> {
        let matches = |reference: &InlineRef| ref_key(reference) == Some(wanted);
        self.inline.iter().position(matches)
    }

    fn len(&self) -> usize {
        let refs: usize = self.inline.iter().map(InlineRef::encoded_len).sum();
        size_of::<ExtentHead>() + self.tree_block.as_slice().as_bytes().len() + refs
    }
}

/// Creates an inline reference. `count` is ignored for tree blocks.
pub(super) fn inline_ref(key: RefKey, count: u32) -> InlineRef {
    match key {
        RefKey::TreeRoot(root) => InlineRef::TreeBlock { root: root.0 },
        RefKey::TreeParent(parent) => InlineRef::SharedBlock { parent: parent.0 },
        RefKey::DataRoot { root, ino, offset } => InlineRef::ExtentData(ExtentDataRef {
            root: root.0.into(),
            objectid: ino.0.into(),
            offset: offset.into(),
            count: count.into(),
        }),
        RefKey::DataParent(parent) => InlineRef::SharedData {
            parent: parent.0,
            count,
        },
    }
}

/// Returns the key of a reference, or None for the owner of simple quotas, which is not a reference.
pub(super) fn ref_key(reference: &InlineRef) -> Option<RefKey> {
    Some(match reference {
        InlineRef::TreeBlock { root } => RefKey::TreeRoot(RootId(*root)),
        InlineRef::SharedBlock { parent } => RefKey::TreeParent(Logical(*parent)),
        InlineRef::ExtentData(data) => data_root(data),
        InlineRef::SharedData { parent, .. } => RefKey::DataParent(Logical(*parent)),
        InlineRef::Owner { .. } => return None,
    })
}

pub(super) fn data_root(data: &ExtentDataRef) -> RefKey {
    RefKey::DataRoot {
        root: RootId(data.root.get()),
        ino: InodeNr(data.objectid.get()),
        offset: data.offset.get(),
    }
}
