//! Removing files, and directories with all their contents.
//!
//! A file that cannot be removed is a problem, and the rest is removed unless the caller ends the removal.
//!
//! Invariants
//! - REMOVAL-1: a link is removed and never followed. Names are removed in directories that are held by their handles,
//!   regardless of concurrent renames.
//! - REMOVAL-2: no subvolume is entered if subvolumes are refused.
//!
//! Memory: the memory of a walk (`walk`), and a name for each level.

use std::fmt;

use ubtrfs_device::progress::{Cancelled, Progress, Watch};
use ubtrfs_fs::{Error, FileId, FileKind, Volume};

use crate::transfer::walk::{Entry, Filter, Order, Refused, Step, Walk};

#[cfg(test)]
mod tests;

/// The treatment of subvolumes below a directory that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subvolumes {
    /// They are removed like other directories.
    Enter,
    /// They fail, and are kept.
    Refuse,
}

/// Handles a file that could not be removed, whose path begins with the path of the top. An error ends the removal.
pub(crate) type OnProblem<'a, E> =
    &'a dyn Fn(&mut Watch<'_>, &[u8], RemovalProblem<'_>) -> Result<(), E>;

/// The reason why a file is not removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemovalProblem<'a> {
    /// The file to be removed cannot be examined, or does not exist.
    #[error("{0}")]
    Find(Error),
    /// The directory could not be listed completely.
    #[error("{0}")]
    List(Error),
    /// The directory of `entry` in `dir` is not entered, and nothing in it is removed.
    #[error("{refused}")]
    Enter {
        dir: FileId,
        entry: &'a Entry,
        refused: Refused,
    },
    /// Subvolumes are refused.
    #[error("it is a subvolume")]
    Subvolume,
    /// The file could not be removed.
    #[error("{0}")]
    Unlink(Error),
    /// The directory could not be removed, possibly because a file in it was kept.
    #[error("{0}")]
    Rmdir(Error),
}

/// A removal of files and trees from a volume.
pub(crate) struct Removal<'a, E> {
    volume: &'a Volume,
    subvolumes: Subvolumes,
    watch: Watch<'a>,
    on_problem: OnProblem<'a, E>,
}

impl<E> fmt::Debug for Removal<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut removal = f.debug_struct("Removal");
        let removal = removal.field("subvolumes", &self.subvolumes);
        removal.finish_non_exhaustive()
    }
}

impl<'a, E: From<Cancelled>> Removal<'a, E> {
    /// Creates a removal that reports each removed file to `progress`, and passes others to `on_problem`.
    pub(crate) fn new(
        volume: &'a Volume,
        subvolumes: Subvolumes,
        progress: &'a mut dyn Progress,
        on_problem: OnProblem<'a, E>,
    ) -> Removal<'a, E> {
        Removal {
            volume,
            subvolumes,
            watch: Watch::new(progress),
            on_problem,
        }
    }

    /// Removes the file `name` in `dir`, with all its contents. `shown` is its path for messages.
    ///
    /// # Errors
    ///
    /// The observer cancelled it, or `on_problem` ended it.
    pub(crate) fn tree(&mut self, dir: FileId, name: &[u8], shown: &[u8]) -> Result<(), E> {
        let found = self.volume.lookup(dir, name);
        let found = found.and_then(|id| id.ok_or(Error::NotFound));
        let kind = found.and_then(|id| Ok((id, self.volume.attr(id)?.kind)));
        match kind {
            Ok((id, FileKind::Directory)) => {
                self.contents(id, shown)?;
                self.directory(dir, name, shown)
            }
            Ok((_, kind)) => self.file(dir, name, kind, shown),
            Err(error) => self.fail(shown, RemovalProblem::Find(error)),
        }
    }

    /// Removes the contents of the directory `top`. `shown` is its path for messages.
    ///
    /// # Errors
    ///
    /// The observer cancelled it, or `on_problem` ended it.
    pub(crate) fn contents(&mut self, top: FileId, shown: &[u8]) -> Result<(), E> {
        let filter = Filter::default();
        let mut walk = Walk::new(self.volume, top, shown, Order::Index, filter);
        // Each directory from the top down, and the current name in it.
        let mut way: Vec<(FileId, Vec<u8>)> = vec![(top, Vec::new())];
        while let Some(step) = walk.next_step() {
            match step {
                Step::Entry(entry) => {
                    let Some((dir, below)) = way.last_mut() else {
                        return Ok(());
                    };
                    let dir = *dir;
                    if entry.kind != FileKind::Directory {
                        self.file(dir, &entry.name, entry.kind, walk.path())?;
                        continue;
                    }
                    below.clone_from(&entry.name);
                    match self.enter(&mut walk, dir, &entry) {
                        None => way.push((entry.id, Vec::new())),
                        Some(problem) => self.fail(walk.path(), problem)?,
                    }
                }
                Step::Leave => {
                    way.pop();
                    if let Some((dir, name)) = way.last() {
                        self.directory(*dir, name, walk.path())?;
                    }
                }
                Step::Failed(error) => {
                    let problem = RemovalProblem::List(error);
                    self.fail(walk.path(), problem)?;
                }
            }
        }
        Ok(())
    }

    /// Enters a directory, or returns the reason against it.
    fn enter<'e>(
        &self,
        walk: &mut Walk<'_>,
        dir: FileId,
        entry: &'e Entry,
    ) -> Option<RemovalProblem<'e>> {
        // REMOVAL-2
        let is_subvolume = entry.id.root != dir.root && !entry.id.is_empty_subvolume_dir();
        if is_subvolume && self.subvolumes == Subvolumes::Refuse {
            return Some(RemovalProblem::Subvolume);
        }
        let refused = walk.enter(entry).err();
        refused.map(|refused| RemovalProblem::Enter {
            dir,
            entry,
            refused,
        })
    }

    fn fail(&mut self, path: &[u8], problem: RemovalProblem<'_>) -> Result<(), E> {
        (self.on_problem)(&mut self.watch, path, problem)
    }

    fn file(&mut self, dir: FileId, name: &[u8], kind: FileKind, shown: &[u8]) -> Result<(), E> {
        // REMOVAL-1
        match self.volume.unlink(dir, name) {
            Ok(()) => Ok(self.watch.removed(shown, kind)?),
            Err(error) => self.fail(shown, RemovalProblem::Unlink(error)),
        }
    }

    fn directory(&mut self, dir: FileId, name: &[u8], shown: &[u8]) -> Result<(), E> {
        match self.volume.rmdir(dir, name) {
            Ok(()) => Ok(self.watch.removed(shown, FileKind::Directory)?),
            Err(error) => self.fail(shown, RemovalProblem::Rmdir(error)),
        }
    }
}
