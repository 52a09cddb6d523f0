//! The trees of the log that the superblock names.

use std::collections::BTreeSet;
use std::sync::Arc;

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{CommittedRoot, View};

use crate::error::{CorruptItem, Error, Result};
use ubtrfs_storage::roots::{Roots, blocks};

/// The log of one subvolume.
#[derive(Debug)]
pub(super) struct SubvolumeLog {
    pub(super) subvolume: RootId,
    pub(super) view: View,
}

/// The trees of a log.
#[derive(Debug)]
pub(super) struct Log {
    /// The transaction whose changes the log holds.
    pub(super) transid: Transid,
    root: View,
    /// In ascending order of subvolumes.
    pub(super) subvolumes: Vec<SubvolumeLog>,
}

impl Log {
    /// Opens the log and lists its subvolumes. Returns None if the superblock names no log.
    pub(super) fn open(roots: &Roots) -> Result<Option<Log>> {
        let superblock = roots.superblock();
        if !superblock.has_log() {
            return Ok(None);
        }
        let transid = Transid(superblock.generation.get().saturating_add(1));
        let view = |bytenr, level, generation| {
            let root = CommittedRoot {
                tree: RootId::TREE_LOG,
                bytenr,
                level,
                generation: Some(generation),
            };
            View::new(Arc::clone(roots.node_store()), root)
        };
        let root = view(
            Logical(superblock.log_root.get()),
            superblock.log_root_level,
            transid,
        );
        let mut subvolumes = Vec::new();
        let mut cursor = root.cursor();
        let mut more = cursor.seek(&Key::MIN)?;
        while more && let Some((key, bytes)) = cursor.current() {
            if (key.objectid, key.item_type) == (RootId::TREE_LOG.0, KeyType::ROOT_ITEM) {
                let item = RootItem::decode(bytes).ok_or(Error::Corrupt {
                    tree: RootId::TREE_LOG,
                    key,
                    what: CorruptItem::Undecodable,
                })?;
                subvolumes.push(SubvolumeLog {
                    subvolume: RootId(key.offset),
                    view: view(item.bytenr(), item.level, item.transid()),
                });
            }
            more = cursor.advance()?;
        }
        drop(cursor);
        Ok(Some(Log {
            transid,
            root,
            subvolumes,
        }))
    }

    /// Returns the addresses of all blocks of the log.
    pub(super) fn blocks(&self) -> Result<BTreeSet<Logical>> {
        let mut places = BTreeSet::new();
        let views = self.subvolumes.iter().map(|log| &log.view);
        for view in views.chain([&self.root]) {
            blocks::walk(view, &mut |block| {
                places.insert(block.node().bytenr());
            })?;
        }
        Ok(places)
    }
}
