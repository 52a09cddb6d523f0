//! Names: directory entries, and the back references that name inodes.

use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{DirEntries, FileKind, InodeItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Edit;

use super::Replay;
use crate::error::{CorruptItem, Result};
use crate::inode::{Draft, inode_key, kind_of};
use crate::log::logged_name::{LoggedName, names_of};
use crate::namespace::{NewEntry, find_entry, find_listed, has_ref};

impl Replay<'_, '_> {
    /// Replays a DIR_INDEX item, unless a back reference in the log will do so.
    pub(super) fn replay_entry(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        if key.item_type != KeyType::DIR_INDEX {
            return Ok(());
        }
        let entry = DirEntries::new(bytes)
            .next()
            .ok_or_else(|| self.corrupt(key, CorruptItem::Undecodable))?;
        let (location, kind) = (entry.location(), entry.head.type_);
        let dir = InodeNr(key.objectid);
        self.check_inode(key)?;
        let view = &self.tree.view;
        let by_name = find_entry(view, dir.0, entry.name)?;
        let leads_there =
            by_name.is_some_and(|found| (found.location, found.kind) == (location, kind));
        let listed = find_listed(view, dir.0, key.offset)?;
        let listed_there = listed.as_ref().is_some_and(|(name, found)| {
            *name == entry.name && (found.location, found.kind) == (location, kind)
        });
        if leads_there && listed_there {
            return Ok(());
        }
        if location.item_type != KeyType::INODE_ITEM {
            return Err(self.corrupt(key, CorruptItem::LogSubvolumeEntry));
        }
        let target = InodeNr(location.objectid);
        let Some(item) = self.find_inode(target)? else {
            return Ok(());
        };
        if by_name.is_some() && !leads_there {
            self.unlink(dir, entry.name)?;
        }
        if leads_there || has_ref(self.log, target, dir, entry.name)? {
            return Ok(());
        }
        let name = LoggedName {
            dir,
            index: key.offset,
            name: entry.name.to_vec(),
        };
        self.link(key, target, &item, &name, Ref::Missing)
    }

    /// Replays an INODE_REF or INODE_EXTREF. Afterwards its key has exactly the logged names.
    pub(super) fn replay_refs(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        let ino = InodeNr(key.objectid);
        if key.item_type == KeyType::INODE_REF && key.offset == ino.0 {
            // The name ".." of a subvolume's top directory, which no directory lists.
            return Ok(());
        }
        let item = self.check_inode(key)?;
        let mut names = names_of(key, bytes);
        if names.is_empty() {
            return Err(self.corrupt(key, CorruptItem::Undecodable));
        }
        if key.item_type == KeyType::INODE_REF && self.find_inode(names[0].dir)?.is_none() {
            return Ok(());
        }
        let old = self.tree.view.get(&key)?;
        let old = old.map_or_else(Vec::new, |old| names_of(key, &old));
        for lost in old.iter().filter(|old| {
            let stays = |name: &LoggedName| (name.dir, &name.name) == (old.dir, &old.name);
            !names.iter().any(stays)
        }) {
            self.unlink(lost.dir, &lost.name)?;
        }
        let mut skipped = false;
        let mut known = Vec::with_capacity(names.len());
        for name in names.drain(..) {
            // An INODE_EXTREF may have names in several directories.
            if self.find_inode(name.dir)?.is_none() {
                skipped = true;
                continue;
            }
            self.replay_name(key, ino, &item, &name)?;
            known.push(name);
        }
        self.recount.insert(ino);
        if !skipped && self.tree.view.get(&key)?.is_none_or(|old| *old != *bytes) {
            let edits = vec![Edit::Put(key, bytes.into())];
            self.target.edit_items(&self.tree, edits, None);
        } else if skipped {
            self.add_missing_refs(ino, &known)?;
        }
        Ok(())
    }

    /// Adds a name to an inode, unless it has that name. Replaces another inode's entry with this name.
    fn replay_name(
        &mut self,
        key: Key,
        ino: InodeNr,
        item: &InodeItem,
        name: &LoggedName,
    ) -> Result<()> {
        let view = &self.tree.view;
        let location = inode_key(ino);
        let by_name = find_entry(view, name.dir.0, &name.name)?;
        let listed = find_listed(view, name.dir.0, name.index)?;
        let is_listed =
            listed.is_some_and(|(listed, found)| listed == name.name && found.location == location);
        if is_listed && by_name.is_some_and(|found| found.location == location) {
            return Ok(());
        }
        if by_name.is_some() {
            self.unlink(name.dir, &name.name)?;
        }
        self.link(key, ino, item, name, Ref::InLog)
    }

    /// Inserts an entry.
    fn link(
        &mut self,
        key: Key,
        ino: InodeNr,
        item: &InodeItem,
        name: &LoggedName,
        back_ref: Ref,
    ) -> Result<()> {
        if find_listed(&self.tree.view, name.dir.0, name.index)?.is_some() {
            return Err(self.corrupt(key, CorruptItem::LogIndexTaken(name.index)));
        }
        let kind = kind_of(self.file(ino), item)?;
        let mut dir = self.directory(key, name.dir)?;
        let tree = self.tree.clone();
        let mut draft = Draft::new(&tree);
        let entry = NewEntry {
            name: &name.name,
            index: name.index,
            location: inode_key(ino),
            kind,
        };
        draft.add_entry(name.dir, entry)?;
        if back_ref == Ref::Missing {
            let extrefs = self.has_extrefs();
            draft.add_ref(ino, name.dir, name.index, &name.name, extrefs)?;
        }
        draft.enter_into(self.target);
        dir.size = dir
            .size
            .get()
            .saturating_add(2 * name.name.len() as u64)
            .into();
        self.put_inode(name.dir, &dir);
        self.recount.insert(ino);
        Ok(())
    }

    /// Removes a name and its back reference.
    pub(super) fn unlink(&mut self, dir: InodeNr, name: &[u8]) -> Result<()> {
        let key = Key::new(dir.0, KeyType::DIR_INDEX, 0);
        let found = find_entry(&self.tree.view, dir.0, name)?
            .ok_or_else(|| self.corrupt(key, CorruptItem::NotListed))?;
        if found.location.item_type != KeyType::INODE_ITEM {
            return Err(self.corrupt(key, CorruptItem::LogSubvolumeEntry));
        }
        let ino = InodeNr(found.location.objectid);
        let mut item = self.directory(key, dir)?;
        let tree = self.tree.clone();
        let mut draft = Draft::new(&tree);
        let index = draft.remove_ref(ino, dir, name)?;
        draft.remove_entry(dir, name, index)?;
        draft.enter_into(self.target);
        item.size = item.size.get().saturating_sub(2 * name.len() as u64).into();
        self.put_inode(dir, &item);
        self.recount.insert(ino);
        Ok(())
    }

    fn directory(&self, key: Key, dir: InodeNr) -> Result<InodeItem> {
        let item = self
            .find_inode(dir)?
            .ok_or_else(|| self.corrupt(key, CorruptItem::LogNoInode(dir)))?;
        match kind_of(self.file(dir), &item)? {
            FileKind::Directory => Ok(item),
            _ => Err(self.corrupt(key, CorruptItem::LogKind)),
        }
    }

    /// Adds the names of an inode from a back reference item that could not be copied as a whole.
    fn add_missing_refs(&self, ino: InodeNr, names: &[LoggedName]) -> Result<()> {
        let extrefs = self.has_extrefs();
        for name in names {
            if !has_ref(&self.tree.view, ino, name.dir, &name.name)? {
                let mut draft = Draft::new(&self.tree);
                draft.add_ref(ino, name.dir, name.index, &name.name, extrefs)?;
                draft.enter_into(self.target);
            }
        }
        Ok(())
    }

    fn has_extrefs(&self) -> bool {
        let incompat = self.roots().superblock().incompat();
        incompat.contains(Incompat::EXTENDED_IREF)
    }
}

/// Whether the log has the back reference of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ref {
    InLog,
    Missing,
}
