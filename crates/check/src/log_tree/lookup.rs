//! Look-ups in a subvolume's log and in the subvolume as of the last commit.
//!
//! A look-up returns an error for an unreadable block. The walks of both trees report these.

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{DirEntries, DirLogItem, InodeExtrefs, InodeItem, InodeRefs};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::extref_hash;
use ubtrfs_tree::{Item, TreeError, View};
use zerocopy::FromBytes;

/// Maximum number of ranges of one directory to examine for one name; logs of the kernel have few.
const MAX_RANGES: usize = 4096;

type Result<T> = std::result::Result<T, TreeError>;

/// A name of an inode.
#[derive(Clone, Debug)]
pub(super) struct InodeName {
    pub(super) dir: u64,
    pub(super) index: u64,
    pub(super) name: Vec<u8>,
}

pub(super) struct Lookup {
    pub(super) log: View,
    /// None if the subvolume does not exist.
    pub(super) committed: Option<View>,
}

impl Lookup {
    pub(super) fn committed(&self, key: &Key) -> Result<Option<Item>> {
        match &self.committed {
            Some(view) => view.get(key),
            None => Ok(None),
        }
    }

    pub(super) fn committed_inode(&self, inode: u64) -> Result<Option<InodeItem>> {
        Ok(decode(self.committed(&inode_key(inode))?))
    }

    /// Returns the inode as after the replay, except for its size and link count.
    pub(super) fn inode(&self, inode: u64) -> Result<Option<InodeItem>> {
        let logged = decode(self.log.get(&inode_key(inode))?);
        match logged.filter(|item| item.nlink.get() > 0) {
            Some(item) => Ok(Some(item)),
            None => self.committed_inode(inode),
        }
    }

    /// Returns whether the log removes a name of the last commit from its directory.
    pub(super) fn is_removed(&self, dir: u64, index: u64, name: &[u8]) -> Result<bool> {
        let mut cursor = self.log.cursor();
        let range = Key::new(dir, KeyType::DIR_LOG_INDEX, index);
        let mut more = cursor.seek_floor(&range)?;
        let mut is_covered = false;
        for _ in 0..MAX_RANGES {
            let Some((key, bytes)) = cursor.current().filter(|_| more) else {
                break;
            };
            if (key.objectid, key.item_type) != (range.objectid, range.item_type) {
                break;
            }
            let last = DirLogItem::ref_from_bytes(bytes).map_or(0, |item| item.end.get());
            is_covered = index <= last;
            if is_covered {
                break;
            }
            more = cursor.retreat()?;
        }
        drop(cursor);
        if !is_covered {
            return Ok(false);
        }
        let listed = self.log.get(&Key::new(dir, KeyType::DIR_INDEX, index))?;
        let is_listed =
            listed.is_some_and(|item| DirEntries::new(&item).any(|entry| entry.name == name));
        Ok(!is_listed)
    }

    /// Returns whether the log has the item with a back reference of the last commit. The item lists all names that
    /// remain.
    pub(super) fn has_refs_of(&self, inode: u64, dir: u64, name: &[u8]) -> Result<bool> {
        Ok(self.log.get(&ref_key(inode, dir))?.is_some()
            || self.log.get(&extref_key(inode, dir, name))?.is_some())
    }

    /// Returns the names of an inode at the last commit in items that the log does not replace.
    pub(super) fn names_kept(&self, inode: u64) -> Result<Vec<InodeName>> {
        let Some(view) = &self.committed else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        let mut cursor = view.cursor();
        let mut more = cursor.seek(&ref_key(inode, 0))?;
        while more && let Some((key, bytes)) = cursor.current() {
            if key.objectid != inode || !is_ref(key.item_type) {
                break;
            }
            if self.log.get(&key)?.is_none() {
                names.extend(names_of(key, bytes));
            }
            more = cursor.advance()?;
        }
        Ok(names)
    }

    /// Returns the parent of a directory after the replay.
    pub(super) fn parent(&self, dir: u64) -> Result<Option<u64>> {
        if let Some(parent) = parent_in(&self.log, dir)? {
            return Ok(Some(parent));
        }
        match &self.committed {
            Some(view) => parent_in(view, dir),
            None => Ok(None),
        }
    }
}

fn parent_in(view: &View, dir: u64) -> Result<Option<u64>> {
    let mut cursor = view.cursor();
    if !cursor.seek(&ref_key(dir, 0))? {
        return Ok(None);
    }
    let Some((key, bytes)) = cursor.current() else {
        return Ok(None);
    };
    let is_own = key.objectid == dir && is_ref(key.item_type);
    let first = is_own.then(|| names_of(key, bytes).into_iter().next());
    Ok(first.flatten().map(|name| name.dir))
}

fn is_ref(item_type: KeyType) -> bool {
    matches!(item_type, KeyType::INODE_REF | KeyType::INODE_EXTREF)
}

/// Returns the names in an INODE_REF or INODE_EXTREF. The root directory has none.
pub(super) fn names_of(key: Key, bytes: &[u8]) -> Vec<InodeName> {
    let top = InodeNr::FIRST_FREE.0;
    match key.item_type {
        KeyType::INODE_REF if (key.objectid, key.offset) == (top, top) => Vec::new(),
        KeyType::INODE_REF => InodeRefs::new(bytes)
            .map(|entry| InodeName {
                dir: key.offset,
                index: entry.index,
                name: entry.name.to_vec(),
            })
            .collect(),
        _ => InodeExtrefs::new(bytes)
            .map(|entry| InodeName {
                dir: entry.parent,
                index: entry.index,
                name: entry.name.to_vec(),
            })
            .collect(),
    }
}

fn decode(item: Option<Item>) -> Option<InodeItem> {
    item.and_then(|item| InodeItem::read_from_bytes(&item).ok())
}

pub(super) fn inode_key(inode: u64) -> Key {
    Key::new(inode, KeyType::INODE_ITEM, 0)
}

fn ref_key(inode: u64, dir: u64) -> Key {
    Key::new(inode, KeyType::INODE_REF, dir)
}

fn extref_key(inode: u64, dir: u64, name: &[u8]) -> Key {
    Key::new(inode, KeyType::INODE_EXTREF, extref_hash(dir, name))
}
