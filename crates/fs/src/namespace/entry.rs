//! Directory entries: a DIR_ITEM for look-ups by name, and a DIR_INDEX for listings.
//!
//! Names with the same hash share one DIR_ITEM, as many as fit in a leaf.
//!
//! Locks: the directory's, for all drafts here.

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{DirEntries, DirHead, FileKind, FileTime, InodeItem};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::limits;
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_storage::FileId;
use ubtrfs_storage::roots::inode_of;
use ubtrfs_tree::View;
use zerocopy::IntoBytes;

use crate::error::{CorruptItem, Error, Result};
pub(crate) use crate::inode::{
    Bytes, Draft, EntryChange, Inode, InodeState, MAX_NAME_BYTES, Stamps, TRANSID_AT,
    check_mutable, has_room, may_add, may_remove, must_be_dir, note_entry,
};

/// Indices 0 and 1 are reserved for "." and "..", which have no items.
const FIRST_INDEX: u64 = 2;
const HEAD_BYTES: usize = size_of::<DirHead>();

/// An entry to add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) index: u64,
    /// The key of the INODE_ITEM or ROOT_ITEM that it leads to.
    pub(crate) location: Key,
    pub(crate) kind: FileKind,
}

/// A directory entry without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundEntry {
    pub(crate) location: Key,
    /// The raw type byte, which is a [`FileKind`] unless it is corrupt.
    pub(crate) kind: u8,
}

impl FoundEntry {
    /// Returns the inode that the entry `name` of `dir` leads to, or None for a subvolume.
    pub(super) fn inode_in(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        // Only for errors, so that the name is rarely hashed.
        let key = || entry_key(dir.ino.0, name);
        let ino = self.location.objectid;
        match self.location.item_type {
            KeyType::INODE_ITEM => match FileId::stored(dir.root, ino) {
                Some(id) => Ok(Some(id)),
                None => Ok(Some(inode_of(dir.root, ino, key())?)),
            },
            KeyType::ROOT_ITEM => Ok(None),
            _ => Err(Error::Corrupt {
                tree: dir.root,
                key: key(),
                what: CorruptItem::Location(self.location),
            }),
        }
    }
}

pub(crate) fn entry_key(dir: u64, name: &[u8]) -> Key {
    Key::new(dir, KeyType::DIR_ITEM, u64::from(name_hash(name)))
}

pub(super) fn index_key(dir: u64, index: u64) -> Key {
    Key::new(dir, KeyType::DIR_INDEX, index)
}

/// Looks up `name` in directory `dir` of a tree.
pub(crate) fn find_entry(view: &View, dir: u64, name: &[u8]) -> Result<Option<FoundEntry>> {
    find_entry_at(view, &entry_key(dir, name), name)
}

/// Looks up a name by the key of its hash.
pub(super) fn find_entry_at(view: &View, key: &Key, name: &[u8]) -> Result<Option<FoundEntry>> {
    let item = view.get(key)?;
    Ok(item.and_then(|item| find_record(&item, name).map(|record| record.entry)))
}

/// Returns the entry at an index of a directory, with its name.
pub(crate) fn find_listed(
    view: &View,
    dir: u64,
    index: u64,
) -> Result<Option<(Vec<u8>, FoundEntry)>> {
    let Some(item) = view.get(&index_key(dir, index))? else {
        return Ok(None);
    };
    let entry = DirEntries::new(&item).next();
    Ok(entry.map(|entry| {
        let found = FoundEntry {
            location: entry.location(),
            kind: entry.head.type_,
        };
        (entry.name.to_vec(), found)
    }))
}

struct EntryBytes {
    entry: FoundEntry,
    start: usize,
    len: usize,
}

fn find_record(item: &[u8], name: &[u8]) -> Option<EntryBytes> {
    let mut entries = DirEntries::new(item);
    loop {
        let start = item.len() - entries.rest().len();
        let entry = entries.next()?;
        if entry.name == name {
            return Some(EntryBytes {
                entry: FoundEntry {
                    location: entry.location(),
                    kind: entry.head.type_,
                },
                start,
                len: HEAD_BYTES + entry.name.len() + entry.data.len(),
            });
        }
    }
}

