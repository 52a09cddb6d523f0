//! Extended attributes, POSIX ACLs among them.

use ubtrfs_format::item::DirEntries;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::name_hash;

use super::FileId;
use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// The value of the attribute of exactly this name, or None.
    pub fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if id.is_stub() {
            return Ok(None);
        }
        let tree = self.subvolume_tree(id.root)?;
        let key = Key::new(id.ino.0, KeyType::XATTR_ITEM, u64::from(name_hash(name)));
        let Some(item) = tree.view.get(&key)? else {
            return Ok(None);
        };
        let found = DirEntries::new(&item).find(|entry| entry.name == name);
        Ok(found.map(|entry| entry.data.to_vec()))
    }

    /// All attributes as (name, value), in the order of their items.
    pub fn xattrs(&self, id: FileId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        if id.is_stub() {
            return Ok(all);
        }
        let tree = self.subvolume_tree(id.root)?;
        let mut cursor = tree.view.cursor();
        let mut more = cursor.seek(&Key::new(id.ino.0, KeyType::XATTR_ITEM, 0))?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if (key.objectid, key.item_type) != (id.ino.0, KeyType::XATTR_ITEM) {
                break;
            }
            all.extend(DirEntries::new(bytes).map(|e| (e.name.to_vec(), e.data.to_vec())));
            more = cursor.advance()?;
        }
        Ok(all)
    }
}
