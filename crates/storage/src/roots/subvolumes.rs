//! Places of subvolumes in the directory tree, according to the root tree.

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::RootRef;
use ubtrfs_format::key::{Key, KeyType};

use super::Roots;
use crate::error::{CorruptItem, Error, Result};
use crate::file_id::FileId;

/// The directory entry of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumePlace {
    /// The parent directory.
    pub dir: FileId,
    pub name: Vec<u8>,
    /// The index in the parent directory.
    pub sequence: u64,
}

impl Roots {
    /// Returns the root directory of a subvolume.
    pub fn root_dir(&self, id: RootId) -> Result<FileId> {
        let tree = self.subvolume_tree(id)?;
        let key = Key::new(id.0, KeyType::ROOT_ITEM, 0);
        inode_of(id, tree.item().root_dirid.get(), key)
    }

    /// Returns the place of a subvolume, or None for the top level and for subvolumes without a directory entry.
    pub fn subvolume_place(&self, id: RootId) -> Result<Option<SubvolumePlace>> {
        let root_tree = self.root_tree();
        let mut cursor = root_tree.cursor();
        if !cursor.seek(&Key::new(id.0, KeyType::ROOT_BACKREF, 0))? {
            return Ok(None);
        }
        let Some((key, bytes)) = cursor.current() else {
            return Ok(None);
        };
        if (key.objectid, key.item_type) != (id.0, KeyType::ROOT_BACKREF) {
            return Ok(None);
        }
        let reference = RootRef::decode(bytes).ok_or(Error::Corrupt {
            tree: RootId::ROOT_TREE,
            key,
            what: CorruptItem::Undecodable,
        })?;
        Ok(Some(SubvolumePlace {
            dir: inode_of(RootId(key.offset), reference.dirid, key)?,
            name: reference.name.to_vec(),
            sequence: reference.sequence,
        }))
    }
}

/// Returns the handle of an inode named by the item at `key`.
pub fn inode_of(root: RootId, ino: u64, key: Key) -> Result<FileId> {
    FileId::stored(root, ino).ok_or(Error::Corrupt {
        tree: root,
        key,
        what: CorruptItem::InodeNumber(InodeNr(ino)),
    })
}