/// Checks that a name is valid for an entry.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    Ok(limits::check_name(name)?)
}

impl Draft<'_> {
    /// Looks up `name` in a directory.
    pub(super) fn find_entry(&mut self, dir: InodeNr, name: &[u8]) -> Result<Option<FoundEntry>> {
        let item = self.get(&entry_key(dir.0, name))?;
        Ok(item.and_then(|item| find_record(&item, name).map(|record| record.entry)))
    }

    /// Adds an entry at an unused index.
    ///
    /// Errors: the name exists, or too many names have the same hash.
    pub(crate) fn add_entry(&mut self, dir: InodeNr, entry: NewEntry<'_>) -> Result<()> {
        let mut buf = [0; HEAD_BYTES + MAX_NAME_BYTES];
        let record = encode(&mut buf, &entry);
        let key = entry_key(dir.0, entry.name);
        let old = self.get(&key)?;
        if let Some(old) = &old {
            self.check_fits(old, entry.name, record.len())?;
        }
        // DRAFT-2
        self.note_name(dir, entry.name, Some(entry.location));
        self.append(key, old.as_ref(), record, Some(TRANSID_AT));
        let stamps = Stamps::at(TRANSID_AT);
        self.insert(index_key(dir.0, entry.index), record, stamps);
        Ok(())
    }

    fn check_fits(&self, old: &Bytes, name: &[u8], more: usize) -> Result<()> {
        if find_record(old, name).is_some() {
            return Err(Error::Exists);
        }
        if has_room(&self.tree().view, old.len(), more) {
            Ok(())
        } else {
            Err(Error::NameHashFull)
        }
    }

    /// Adds an entry and updates the directory's item. Returns the item from before the change.
    pub(crate) fn add_to_dir(
        &mut self,
        dir: FileId,
        entry: NewEntry<'_>,
        now: FileTime,
    ) -> Result<InodeItem> {
        let before = self.may_add_to(dir, entry.name)?;
        self.add_entry(dir.ino, entry)?;
        let mut item = before;
        note_entry(&mut item, now, EntryChange::Added, entry.name.len());
        self.put_inode(dir.ino, &item);
        Ok(before)
    }

    /// Removes an entry and updates the directory's item.
    pub(crate) fn remove_from_dir(
        &mut self,
        dir: FileId,
        name: &[u8],
        index: u64,
        now: FileTime,
    ) -> Result<()> {
        let item = self.inode(dir)?;
        may_remove(self.tree(), dir, &item)?;
        self.remove_from_known(dir, item, (name, index), now)
    }

    /// Removes an entry and updates `item`, the directory's item, which the caller has checked.
    pub(super) fn remove_from_known(
        &mut self,
        dir: FileId,
        mut item: InodeItem,
        (name, index): (&[u8], u64),
        now: FileTime,
    ) -> Result<()> {
        self.remove_entry(dir.ino, name, index)?;
        note_entry(&mut item, now, EntryChange::Removed, name.len());
        self.put_inode(dir.ino, &item);
        Ok(())
    }

    /// Checks that an entry `name` may be added to a directory. Returns the directory's item.
    pub(super) fn may_add_to(&mut self, dir: FileId, name: &[u8]) -> Result<InodeItem> {
        let item = self.inode(dir)?;
        must_be_dir(dir, &item)?;
        if self.find_entry(dir.ino, name)?.is_some() {
            return Err(Error::Exists);
        }
        may_add(self.tree(), dir, &item)?;
        Ok(item)
    }

    /// Checks that entries may be removed from a directory. Returns the directory's item.
    pub(crate) fn may_remove_from(&mut self, dir: FileId) -> Result<InodeItem> {
        let item = self.inode(dir)?;
        must_be_dir(dir, &item)?;
        may_remove(self.tree(), dir, &item)?;
        Ok(item)
    }

    /// Checks that an inode's names may change.
    pub(crate) fn check_mutable(&mut self, id: FileId) -> Result<()> {
        check_mutable(id, &self.inode(id)?)
    }

    /// Changes the target of an entry.
    pub(crate) fn redirect_entry(&mut self, dir: u64, name: &[u8], location: Key) -> Result<()> {
        let key = entry_key(dir, name);
        let old = self.get(&key)?.ok_or(Error::NotFound)?;
        let EntryBytes { start, .. } = find_record(&old, name).ok_or(Error::NotFound)?;
        let mut item = old.to_vec();
        let at = start + std::mem::offset_of!(DirHead, location);
        item[at..at + size_of::<DiskKey>()].copy_from_slice(DiskKey::from(location).as_bytes());
        // DRAFT-2
        self.note_name(InodeNr(dir), name, Some(location));
        self.put(key, item, Stamps::NONE);
        Ok(())
    }

    /// Removes an entry. Its index is known from the back reference.
    pub(crate) fn remove_entry(&mut self, dir: InodeNr, name: &[u8], index: u64) -> Result<()> {
        let key = entry_key(dir.0, name);
        let old = self.get(&key)?.ok_or(Error::NotFound)?;
        let EntryBytes { start, len, .. } = find_record(&old, name).ok_or(Error::NotFound)?;
        let index = index_key(dir.0, index);
        let listed = self.get(&index)?;
        if listed.is_none_or(|item| find_record(&item, name).is_none()) {
            return Err(Error::Corrupt {
                tree: self.tree().id(),
                key: index,
                what: CorruptItem::NotListed,
            });
        }
        // DRAFT-2
        self.note_name(dir, name, None);
        self.cut(key, &old, start, len);
        self.delete(index);
        Ok(())
    }
}

