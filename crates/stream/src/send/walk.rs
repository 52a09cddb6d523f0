//! The walk over differing inodes, item by item.

use std::ops::ControlFlow;

use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{Difference, Item};

use super::differences::{WhichDifferences, find_beside};
use super::error::Result;
use super::inode_update::Update;
use super::job::Job;
use super::receiver::{Dir, Progress};
use super::spilled::{FirstSeen, InodeList};
use crate::format::Command;

impl Job<'_> {
    /// Updates all differing inodes. Returns the directories among them, ascending.
    pub(super) fn update_inodes(&mut self) -> Result<InodeList> {
        let mut dirs = InodeList::new(&self.scratch_dir);
        let (old, new) = (self.old.map(|old| old.snapshot), self.new.snapshot);
        find_beside(old, new, WhichDifferences::All, |differences| {
            let mut ino = 0;
            let mut update: Option<Update> = None;
            while let Some(difference) = differences.next()? {
                let key = difference.key();
                if key.objectid != ino {
                    self.finish(update.take(), ino)?;
                    ino = key.objectid;
                    update = self.begin(ino, &difference, &mut dirs)?;
                }
                if let Some(update) = &mut update {
                    self.take_item(update, difference.old_item(), difference.new_item())?;
                }
            }
            self.finish(update, ino)
        })?;
        Ok(dirs)
    }

    fn finish(&mut self, update: Option<Update>, ino: u64) -> Result<()> {
        if let Some(update) = update {
            self.finish_update(update)?;
        }
        if self.old.is_none() {
            self.finish_turn(ino);
        }
        Ok(())
    }

    /// Starts the update of an inode. Returns None for a deleted inode, and for one that needs no further items.
    fn begin(
        &mut self,
        ino: u64,
        first: &Difference,
        dirs: &mut InodeList,
    ) -> Result<Option<Update>> {
        if self.old.is_some() {
            self.receiver.progress = Progress::Naming(ino);
        }
        let (before, after) = self.both_inodes(first)?;
        let Some(after) = after else {
            return Ok(None);
        };
        let is_kept = self.is_kept(ino, before, Some(after))?;
        let before = before.filter(|_| is_kept);
        if after.is_dir() {
            dirs.push(ino)?;
        }
        let mut update = self.begin_update(ino, before, after)?;
        if before.is_none() && self.had_number(ino)? {
            self.take_all_items(&mut update)?;
            self.finish_update(update)?;
            return Ok(None);
        }
        Ok(Some(update))
    }

    /// Returns whether the old snapshot has another inode with this number. In this case the comparison omits items
    /// that are equal by chance.
    fn had_number(&self, ino: u64) -> Result<bool> {
        let Some(old) = self.old else {
            return Ok(false);
        };
        let mut found = false;
        old.leaves.walk(&Key::new(ino, KeyType(0), 0), |key, _| {
            found = key.objectid == ino;
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    fn take_all_items(&mut self, update: &mut Update) -> Result<()> {
        let new = self.new;
        let mut cursor = new.snapshot.view().cursor().sequential();
        let mut more = cursor.seek(&Key::new(update.ino, KeyType(0), 0))?;
        while more && let Some(item) = cursor.item() {
            if item.key().objectid != update.ino {
                break;
            }
            self.take_item(update, None, Some(&item))?;
            more = cursor.advance()?;
        }
        Ok(())
    }

    fn take_item(
        &mut self,
        update: &mut Update,
        old: Option<&Item>,
        new: Option<&Item>,
    ) -> Result<()> {
        let old = old.filter(|_| update.before.is_some());
        let Some(key) = new.or(old).map(Item::key) else {
            return Ok(());
        };
        match key.item_type {
            KeyType::XATTR_ITEM => self.take_xattrs(update, old, new),
            KeyType::EXTENT_DATA => self.take_extent(update, old, new),
            _ => Ok(()),
        }
    }

    /// Sets the times of changed directories, after the last change in them.
    pub(super) fn set_times(&mut self, dirs: &InodeList) -> Result<()> {
        let none = FirstSeen::new(&self.scratch_dir);
        let mut unnamed = std::mem::replace(&mut self.receiver.touched, none);
        for ino in dirs.iter() {
            unnamed.forget(ino?)?;
        }
        unnamed.into_each(|ino| self.set_times_of(ino))?;
        for ino in dirs.iter() {
            self.set_times_of(ino?)?;
        }
        Ok(())
    }

    fn set_times_of(&mut self, ino: u64) -> Result<()> {
        let Some(inode) = self.new.inode(ino)? else {
            return Ok(());
        };
        let path = self.dir_path(Dir::New(ino))?;
        let command: Command<'_> = super::update::utimes(&path, &inode);
        self.write(&command)
    }
}
