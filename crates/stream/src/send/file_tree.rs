//! Inodes and names in one snapshot.
//!
//! Not here: their locations at the receiver (`receiver`).

use std::ops::ControlFlow;

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{DirEntries, FileKind, InodeExtrefs, InodeItem, InodeRefs};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_fs::Snapshot;
use ubtrfs_tree::RecentLeaves;
use zerocopy::FromBytes;

use super::error::{CorruptFile, Result, SendError};

/// Maximum path length of a receiver, which is below PATH_MAX.
pub(super) const MAX_PATH_BYTES: usize = 4095;
/// Maximum number of names of a file, above the kernel's limit.
const MAX_NAMES: usize = 1 << 16;
/// The root directory of every subvolume.
pub(super) const ROOT_DIR: u64 = InodeNr::FIRST_FREE.0;

/// Returns whether an objectid is a user-visible inode, as opposed to an internal list of the file system.
pub(super) fn is_inode(objectid: u64) -> bool {
    (InodeNr::FIRST_FREE.0..=RootId::LAST_FREE).contains(&objectid)
}

/// A name of an inode.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Name {
    pub(super) dir: u64,
    pub(super) name: Vec<u8>,
}

impl Name {
    /// Returns whether the name is valid in a path.
    fn is_sound(&self) -> bool {
        !matches!(&self.name[..], b"" | b"." | b"..")
            && !self.name.iter().any(|&byte| byte == b'/' || byte == 0)
    }
}

/// An inode item with its file type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inode {
    pub(super) item: InodeItem,
    pub(super) kind: FileKind,
}

impl Inode {
    pub(super) fn generation(&self) -> u64 {
        self.item.generation.get()
    }

    pub(super) fn size(&self) -> u64 {
        self.item.size.get()
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns whether both may be states of one inode, as opposed to two inodes with the same number.
    ///
    /// Generations may also be equal by chance, in unrelated subvolumes.
    fn is_alike(&self, other: &Inode) -> bool {
        (self.generation(), self.kind, self.item.rdev)
            == (other.generation(), other.kind, other.item.rdev)
    }
}

/// One snapshot for look-ups.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileTree<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// The recently used leaves of its tree.
    pub(super) leaves: &'a RecentLeaves,
}

impl<'a> FileTree<'a> {
    pub(super) fn corrupt(&self, ino: u64, what: CorruptFile) -> SendError {
        SendError::Corrupt {
            root: self.snapshot.id(),
            ino: InodeNr(ino),
            what,
        }
    }

    /// Checks that an inode can be a parent.
    pub(super) fn check_dir(&self, ino: u64) -> Result<()> {
        if self.inode(ino)?.is_some_and(|inode| inode.is_dir()) {
            Ok(())
        } else {
            Err(self.corrupt(ino, CorruptFile::NotDirectory))
        }
    }

    /// Decodes an item. Returns None for an inode without names.
    pub(super) fn decode(&self, ino: u64, bytes: &[u8]) -> Result<Option<Inode>> {
        let item = InodeItem::read_from_prefix(bytes)
            .map_err(|_| self.corrupt(ino, CorruptFile::Undecodable))?
            .0;
        if item.nlink.get() == 0 {
            return Ok(None);
        }
        let kind = FileKind::from_mode(item.mode.get())
            .ok_or_else(|| self.corrupt(ino, CorruptFile::Mode))?;
        Ok(Some(Inode { item, kind }))
    }

    /// Reads an inode that has a name.
    pub(super) fn inode(&self, ino: u64) -> Result<Option<Inode>> {
        let key = Key::new(ino, KeyType::INODE_ITEM, 0);
        match self.leaves.get(&key)? {
            Some(item) => self.decode(ino, &item),
            None => Ok(None),
        }
    }

    /// Returns whether an inode of this tree is the same as the one with its number in `other`.
    pub(super) fn has_same_inode(
        &self,
        ino: u64,
        inode: &Inode,
        other: &FileTree<'_>,
        others: &Inode,
    ) -> Result<bool> {
        if !inode.is_alike(others) {
            return Ok(false);
        }
        // A symlink's target never changes.
        let is_symlink = inode.kind == FileKind::Symlink;
        Ok(!is_symlink || self.target(ino)? == other.target(ino)?)
    }