fn encode<'b>(buf: &'b mut [u8; HEAD_BYTES + MAX_NAME_BYTES], entry: &NewEntry<'_>) -> &'b [u8] {
    let head = DirHead {
        location: entry.location.into(),
        transid: 0.into(),
        data_len: 0.into(),
        name_len: (entry.name.len() as u16).into(),
        type_: entry.kind.raw(),
    };
    let len = HEAD_BYTES + entry.name.len();
    buf[..HEAD_BYTES].copy_from_slice(head.as_bytes());
    buf[HEAD_BYTES..len].copy_from_slice(entry.name);
    &buf[..len]
}

/// Returns the next index of a directory. The caller marks it as used by setting `state.next_index` beyond
/// it.
pub(crate) fn next_index(dir: &Inode, state: &InodeState) -> Result<u64> {
    if let Some(index) = state.next_index {
        return Ok(index);
    }
    let mut cursor = dir.tree.view.cursor();
    let end = index_key(dir.id.ino.0, u64::MAX);
    if cursor.seek_floor(&end)?
        && let Some((key, _)) = cursor.current()
        && (key.objectid, key.item_type) == (end.objectid, end.item_type)
    {
        return match key.offset.checked_add(1) {
            Some(index) => Ok(index.max(FIRST_INDEX)),
            None => Err(Error::NoSpace),
        };
    }
    Ok(FIRST_INDEX)
}

/// Searches all entries of a directory for the index of `name`. Needed for entries without a back reference.
pub(crate) fn search_index(view: &View, dir: FileId, name: &[u8]) -> Result<Option<u64>> {
    let mut cursor = view.cursor().sequential();
    let mut more = cursor.seek(&index_key(dir.ino.0, 0))?;
    while more {
        let Some((key, bytes)) = cursor.current() else {
            break;
        };
        if (key.objectid, key.item_type) != (dir.ino.0, KeyType::DIR_INDEX) {
            break;
        }
        if find_record(bytes, name).is_some() {
            return Ok(Some(key.offset));
        }
        more = cursor.advance()?;
    }
    Ok(None)
}
