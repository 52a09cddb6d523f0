//! Subvolumes and snapshots: listing, creating and deleting them.

mod create;
mod delete;
mod find;
mod properties;
mod uuid_tree;

use std::sync::Arc;

use ubtrfs_format::ids::{RootId, Transid, objectid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::FileId;
use ubtrfs_storage::roots::{Roots, SubvolumePlace};

use crate::error::{CorruptItem, Error, Result};
use crate::file::Files;
use crate::inode::Inodes;
use crate::namespace::{Namespace, find_entry};

pub use properties::ReceivedFrom;

/// Deeper nesting than this can only be a loop.
const MAX_NESTING: usize = 4096;

/// A subvolume as described in the root tree.
#[derive(Clone, Debug)]
pub struct SubvolumeInfo {
    pub id: RootId,
    pub item: RootItem,
    /// The transaction that created it, if it is a snapshot.
    pub snapshot_transid: Option<Transid>,
    /// None for the top level and for a deleted subvolume.
    pub place: Option<SubvolumePlace>,
}

/// The subvolumes of a volume.
#[derive(Debug)]
pub(crate) struct Subvolumes {
    roots: Arc<Roots>,
    inodes: Arc<Inodes>,
    files: Arc<Files>,
    namespace: Arc<Namespace>,
}

impl Subvolumes {
    pub(crate) fn new(namespace: &Arc<Namespace>) -> Subvolumes {
        Subvolumes {
            roots: Arc::clone(&namespace.roots),
            inodes: Arc::clone(&namespace.inodes),
            files: Arc::clone(&namespace.files),
            namespace: Arc::clone(namespace),
        }
    }

    /// Returns the default subvolume, which is mounted if none is named.
    pub(crate) fn default_subvolume(&self) -> Result<RootId> {
        self.roots.check_process()?;
        let dir = match self.roots.superblock().root_dir_objectid.get() {
            0 => objectid::ROOT_TREE_DIR,
            dir => dir,
        };
        let found = find_entry(&self.roots.root_tree(), dir, b"default")?;
        Ok(found.map_or(RootId::FS_TREE, |entry| RootId(entry.location.objectid)))
    }

    /// Returns all subvolumes by ascending id, including deleted ones. The top level is first.
    pub(crate) fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        self.roots.check_process()?;
        let mut found = Vec::new();
        let root_tree = self.roots.root_tree();
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
                found.push(self.info_of(key, bytes)?);
            }
            more = cursor.advance()?;
        }
        Ok(found)
    }

    /// Returns the subvolume with this id, or None if [`Subvolumes::subvolumes`] would not list it.
    pub(crate) fn subvolume_info(&self, id: RootId) -> Result<Option<SubvolumeInfo>> {
        self.roots.check_process()?;
        let root_tree = self.roots.root_tree();
        let mut cursor = root_tree.cursor();
        if !id.is_subvolume() || !cursor.seek(&Key::new(id.0, KeyType::ROOT_ITEM, 0))? {
            return Ok(None);
        }
        let found = cursor.current();
        let found =
            found.filter(|(key, _)| (key.objectid, key.item_type) == (id.0, KeyType::ROOT_ITEM));
        found
            .map(|(key, bytes)| self.info_of(key, bytes))
            .transpose()
    }

    /// Returns the information of a root item.
    fn info_of(&self, key: Key, bytes: &[u8]) -> Result<SubvolumeInfo> {
        let id = RootId(key.objectid);
        // The root item of a loaded tree may have uncommitted changes.
        let item = match self.roots.known_tree(id) {
            Some(tree) => Some(tree.item()),
            None => RootItem::decode(bytes),
        };
        let item = item.ok_or(Error::Corrupt {
            tree: RootId::ROOT_TREE,
            key,
            what: CorruptItem::Undecodable,
        })?;
        Ok(SubvolumeInfo {
            id,
            item,
            snapshot_transid: (key.offset != 0).then_some(Transid(key.offset)),
            place: self.roots.subvolume_place(id)?,
        })
    }

    /// Returns the path of a subvolume from the top level's root, without a leading slash. The path of the
    /// top level is empty.
    pub(crate) fn subvolume_path(&self, id: RootId) -> Result<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        while let Some(place) = self.roots.subvolume_place(at)? {
            names.push(place.name);
            let mut dir = place.dir;
            let top = self.roots.root_dir(dir.root)?;
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

    /// Returns the parent and the name of a directory.
    pub(crate) fn directory_name(&self, dir: FileId) -> Result<(FileId, Vec<u8>)> {
        let parent = self.namespace.parent(dir)?;
        let tree = self.roots.subvolume_tree(dir.root)?;
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
