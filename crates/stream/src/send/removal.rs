//! Taking away what only the old snapshot has: names of non-directories first, directories last.
//!
//! Not here: where directories are meanwhile (`receiver`).

use std::collections::HashMap;

use ubtrfs_tree::Comparison;

use super::error::Result;
use super::file_tree::{FileTree, Inode, ROOT_DIR};
use super::job::{Dir, Job};
use super::receiver::Progress;
use super::walk::is_inode;
use crate::format::Command;

/// The directories that differ, each list ascending.
#[derive(Debug, Default)]
pub(super) struct ChangedDirs {
    /// Only the new snapshot has them.
    pub(super) made: Vec<u64>,
    /// Only the old snapshot has them.
    pub(super) gone: Vec<u64>,
    /// Both have them. What is changed is not said.
    kept: Vec<u64>,
}

impl Job<'_> {
    /// Finds the directories that differ, and removes names of non-directories. One name of an inode that is moved stays.
    pub(super) fn remove_names(&mut self, old: FileTree<'_>) -> Result<ChangedDirs> {
        let mut dirs = ChangedDirs::default();
        let mut comparison = self.new.snapshot.compare_with(Some(old.snapshot));
        let mut last = 0;
        while let Some(ino) = next_inode(&mut comparison, last)? {
            last = ino;
            let (before, after) = (old.inode(ino)?, self.new.inode(ino)?);
            let is_kept = self.is_kept(ino, before, after)?;
            dirs.note(ino, before, after, is_kept);
            if before.is_some_and(|before| !before.is_dir()) {
                self.unlink(old, ino, is_kept)?;
            }
        }
        self.find_moved(old, &dirs)?;
        Ok(dirs)
    }

    fn unlink(&mut self, old: FileTree<'_>, ino: u64, is_kept: bool) -> Result<()> {
        let removed = match is_kept {
            false => old.names(ino)?,
            true => {
                let plan = self.name_plan(ino)?;
                let spared = usize::from(plan.carrier().is_some());
                plan.removed.into_iter().skip(spared).collect()
            }
        };
        for name in removed {
            let path = self.old_path(&name)?;
            self.write(&Command::Unlink { path: &path })?;
        }
        Ok(())
    }

    /// Finds out which directories are elsewhere, also where only the directory above was replaced.
    fn find_moved(&mut self, old: FileTree<'_>, dirs: &ChangedDirs) -> Result<()> {
        for &ino in dirs.kept.iter().filter(|&&ino| ino != ROOT_DIR) {
            let (before, after) = (old.first_name(ino)?, self.new.first_name(ino)?);
            if before != after || !self.is_kept_dir(after.dir)? {
                self.receiver.moved.push(ino);
            }
        }
        Ok(())
    }

    /// Puts all directories of the new snapshot in their places.
    pub(super) fn place_dirs(&mut self, dirs: &ChangedDirs) -> Result<()> {
        let moved = self.receiver.moved.clone();
        self.receiver.progress = Progress::Placing(0);
        for ino in merged(&dirs.made, &moved) {
            self.place(ino)?;
            self.finish_turn(ino);
        }
        self.begin_naming();
        Ok(())
    }

    /// Removes the directories that are gone, once nothing else is in them.
    pub(super) fn remove_dirs(&mut self, old: FileTree<'_>, gone: &[u64]) -> Result<()> {
        let mut children: HashMap<u64, usize> = HashMap::new();
        let mut parents: HashMap<u64, u64> = HashMap::new();
        for &ino in gone {
            if let Some(parent) = self.gone_parent(old, ino)? {
                *children.entry(parent).or_default() += 1;
                parents.insert(ino, parent);
            }
        }
        for &ino in gone {
            let mut next = (!children.contains_key(&ino)).then_some(ino);
            while let Some(empty) = next.take() {
                let lifted = self.reach(Dir::Gone(empty), 0)?;
                let path = self.dir_path(Dir::Gone(empty))?;
                self.write(&Command::Rmdir { path: &path })?;
                self.put_back(lifted)?;
                let Some(parent) = parents.remove(&empty) else {
                    continue;
                };
                let Some(left) = children.get_mut(&parent) else {
                    continue;
                };
                *left -= 1;
                if *left == 0 {
                    children.remove(&parent);
                    // The turn of others comes.
                    next = (parent < ino).then_some(parent);
                }
            }
        }
        Ok(())
    }

    /// The directory that a gone directory still lies in, if that is gone, too.
    fn gone_parent(&mut self, old: FileTree<'_>, ino: u64) -> Result<Option<u64>> {
        if self.receiver.is_aside(ino) {
            return Ok(None);
        }
        let parent = old.first_name(ino)?.dir;
        Ok((!self.is_kept_dir(parent)?).then_some(parent))
    }
}

impl ChangedDirs {
    fn note(&mut self, ino: u64, before: Option<Inode>, after: Option<Inode>, is_kept: bool) {
        let is_dir = |inode: Option<Inode>| inode.is_some_and(|inode| inode.is_dir());
        if is_kept {
            if is_dir(after) {
                self.kept.push(ino);
            }
            return;
        }
        if is_dir(before) {
            self.gone.push(ino);
        }
        if is_dir(after) {
            self.made.push(ino);
        }
    }
}

/// Goes on to the next inode above `last` that differs.
fn next_inode(comparison: &mut Comparison, last: u64) -> Result<Option<u64>> {
    while let Some(difference) = comparison.next_difference()? {
        let ino = difference.key().objectid;
        if ino > last && is_inode(ino) {
            return Ok(Some(ino));
        }
    }
    Ok(None)
}

/// Both ascending lists as one.
fn merged<'l>(a: &'l [u64], b: &'l [u64]) -> impl Iterator<Item = u64> + 'l {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(x), Some(y)) if x <= y => a.next().copied(),
        (_, Some(_)) => b.next().copied(),
        (_, None) => a.next().copied(),
    })
}
