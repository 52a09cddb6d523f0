//! Subvolumes and snapshots: which there are and where they stand; making and deleting them.

mod create;
mod delete;
mod properties;
mod uuid_tree;

use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::item::{RootItem, RootRef};
use ubtrfs_format::key::{Key, KeyType};

use crate::error::{CorruptItem, Error, Result};
use crate::file_id::FileId;
use crate::namespace::inode_of;
use crate::volume::Volume;

pub use properties::ReceivedFrom;

/// Nesting beyond this can only be a loop.
const MAX_NESTING: usize = 4096;

/// A subvolume as the root tree describes it.
#[derive(Clone, Debug)]
pub struct SubvolumeInfo {
    pub id: RootId,
    pub item: RootItem,
    /// The transaction that made it, if it was made as a snapshot.
    pub snapshot_transid: Option<Transid>,
    /// None for the top level, and for a subvolume that is being deleted.
    pub place: Option<SubvolumePlace>,
}

/// Where a subvolume stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumePlace {
    /// The directory that holds it.
    pub dir: FileId,
    pub name: Vec<u8>,
    /// Its index in that directory.
    pub sequence: u64,
}

impl Volume {
    /// The root directory of a subvolume.
    pub fn root_dir(&self, id: RootId) -> Result<FileId> {
        let tree = self.subvolume_tree(id)?;
        let key = Key::new(id.0, KeyType::ROOT_ITEM, 0);
        inode_of(id, tree.item().root_dirid.get(), key)
    }

    /// All subvolumes by ascending id, the top level first, those being deleted included.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        let mut found = Vec::new();
        let root_tree = self.root_tree();
        let mut cursor = root_tree.cursor().sequential();
        let mut more = cursor.seek(&Key::new(RootId::FS_TREE.0, KeyType::ROOT_ITEM, 0))?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            let id = RootId(key.objectid);
            if id.0 > RootId::LAST_FREE {
                break;
            }
            if key.item_type == KeyType::ROOT_ITEM && id.is_subvolume() {
                // What is not committed yet is in memory only.
                let item = match self.roots.known_tree(id) {
                    Some(tree) => Some(tree.item()),
                    None => RootItem::decode(bytes),
                };
                let item = item.ok_or(Error::Corrupt {
                    tree: RootId::ROOT_TREE,
                    key,
                    what: CorruptItem::Undecodable,
                })?;
                found.push(SubvolumeInfo {
                    id,
                    item,
                    snapshot_transid: (key.offset != 0).then_some(Transid(key.offset)),
                    place: self.subvolume_place(id)?,
                });
            }
            more = cursor.advance()?;
        }
        Ok(found)
    }

    /// Where a subvolume stands; None for the top level and for one that is nowhere.
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

    /// The path of a subvolume from the top level's root, without a leading slash; empty for the top
    /// level itself.
    pub fn subvolume_path(&self, id: RootId) -> Result<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        while let Some(place) = self.subvolume_place(at)? {
            names.push(place.name);
            let mut dir = place.dir;
            let top = self.root_dir(dir.root)?;
            while dir != top {
                let (parent, name) = self.directory_name(dir)?;
                names.push(name);
                dir = parent;
                if names.len() > MAX_NESTING {
                    return Err(loop_at(id));
                }
            }
            at = dir.root;
            if names.len() > MAX_NESTING {
                return Err(loop_at(id));
            }
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// The one name that a directory has, and the directory in which it stands.
    pub fn directory_name(&self, dir: FileId) -> Result<(FileId, Vec<u8>)> {
        let parent = self.parent(dir)?;
        let tree = self.subvolume_tree(dir.root)?;
        let key = Key::new(dir.ino.0, KeyType::INODE_REF, parent.ino.0);
        let no_name = || Error::Corrupt {
            tree: dir.root,
            key,
            what: CorruptItem::NoName(dir.ino),
        };
        let item = tree.view.get(&key)?.ok_or_else(no_name)?;
        let name = ubtrfs_format::item::InodeRefs::new(&item)
            .next()
            .ok_or_else(no_name)?;
        Ok((parent, name.name.to_vec()))
    }
}

fn loop_at(id: RootId) -> Error {
    Error::Corrupt {
        tree: RootId::ROOT_TREE,
        key: Key::new(id.0, KeyType::ROOT_BACKREF, 0),
        what: CorruptItem::Loop,
    }
}
