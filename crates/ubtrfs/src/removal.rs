//! Removing a directory with all below.
//!
//! A link is removed and never followed, at the top as below (REMOVAL-1). No subvolume is entered (REMOVAL-2): one that
//! is there at the beginning is refused before anything is removed.
//!
//! Not here: the walk and the removal of what it meets (`transfer::removal`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ubtrfs_engine::{CorruptItem, FileId, FileKind};
use ubtrfs_engine::{Error as EngineError, Volume as Engine};
use ubtrfs_format::key::{Key, KeyType};

use crate::error::{Cause, Caused, Error, Naming, Result};
use crate::subvolume::Subvolume;
use crate::transfer::removal::{Removal, RemovalObserver, RemovalProblem, Subvolumes};
use crate::transfer::walk::{Entry, Refused};

#[cfg(test)]
mod tests;

impl Subvolume {
    /// Removes a directory with all that is in it; a link itself, as `std::fs` does.
    ///
    /// # Errors
    ///
    /// It is a subvolume, or one is below (`CrossesDevices`), in which case nothing is removed. A file that cannot be
    /// removed, such as an immutable one, ends the removal half-way.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        self.remove_tree(path).naming("remove directory", path)
    }

    fn remove_tree(&self, path: &Path) -> Caused<()> {
        let (end, name) = self.dir_to_remove(path)?;
        let id = end.id.ok_or(EngineError::NotFound)?;
        match self.engine.attr(id)?.kind {
            FileKind::Directory => {}
            FileKind::Symlink if !end.has_slash => {
                return Ok(self.engine.unlink(end.dir, &name)?);
            }
            FileKind::Symlink => {
                // A slash asks for the directory behind the link, which is not this path's to remove.
                self.resolve(path)?;
                return Err(EngineError::NotADirectory(id).into());
            }
            _ => return Err(EngineError::NotADirectory(id).into()),
        }
        if !id.is_empty_subvolume_dir() {
            if id.root != end.dir.root {
                return Err(Cause::Subvolume(path.to_owned()));
            }
            refuse_subvolumes(&self.engine, id, path)?;
            let engine = &self.engine;
            let mut observer = FirstFailure { engine };
            let mut removal = Removal::new(engine, Subvolumes::Refuse, &mut observer);
            removal.contents(id, path.as_os_str().as_bytes())?;
        }
        Ok(self.engine.rmdir(end.dir, &name)?)
    }
}

/// Refuses a directory with subvolumes below. Goes from each subvolume up to the directory or the root of its tree:
/// there are few subvolumes, and perhaps millions of files below.
fn refuse_subvolumes(engine: &Engine, top: FileId, path: &Path) -> Caused<()> {
    let mut elsewhere = HashSet::new();
    let places = engine.subvolumes()?.into_iter().filter_map(|s| s.place);
    for place in places.filter(|place| place.dir.root == top.root) {
        let mut names = vec![place.name];
        let mut at = place.dir;
        // A damaged volume may have directories in a loop.
        while at == top || elsewhere.insert(at) {
            if at == top {
                let names = names.iter().rev().map(|name| OsStr::from_bytes(name));
                return Err(Cause::Subvolume(path.join(names.collect::<PathBuf>())));
            }
            let (parent, name) = match engine.parent(at)? {
                parent if parent.root != at.root || parent == at => break,
                _ => engine.directory_name(at)?,
            };
            names.push(name);
            at = parent;
        }
    }
    Ok(())
}

/// Ends a removal at the first failure.
struct FirstFailure<'a> {
    engine: &'a Engine,
}

impl RemovalObserver for FirstFailure<'_> {
    type Stop = Error;

    fn failed(&mut self, path: &[u8], problem: RemovalProblem<'_>) -> Result<()> {
        let path = Path::new(OsStr::from_bytes(path));
        let (operation, error) = match problem {
            RemovalProblem::Find(error) => ("find", error),
            RemovalProblem::List(error) => ("list", error),
            RemovalProblem::Enter {
                dir,
                entry,
                refused,
            } => {
                let operation = "enter";
                let found = self.engine.lookup(dir, &entry.name);
                if found.naming(operation, path)? != Some(entry.id) {
                    // Another thread has moved or removed it meanwhile.
                    return Ok(());
                }
                match refused {
                    Refused::Elsewhere => (operation, looped(dir, entry)),
                    Refused::Engine(error) => (operation, error),
                }
            }
            RemovalProblem::Subvolume => {
                let refused = Err(Cause::Subvolume(path.to_owned()));
                return refused.naming("remove directory", path);
            }
            // Another thread has removed it meanwhile.
            RemovalProblem::Unlink(EngineError::NotFound)
            | RemovalProblem::Rmdir(EngineError::NotFound) => return Ok(()),
            RemovalProblem::Unlink(error) => ("remove", error),
            RemovalProblem::Rmdir(error) => ("remove directory", error),
        };
        Err(error).naming(operation, path)
    }
}

/// The error of a directory that `entry` of `dir` names, and that names another entry as its own.
fn looped(dir: FileId, entry: &Entry) -> EngineError {
    EngineError::Corrupt {
        tree: dir.root,
        key: Key::new(entry.id.ino.0, KeyType::INODE_ITEM, 0),
        what: CorruptItem::Loop,
    }
}