    /// Reads the item with the target of a symbolic link, without its generation.
    fn target(&self, ino: u64) -> Result<Option<Vec<u8>>> {
        let item = self.leaves.get(&Key::new(ino, KeyType::EXTENT_DATA, 0))?;
        Ok(item.map(|item| item.get(size_of::<u64>()..).unwrap_or_default().to_vec()))
    }

    /// Lists all names of an inode, in the order of their items.
    pub(super) fn names(&self, ino: u64) -> Result<Vec<Name>> {
        self.names_until(ino, |_| false)
    }

    /// Lists names of an inode in the order of their items, until `is_enough`.
    pub(super) fn names_until(
        &self,
        ino: u64,
        is_enough: impl Fn(&[Name]) -> bool,
    ) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        let mut fault = None;
        let first = Key::new(ino, KeyType::INODE_REF, 0);
        self.leaves.walk(&first, |key, bytes| {
            if key.objectid != ino || key.item_type > KeyType::INODE_EXTREF {
                return ControlFlow::Break(());
            }
            let from = names.len();
            push_names(key, bytes, &mut names);
            if names[from..].iter().any(|name| !name.is_sound()) {
                fault = Some(CorruptFile::Name);
            } else if names.len() > MAX_NAMES {
                fault = Some(CorruptFile::TooManyNames);
            }
            if fault.is_some() || is_enough(&names) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        fault.map_or(Ok(names), |fault| Err(self.corrupt(ino, fault)))
    }

    /// Returns the name that is used in paths.
    pub(super) fn first_name(&self, ino: u64) -> Result<Name> {
        let names = self.names_until(ino, |names| !names.is_empty())?;
        let first = names.into_iter().next();
        first.ok_or_else(|| self.corrupt(ino, CorruptFile::NoName))
    }

    /// Returns a path of an inode.
    pub(super) fn path(&self, ino: u64) -> Result<Vec<u8>> {
        let mut path: Vec<u8> = Vec::new();
        let mut at = ino;
        while at != ROOT_DIR {
            let name = self.first_name(at)?;
            path = if path.is_empty() {
                name.name
            } else {
                [&name.name, &b"/"[..], &path].concat()
            };
            if path.len() > MAX_PATH_BYTES {
                return Err(self.corrupt(ino, CorruptFile::PathTooLong));
            }
            at = name.dir;
        }
        Ok(path)
    }

    /// Reads the value of an extended attribute.
    pub(super) fn xattr(&self, ino: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let key = Key::new(ino, KeyType::XATTR_ITEM, u64::from(name_hash(name)));
        let Some(item) = self.leaves.get(&key)? else {
            return Ok(None);
        };
        let found = DirEntries::new(&item).find(|entry| entry.name == name);
        Ok(found.map(|entry| entry.data.to_vec()))
    }

    /// Looks up the inode of a name. Returns None without an entry, and for a nested subvolume.
    pub(super) fn entry(&self, dir: u64, name: &[u8]) -> Result<Option<u64>> {
        let found = self.location(dir, name)?;
        Ok(found
            .filter(|key| key.item_type == KeyType::INODE_ITEM)
            .map(|key| key.objectid))
    }

    /// Looks up the location in an entry, including nested subvolumes.
    pub(super) fn location(&self, dir: u64, name: &[u8]) -> Result<Option<Key>> {
        let key = Key::new(dir, KeyType::DIR_ITEM, u64::from(name_hash(name)));
        let Some(item) = self.leaves.get(&key)? else {
            return Ok(None);
        };
        let found = DirEntries::new(&item).find(|entry| entry.name == name);
        Ok(found.map(|entry| entry.location()))
    }
}

/// Adds the names in an item, if the item type has names.
pub(super) fn push_names(key: Key, bytes: &[u8], names: &mut Vec<Name>) {
    match key.item_type {
        KeyType::INODE_REF => names.extend(InodeRefs::new(bytes).map(|found| Name {
            dir: key.offset,
            name: found.name.to_vec(),
        })),
        KeyType::INODE_EXTREF => names.extend(InodeExtrefs::new(bytes).map(|found| Name {
            dir: found.parent,
            name: found.name.to_vec(),
        })),
        _ => {}
    }
}
