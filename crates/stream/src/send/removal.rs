//! Removal of names that only exist in the old snapshot: non-directories first, directories last.
//!
//! Not here: the intermediate locations of directories (`receiver`).

use std::io;

use ubtrfs_tree::Difference;

use super::differences::{WhichDifferences, find_beside};
use super::error::Result;
use super::file_tree::{FileTree, Inode, ROOT_DIR};
use super::job::Job;
use super::receiver::{Dir, Progress};
use super::spilled::{InodeCounts, InodeList};
use crate::format::Command;

/// The directories that differ, in ascending lists.
#[derive(Debug)]
pub(super) struct ChangedDirs {
    /// Only in the new snapshot.
    made: InodeList,
    /// Only in the old snapshot.
    pub(super) gone: InodeList,
    /// In both snapshots, at different places.
    moved: InodeList,
}

impl Job<'_> {
    /// Finds the directories that differ, and removes names of non-directories. A moved inode keeps one name.
    pub(super) fn remove_names(&mut self, old: FileTree<'_>) -> Result<ChangedDirs> {
        let mut dirs = ChangedDirs {
            made: InodeList::new(&self.scratch_dir),
            gone: InodeList::new(&self.scratch_dir),
            moved: InodeList::new(&self.scratch_dir),
        };
        let (before, after) = (Some(old.snapshot), self.new.snapshot);
        find_beside(before, after, WhichDifferences::Inodes, |inodes| {
            while let Some(first) = inodes.next()? {
                self.remove_names_of(old, &first, &mut dirs)?;
            }
            Ok(())
        })?;
        Ok(dirs)
    }

    fn remove_names_of(
        &mut self,
        old: FileTree<'_>,
        first: &Difference,
        dirs: &mut ChangedDirs,
    ) -> Result<()> {
        let ino = first.key().objectid;
        let (before, after) = self.both_inodes(first)?;
        let is_kept = self.is_kept(ino, before, after)?;
        let is_dir = |inode: Option<Inode>| inode.is_some_and(|inode| inode.is_dir());
        if is_kept && is_dir(after) && self.is_moved(old, ino)? {
            dirs.moved.push(ino)?;
            self.receiver.moved.insert(ino)?;
        }
        if !is_kept && is_dir(before) {
            dirs.gone.push(ino)?;
        }
        if !is_kept && is_dir(after) {
            dirs.made.push(ino)?;
        }
        if before.is_some_and(|before| !before.is_dir()) {
            self.unlink(old, ino, is_kept)?;
        }
        Ok(())
    }

    fn unlink(&mut self, old: FileTree<'_>, ino: u64, is_kept: bool) -> Result<()> {
        let removed = if is_kept {
            let plan = self.name_plan(ino)?;
            // The carrier name stays, so that the inode exists until it gets a new name.
            let spared = usize::from(plan.carrier().is_some());
            plan.removed.into_iter().skip(spared).collect()
        } else {
            old.names(ino)?
        };
        for name in removed {
            let path = self.old_path(&name)?;
            self.write(&Command::Unlink { path: &path })?;
        }
        Ok(())
    }

    /// Returns whether a directory of both snapshots was moved, or its parent was replaced.
    fn is_moved(&mut self, old: FileTree<'_>, ino: u64) -> Result<bool> {
        if ino == ROOT_DIR {
            return Ok(false);
        }
        let (before, after) = (old.first_name(ino)?, self.new.first_name(ino)?);
        Ok(before != after || !self.is_kept_dir(after.dir)?)
    }

    /// Places all directories of the new snapshot.
    pub(super) fn place_dirs(&mut self, dirs: &ChangedDirs) -> Result<()> {
        self.receiver.progress = Progress::Placing(0);
        for ino in merged(dirs.made.iter(), dirs.moved.iter()) {
            let ino = ino?;
            self.place(ino)?;
            self.finish_turn(ino);
        }
        self.begin_naming();
        Ok(())
    }

    /// Removes deleted directories after their contents.
    pub(super) fn remove_dirs(&mut self, old: FileTree<'_>, gone: &InodeList) -> Result<()> {
        let mut children = InodeCounts::new(&self.scratch_dir);
        for ino in gone.iter() {
            if let Some(parent) = self.gone_parent(old, ino?)? {
                let count = children.get(parent)?;
                children.set(parent, count.saturating_add(1))?;
            }
        }
        for ino in gone.iter() {
            let ino = ino?;
            let mut next = (children.get(ino)? == 0).then_some(ino);
            while let Some(empty) = next.take() {
                let lifted = self.reach(Dir::Gone(empty), 0)?;
                let path = self.dir_path(Dir::Gone(empty))?;
                self.write(&Command::Rmdir { path: &path })?;
                self.put_back(lifted)?;
                let Some(parent) = self.gone_parent(old, empty)? else {
                    continue;
                };
                let left = children.get(parent)?.saturating_sub(1);
                children.set(parent, left)?;
                // Otherwise the list has the parent later.
                next = (left == 0 && parent < ino).then_some(parent);
            }
        }
        Ok(())
    }

    /// Returns the parent of a deleted directory if that is deleted, too. This also counts directories that were
    /// moved aside.
    fn gone_parent(&mut self, old: FileTree<'_>, ino: u64) -> Result<Option<u64>> {
        let parent = old.first_name(ino)?.dir;
        Ok((!self.is_kept_dir(parent)?).then_some(parent))
    }
}

/// Merges both ascending lists into one.
fn merged(
    a: impl Iterator<Item = io::Result<u64>>,
    b: impl Iterator<Item = io::Result<u64>>,
) -> impl Iterator<Item = io::Result<u64>> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(Ok(x)), Some(Ok(y))) if x > y => b.next(),
        (Some(_), _) => a.next(),
        (None, _) => b.next(),
    })
}
