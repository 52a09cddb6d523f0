//! Names in a log: those that an inode gained, and those that it lost.
//!
//! A gained name is logged as a back reference. A lost name is logged as a range of indexes of its directory
//! for which the log is complete.

use std::collections::HashSet;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{DirEntries, DirLogItem, FileKind};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_storage::FullCommitReason;
use zerocopy::{FromBytes, IntoBytes};

use super::edits::keys_of;
use super::gather::{Gather, Step, Subject};
use super::{Part, Stop};
use crate::error::Result;
use crate::log::logged_name::{LoggedName, names_of};
use crate::namespace::{find_entry, find_listed};

/// The inode number of a subvolume's top directory.
const TOP: u64 = RootId::FIRST_FREE;

impl Gather<'_> {
    /// Adds a changed back reference. Replay removes the committed names under its key that the log lacks.
    pub(super) fn add_names(
        &mut self,
        subject: &Subject,
        key: Key,
        now: Option<Arc<[u8]>>,
    ) -> Step {
        let old = if subject.is_new {
            None
        } else {
            self.committed.get(&key)?
        };
        let old = old.map_or_else(Vec::new, |old| names_of(key, &old));
        if !subject.is_unlogged {
            self.need_successors(key)?;
        }
        let Some(now) = now else {
            self.log.delete(key);
            for lost in &old {
                self.hide_name(lost.dir.0, lost.index)?;
            }
            return Ok(());
        };
        let names = names_of(key, &now);
        for lost in old.iter().filter(|old| !names.contains(old)) {
            self.need_successor(lost.dir.0, &lost.name)?;
        }
        for name in names.iter().filter(|name| !old.contains(name)) {
            self.add_name(subject, name)?;
        }
        self.log.put(key, now);
        Ok(())
    }

    /// Queues the directories that contained names of a synced inode at the last commit, if its names have
    /// changed.
    ///
    /// As in Linux, these are logged in full. An entry that was moved out of such a directory is thus found
    /// at its new place.
    pub(super) fn need_committed_parents(&mut self, ino: u64) -> Step {
        let refs = keys_of(ino, KeyType::INODE_REF..=KeyType::INODE_EXTREF);
        if !self.tree.is_edited_in(refs) || self.is_new(ino)? || self.find(ino)?.is_none() {
            return Ok(());
        }
        let names = self.committed_names(ino)?;
        let dirs: HashSet<u64> = names.iter().map(|name| name.dir.0).collect();
        for dir in dirs {
            if self.find(dir)?.is_some() {
                self.need_once(dir);
            }
        }
        Ok(())
    }

    /// Adds a name that an inode gained since the last commit.
    fn add_name(&mut self, subject: &Subject, name: &LoggedName) -> Step {
        let dir = name.dir.0;
        if self.is_new(dir)? {
            self.need(dir, Part::Existence);
        } else {
            if let Some(before) = find_entry(&self.committed, dir, &name.name)? {
                self.hide_target(before.location, subject.ino)?;
            }
            // The index of a removed entry may have been reused.
            self.hide_index(dir, name)?;
        }
        match subject.kind {
            FileKind::Directory if !subject.is_new => self.climb(dir),
            _ => Ok(()),
        }
    }

    /// Hides the committed entry at the index of a new name, unless it has the same name.
    fn hide_index(&mut self, dir: u64, name: &LoggedName) -> Step {
        match find_listed(&self.committed, dir, name.index)? {
            Some((listed, _)) if listed != name.name => self.hide_name(dir, name.index),
            _ => Ok(()),
        }
    }

    /// Adds directories above a moved one that were moved as well. Without them, replay could create a cycle.
    fn climb(&mut self, dir: u64) -> Step {
        let mut at = dir;
        while at != TOP && self.climbed.insert(at) {
            self.visit()?;
            let refs = keys_of(at, KeyType::INODE_REF..=KeyType::INODE_REF);
            if self.tree.is_edited_in(refs.clone()) {
                self.need(at, Part::Existence);
            }
            let mut cursor = self.tree.view.cursor();
            cursor.seek(refs.start())?;
            match cursor.current() {
                Some((key, _)) if refs.contains(&key) => at = key.offset,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Makes replay remove all names that an inode had at the last commit.
    pub(super) fn hide_committed_names(&mut self, ino: u64) -> Step {
        for name in self.committed_names(ino)? {
            self.hide_name(name.dir.0, name.index)?;
        }
        Ok(())
    }

    fn committed_names(&self, ino: u64) -> Result<Vec<LoggedName>> {
        let refs = keys_of(ino, KeyType::INODE_REF..=KeyType::INODE_EXTREF);
        let mut names = Vec::new();
        let mut cursor = self.committed.cursor();
        let mut more = cursor.seek(refs.start())?;
        while more
            && let Some((key, bytes)) = cursor.current()
            && refs.contains(&key)
        {
            names.extend(names_of(key, bytes));
            more = cursor.advance()?;
        }
        Ok(names)
    }

    /// Makes replay remove the committed entry at an index of a directory.
    pub(super) fn hide_name(&mut self, dir: u64, index: u64) -> Step {
        let Some((name, entry)) = find_listed(&self.committed, dir, index)? else {
            return Ok(());
        };
        if self.find(dir)?.is_none() {
            return Err(Stop::FullCommit(FullCommitReason::LostDirectory));
        }
        self.need(dir, Part::Existence);
        self.add_range(dir, index);
        self.need_successor(dir, &name)?;
        self.hide_target(entry.location, 0)
    }

    /// Queues the inodes that now have names which the log has for another inode, before the log drops or
    /// keeps these.
    pub(super) fn need_successors(&mut self, key: Key) -> Step {
        let Some(logged) = self.log.get(&key) else {
            return Ok(());
        };
        for name in names_of(key, logged) {
            self.need_successor(name.dir.0, &name.name)?;
        }
        Ok(())
    }

    /// Queues the inode that now has a name which another inode lost. The name then exists both before and
    /// after a replay.
    fn need_successor(&mut self, dir: u64, name: &[u8]) -> Step {
        match find_entry(&self.tree.view, dir, name)? {
            Some(entry) if entry.location.item_type == KeyType::INODE_ITEM => {
                self.need(entry.location.objectid, Part::Existence);
                Ok(())
            }
            Some(_) => Err(Stop::FullCommit(FullCommitReason::Subvolume)),
            None => Ok(()),
        }
    }

    /// Hides the target of a removed committed entry, unless it is `owner`. The log must have the target
    /// (LOG-WRITE-3).
    fn hide_target(&mut self, location: Key, owner: u64) -> Step {
        if location.item_type != KeyType::INODE_ITEM {
            return Err(Stop::FullCommit(FullCommitReason::Subvolume));
        }
        let mut gone = vec![location.objectid];
        while let Some(ino) = gone.pop() {
            if ino == owner || !self.hidden.insert(ino) {
                continue;
            }
            self.visit()?;
            if self.find(ino)?.is_some() {
                self.need(ino, Part::Existence);
                continue;
            }
            // Replay removes all entries of a directory that loses its name.
            let entries = keys_of(ino, KeyType::DIR_INDEX..=KeyType::DIR_INDEX);
            let mut cursor = self.committed.cursor();
            let mut more = cursor.seek(entries.start())?;
            while more
                && let Some((key, bytes)) = cursor.current()
                && entries.contains(&key)
            {
                for entry in DirEntries::new(bytes) {
                    if entry.location().item_type != KeyType::INODE_ITEM {
                        return Err(Stop::FullCommit(FullCommitReason::Subvolume));
                    }
                    gone.push(entry.location().objectid);
                }
                more = cursor.advance()?;
            }
        }
        Ok(())
    }

    /// Marks the log as complete at an index of a directory. Adjacent ranges are merged.
    fn add_range(&mut self, dir: u64, index: u64) {
        let key = |index| Key::new(dir, KeyType::DIR_LOG_INDEX, index);
        let (mut first, mut last) = (index, index);
        if let Some((before, item)) = self.log.last_in(key(0)..=key(index))
            && let Ok(range) = DirLogItem::ref_from_bytes(&item)
        {
            if range.end.get() >= index {
                return;
            }
            if range.end.get() + 1 == index {
                first = before.offset;
            }
        }
        if let Some(next) = index.checked_add(1).map(key)
            && let Some(item) = self.log.get(&next)
            && let Ok(range) = DirLogItem::ref_from_bytes(item)
        {
            last = range.end.get();
            self.log.delete(next);
        }
        let range = DirLogItem { end: last.into() };
        self.log.put(key(first), range.as_bytes());
    }
}
