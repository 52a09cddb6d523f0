//! Directories: looking up names, listing by index, and the parent.
//!
//! A name is looked up by its hash (DIR_ITEM) and listed by its index (DIR_INDEX). Indices are not reused
//! within a mount, so a position in a listing stays valid while the directory changes.

use std::ops::ControlFlow;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{DirEntries, FileKind, InodeExtrefs, InodeRefs, RootRef};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::roots::{Name, inode_of};
use ubtrfs_storage::{FileId, lock};

use super::entry::{entry_key, find_entry_at, next_index};
use crate::error::{CorruptItem, Error, Result};
use crate::namespace::Namespace;

/// An entry of a listing, which does not include "." and "..".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The position of the entry. A listing continues at `index + 1`.
    pub index: u64,
    pub name: Vec<u8>,
    pub kind: FileKind,
    pub id: FileId,
}

impl Namespace {
    /// Looks up `name` in `dir`. A subvolume's entry leads to its root directory. Returns None if there is no
    /// such entry.
    pub(crate) fn lookup(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        if dir.is_empty_subvolume_dir() {
            return Ok(None);
        }
        let tree = self.roots.tree_of(dir)?;
        let kept = Name::new(dir.root, dir.ino, name).map(|kept| (tree.names.get(&kept), kept));
        if let Some((Ok(ino), _)) = kept {
            return Ok(Some(FileId::new(dir.root, ino)));
        }
        let key = entry_key(dir.ino.0, name);
        match find_entry_at(&tree.view, &key, name)? {
            Some(entry) => {
                let id = self.entry_target(dir, name, entry.location, key)?;
                if let Some((Err(ticket), kept)) = kept
                    && entry.location.item_type == KeyType::INODE_ITEM
                {
                    tree.names.enter(ticket, &kept, id.ino);
                }
                Ok(Some(id))
            }
            None if self.inodes.attr(dir)?.kind != FileKind::Directory => {
                Err(Error::NotADirectory(dir))
            }
            None => Ok(None),
        }
    }

    /// Calls `each` with the entries from index `from` on, in index order, until it breaks.
    pub(crate) fn readdir(
        &self,
        dir: FileId,
        from: u64,
        each: &mut dyn FnMut(DirEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.inodes.attr(dir)?.kind != FileKind::Directory {
            return Err(Error::NotADirectory(dir));
        }
        if dir.is_empty_subvolume_dir() {
            return Ok(());
        }
        let tree = self.roots.tree_of(dir)?;
        let mut cursor = tree.view.cursor().sequential();
        let mut more = cursor.seek(&Key::new(dir.ino.0, KeyType::DIR_INDEX, from))?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if (key.objectid, key.item_type) != (dir.ino.0, KeyType::DIR_INDEX) {
                break;
            }
            let corrupt = |what| Error::Corrupt {
                tree: dir.root,
                key,
                what,
            };
            let entry = DirEntries::new(bytes)
                .next()
                .ok_or_else(|| corrupt(CorruptItem::Undecodable))?;
            let kind = entry
                .kind()
                .ok_or_else(|| corrupt(CorruptItem::Undecodable))?;
            let id = self.entry_target(dir, entry.name, entry.location(), key)?;
            let entry = DirEntry {
                index: key.offset,
                name: entry.name.to_vec(),
                kind,
                id,
            };
            if each(entry).is_break() {
                break;
            }
            more = cursor.advance()?;
        }
        Ok(())
    }

    /// Returns a lower bound of the next entry's index. A listing that stops there terminates even if entries
    /// are added or renamed at the same time.
    pub(crate) fn dir_end(&self, dir: FileId) -> Result<u64> {
        if dir.is_empty_subvolume_dir() {
            return Ok(0);
        }
        let inode = self.inodes.get(dir)?;
        let state = lock::read(&inode.lock)?;
        next_index(&inode, &state)
    }

    /// Returns the inode that an entry of `dir` leads to. `key` is the key of the entry, for errors.
    fn entry_target(&self, dir: FileId, name: &[u8], location: Key, key: Key) -> Result<FileId> {
        match location.item_type {
            KeyType::INODE_ITEM => Ok(inode_of(dir.root, location.objectid, key)?),
            KeyType::ROOT_ITEM => self.nested_subvolume(dir, name, RootId(location.objectid)),
            _ => Err(Error::Corrupt {
                tree: dir.root,
                key,
                what: CorruptItem::Location(location),
            }),
        }
    }

    /// Returns the root directory of the subvolume `name` in `dir`, or an empty subvolume directory. The
    /// entry is valid only if the root tree has a reference for this directory and name.
    pub(super) fn nested_subvolume(
        &self,
        dir: FileId,
        name: &[u8],
        child: RootId,
    ) -> Result<FileId> {
        let key = Key::new(dir.root.0, KeyType::ROOT_REF, child.0);
        let here = self.roots.root_tree().get(&key)?.is_some_and(|item| {
            RootRef::decode(&item).is_some_and(|r| r.dirid == dir.ino.0 && r.name == name)
        });
        if !here {
            return Ok(FileId::empty_subvolume_dir_in(dir));
        }
        match self.roots.root_dir(child) {
            Err(ubtrfs_storage::Error::NoSuchSubvolume(_)) => {
                Ok(FileId::empty_subvolume_dir_in(dir))
            }
            other => Ok(other?),
        }
    }

    /// Returns the parent of `dir`. The root directory of the top level is its own parent.
    pub(crate) fn parent(&self, dir: FileId) -> Result<FileId> {
        self.parent_entry(dir).map(|(parent, _)| parent)
    }

    /// Returns the parent of `dir`, and the index of its entry there. The index is 0 for directories without
    /// an entry: the root directory of the top level, and empty subvolume directories.
    pub(crate) fn parent_entry(&self, dir: FileId) -> Result<(FileId, u64)> {
        if let Some(parent) = dir.empty_subvolume_dir_parent() {
            return Ok((parent, 0));
        }
        let tree = self.roots.tree_of(dir)?;
        if dir.ino.0 == tree.item().root_dirid.get() {
            let place = self.roots.subvolume_place(dir.root)?;
            return Ok(place.map_or((dir, 0), |place| (place.dir, place.sequence)));
        }
        let mut cursor = tree.view.cursor();
        let first = Key::new(dir.ino.0, KeyType::INODE_REF, 0);
        cursor.seek(&first)?;
        let named = cursor.current().and_then(|(key, bytes)| {
            let (parent, index) = match (key.objectid == dir.ino.0, key.item_type) {
                (true, KeyType::INODE_REF) => (key.offset, InodeRefs::new(bytes).next()?.index),
                (true, KeyType::INODE_EXTREF) => {
                    let name = InodeExtrefs::new(bytes).next()?;
                    (name.parent, name.index)
                }
                _ => return None,
            };
            Some((key, parent, index))
        });
        let (key, parent, index) = named.ok_or(Error::Corrupt {
            tree: dir.root,
            key: first,
            what: CorruptItem::NoName(dir.ino),
        })?;
        Ok((inode_of(dir.root, parent, key)?, index))
    }
}
