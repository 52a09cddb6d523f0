//! The first stage: inode items, and the removal of items that the log lacks.

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{DirEntries, DirLogItem, FileKind, InodeItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Edit;
use zerocopy::{FromBytes, IntoBytes};

use super::Replay;
use crate::error::{CorruptItem, Error, Result};
use crate::inode::{decode_inode, inode_key, kind_of};

/// The meaning of the generation in a logged inode item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logged {
    /// The item only records that the inode exists.
    Existence,
    All,
}

impl Replay<'_, '_> {
    /// Replays an INODE_ITEM. Drops attributes and entries that the log lacks, and extents beyond the size.
    pub(super) fn replay_inode(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        if key.item_type != KeyType::INODE_ITEM {
            return Ok(());
        }
        let id = self.file(InodeNr(key.objectid));
        let item = decode_inode(id, bytes)?;
        if item.nlink.get() == 0 {
            self.skipped.insert(key.objectid);
            return Ok(());
        }
        let kind = kind_of(id, &item)?;
        let old = self.find_inode(id.ino)?;
        if let Some(old) = &old
            && kind_of(id, old)? != kind
        {
            return Err(self.corrupt(key, CorruptItem::LogKind));
        }
        self.remove_xattrs(id.ino)?;
        if kind == FileKind::Directory && old.is_some() {
            self.remove_entries(id.ino)?;
        }
        // Read it again: removing entries has changed the directory's size.
        let old = self.find_inode(id.ino)?;
        let new = self.merged(&item, old.as_ref(), kind);
        if old.as_ref() != Some(&new) {
            self.put_inode(id.ino, &new);
        }
        let logged = logged(&item);
        let is_cut = old.is_some_and(|old| logged == Logged::All || old.size != new.size);
        if kind == FileKind::Regular && is_cut {
            self.truncate_extents(id, new.size.get())?;
        }
        self.recount.insert(id.ino);
        Ok(())
    }

    /// Returns the new inode item. The sizes of directories and `nbytes` are updated when their items are
    /// replayed.
    fn merged(&self, item: &InodeItem, old: Option<&InodeItem>, kind: FileKind) -> InodeItem {
        let Some(old) = old else {
            let mut new = *item;
            new.nbytes = 0.into();
            if logged(item) == Logged::Existence {
                new.generation = self.target.transid().0.into();
            }
            if kind == FileKind::Directory {
                new.size = 0.into();
            }
            return new;
        };
        let mut new = match logged(item) {
            Logged::All => InodeItem {
                nbytes: old.nbytes,
                nlink: old.nlink,
                ..*item
            },
            Logged::Existence => *old,
        };
        match kind {
            FileKind::Directory => new.size = old.size,
            FileKind::Regular if logged(item) == Logged::Existence && item.size.get() != 0 => {
                new.size = item.size;
            }
            _ => {}
        }
        new
    }

    /// Deletes the attributes that the log lacks. A log has all attributes of an inode.
    fn remove_xattrs(&mut self, ino: InodeNr) -> Result<()> {
        let mut edits = Vec::new();
        let mut cursor = self.tree.view.cursor();
        let first = Key::new(ino.0, KeyType::XATTR_ITEM, 0);
        let mut more = cursor.seek(&first)?;
        while more
            && let Some((key, _)) = cursor.current()
            && (key.objectid, key.item_type) == (first.objectid, first.item_type)
        {
            if self.log.get(&key)?.is_none() {
                edits.push(Edit::Delete(key));
            }
            more = cursor.advance()?;
        }
        drop(cursor);
        if !edits.is_empty() {
            self.target.edit_items(&self.tree, edits, None);
        }
        Ok(())
    }

    /// Replays an XATTR_ITEM, which holds all attributes with the same hash.
    pub(super) fn replay_xattr(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        if self.tree.view.get(&key)?.is_some_and(|old| *old == *bytes) {
            return Ok(());
        }
        self.check_inode(key)?;
        self.target
            .edit_items(&self.tree, vec![Edit::Put(key, bytes.into())], None);
        Ok(())
    }

    /// Removes the entries of a directory that the log lacks in its complete ranges.
    fn remove_entries(&mut self, dir: InodeNr) -> Result<()> {
        let log = self.log;
        let mut cursor = log.cursor();
        let first = Key::new(dir.0, KeyType::DIR_LOG_INDEX, 0);
        let mut more = cursor.seek(&first)?;
        while more
            && let Some((key, bytes)) = cursor.current()
            && (key.objectid, key.item_type) == (first.objectid, first.item_type)
        {
            let item = DirLogItem::ref_from_bytes(bytes)
                .map_err(|_| self.corrupt(key, CorruptItem::Undecodable))?;
            self.remove_range(dir, key.offset, item.end.get())?;
            more = cursor.advance()?;
        }
        Ok(())
    }

    fn remove_range(&mut self, dir: InodeNr, first: u64, last: u64) -> Result<()> {
        let mut from = Key::new(dir.0, KeyType::DIR_INDEX, first);
        loop {
            let mut cursor = self.tree.view.cursor();
            if !cursor.seek(&from)? {
                return Ok(());
            }
            let Some((key, bytes)) = cursor.current() else {
                return Ok(());
            };
            if (key.objectid, key.item_type) != (from.objectid, from.item_type) || key.offset > last
            {
                return Ok(());
            }
            let name = DirEntries::new(bytes)
                .next()
                .map(|entry| entry.name.to_vec())
                .ok_or_else(|| self.corrupt(key, CorruptItem::Undecodable))?;
            drop(cursor);
            let logged = self.log.get(&key)?;
            let stays =
                logged.is_some_and(|item| DirEntries::new(&item).any(|entry| entry.name == name));
            if !stays {
                self.unlink(dir, &name)?;
            }
            match key.next() {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    pub(super) fn find_inode(&self, ino: InodeNr) -> Result<Option<InodeItem>> {
        match self.tree.view.get(&inode_key(ino))? {
            Some(bytes) => decode_inode(self.file(ino), &bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the inode of a log item.
    ///
    /// Errors: the inode does not exist.
    pub(super) fn check_inode(&self, key: Key) -> Result<InodeItem> {
        let ino = InodeNr(key.objectid);
        let item = self.find_inode(ino)?;
        item.ok_or_else(|| self.corrupt(key, CorruptItem::LogNoInode(ino)))
    }

    /// Replaces an INODE_ITEM.
    pub(super) fn put_inode(&self, ino: InodeNr, item: &InodeItem) {
        let edit = Edit::Put(inode_key(ino), item.as_bytes().into());
        self.target.edit_items(&self.tree, vec![edit], None);
    }

    pub(super) fn corrupt(&self, key: Key, what: CorruptItem) -> Error {
        let tree = self.root();
        Error::Corrupt { tree, key, what }
    }
}

fn logged(item: &InodeItem) -> Logged {
    match item.generation.get() {
        0 => Logged::Existence,
        _ => Logged::All,
    }
}
