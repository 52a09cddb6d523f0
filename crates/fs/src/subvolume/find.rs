//! Which subvolumes have a UUID, are snapshots of another, or are nested in it. None of these lists all subvolumes with
//! their places.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{RootItem, RootRef};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_storage::roots::{SubvolumePlace, inode_of};

use super::uuid_tree::{UuidKind, uuid_key};
use super::{SubvolumeInfo, Subvolumes};
use crate::error::{CorruptItem, Error, Result};

impl Subvolumes {
    /// Returns the subvolumes that have this UUID, or were received from one that has it, by the UUID tree.
    ///
    /// That tree may lack some. Volumes of old kernels lack the tree, and the size of a leaf limits an item.
    pub(crate) fn subvolumes_of_uuid(&self, uuid: &Uuid) -> Result<Vec<SubvolumeInfo>> {
        self.roots.check_process()?;
        let Some(tree) = self.uuid_tree()? else {
            return Ok(Vec::new());
        };
        let mut found: Vec<SubvolumeInfo> = Vec::new();
        for kind in [UuidKind::Received, UuidKind::Own] {
            let item = tree.view.get(&uuid_key(kind, uuid))?;
            for stored in item.as_deref().unwrap_or_default().as_chunks::<8>().0 {
                let id = RootId(u64::from_le_bytes(*stored));
                if found.iter().all(|info| info.id != id)
                    && let Some(info) = self.subvolume_info(id)?
                    // The tree is a hint: an entry may be stale.
                    && [info.item.uuid, info.item.received_uuid].contains(uuid)
                {
                    found.push(info);
                }
            }
        }
        Ok(found)
    }

    /// Returns the subvolumes that were made as snapshots of the one with this UUID, by ascending id. No tree leads to
    /// them: all root items are read, one after another.
    pub(crate) fn snapshots_of(&self, uuid: &Uuid) -> Result<Vec<RootId>> {
        self.roots.check_process()?;
        let mut found = Vec::new();
        let root_tree = self.roots.root_tree();
        let mut cursor = root_tree.cursor().sequential();
        let mut more = cursor.seek(&Key::new(RootId::FIRST_FREE, KeyType::ROOT_ITEM, 0))?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if key.objectid > RootId::LAST_FREE {
                break;
            }
            if key.item_type == KeyType::ROOT_ITEM
                && RootItem::decode(bytes).is_some_and(|item| item.parent_uuid == *uuid)
            {
                found.push(RootId(key.objectid));
            }
            more = cursor.advance()?;
        }
        Ok(found)
    }

    /// Returns the subvolumes that are right below another, by ascending id, with their places.
    pub(crate) fn nested_subvolumes(&self, id: RootId) -> Result<Vec<(RootId, SubvolumePlace)>> {
        self.roots.check_process()?;
        let mut found = Vec::new();
        let root_tree = self.roots.root_tree();
        let mut cursor = root_tree.cursor();
        let mut more = cursor.seek(&Key::new(id.0, KeyType::ROOT_REF, 0))?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if (key.objectid, key.item_type) != (id.0, KeyType::ROOT_REF) {
                break;
            }
            let reference = RootRef::decode(bytes).ok_or(Error::Corrupt {
                tree: RootId::ROOT_TREE,
                key,
                what: CorruptItem::Undecodable,
            })?;
            let place = SubvolumePlace {
                dir: inode_of(id, reference.dirid, key)?,
                name: reference.name.to_vec(),
                sequence: reference.sequence,
            };
            found.push((RootId(key.offset), place));
            more = cursor.advance()?;
        }
        Ok(found)
    }
}
