//! Removing whole trees, up to the first failure or past failures.
//!
//! A link is removed and never followed, at the top and below (REMOVAL-1). No subvolume is entered unless the options
//! allow it (REMOVAL-2). `remove_dir_all` refuses a tree that contains a subvolume before anything is removed.
//!
//! Not here: the walk and the removal of each file (`transfer::removal`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use ubtrfs_device::progress::{Problem, Progress, Watch};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{CorruptItem, FileId, FileKind};
use ubtrfs_fs::{Error as EngineError, Volume as Engine};

use crate::error::{Cause, Caused, Error, Naming, Result};
use crate::subvolume::Subvolume;
use crate::transfer::removal::{Removal, RemovalProblem, Subvolumes};
use crate::transfer::walk::{Entry, Refused};

#[cfg(test)]
mod tests;

/// Options for [`Subvolume::remove_tree`].
///
/// ```
/// use ubtrfs::{Problems, RemoveOptions, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir("/dir")?;
/// root.create_subvolume("/dir/sub")?.write("/file", b"content")?;
/// let options = RemoveOptions::new();
/// let mut kept = Problems::default();
/// root.remove_tree("/dir", &options, &mut kept)?;
/// assert_eq!(kept.count(), 2, "the subvolume, and its parent that is not empty");
/// root.remove_tree("/dir", &options.enter_subvolumes(true), &mut ())?;
/// assert!(!root.exists("/dir")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoveOptions {
    enter_subvolumes: bool,
}

impl RemoveOptions {
    /// Creates options that refuse subvolumes: they fail, and are kept.
    pub fn new() -> RemoveOptions {
        RemoveOptions::default()
    }

    /// Removes subvolumes like directories: first their contents, then the empty subvolume.
    /// [`Subvolume::delete_subvolume`] is faster.
    #[must_use]
    pub fn enter_subvolumes(mut self, enter_subvolumes: bool) -> RemoveOptions {
        self.enter_subvolumes = enter_subvolumes;
        self
    }

    fn subvolumes(self) -> Subvolumes {
        if self.enter_subvolumes {
            Subvolumes::Enter
        } else {
            Subvolumes::Refuse
        }
    }
}

impl Subvolume {
    /// Removes a directory with all its contents. Links are not followed, as in `std::fs`.
    ///
    /// # Errors
    ///
    /// It is or contains a subvolume (`CrossesDevices`). Nothing is removed then. A file that cannot be
    /// removed, such as an immutable one, ends the removal half-way.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let removed = self.remove_dir_tree(path);
        removed.naming("remove directory", path)
    }

    /// Removes a file, or a directory with all its contents, and reports each removed file to `progress`. Links are not
    /// followed. A file that cannot be removed is a [`Problem`]. A directory that is not empty for this reason follows
    /// its files. The removal continues, unless all others would fail for the same reason.
    ///
    /// # Errors
    ///
    /// - `path` does not exist, or is the root of a subvolume (`ResourceBusy`)
    /// - it is a subvolume (`CrossesDevices`), unless [`RemoveOptions::enter_subvolumes`] allows it
    /// - any change of the volume fails ([`Error::is_of_volume`])
    /// - `progress` cancelled it (`Interrupted`)
    ///
    /// Files that were already removed stay removed.
    pub fn remove_tree(
        &self,
        path: impl AsRef<Path>,
        options: &RemoveOptions,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let subvolumes = options.subvolumes();
        let place = self.place_to_remove(path, subvolumes);
        let (dir, name) = place.naming("remove", path)?;
        let mut removal = Removal::new(&self.engine, subvolumes, progress, &report);
        let removed = removal.tree(dir, &name, path.as_os_str().as_bytes());
        removed.naming("remove", path)
    }

    /// Finds the parent directory and the name of a tree to remove.
    fn place_to_remove(&self, path: &Path, subvolumes: Subvolumes) -> Caused<(FileId, Vec<u8>)> {
        let (end, name) = self.dir_to_remove(path)?;
        let id = end.id.ok_or(EngineError::NotFound)?;
        if end.has_slash && self.engine.attr(id)?.kind != FileKind::Directory {
            return Err(EngineError::NotADirectory(id).into());
        }
        let is_subvolume = id.root != end.dir.root && !id.is_empty_subvolume_dir();
        if is_subvolume && subvolumes == Subvolumes::Refuse {
            Err(Cause::Subvolume(path.to_owned()))
        } else {
            Ok((end.dir, name))
        }
    }

    fn remove_dir_tree(&self, path: &Path) -> Caused<()> {
        let (end, name) = self.dir_to_remove(path)?;
        let id = end.id.ok_or(EngineError::NotFound)?;
        match self.engine.attr(id)?.kind {
            FileKind::Directory => {}
            FileKind::Symlink if !end.has_slash => {
                self.engine.unlink(end.dir, &name)?;
                return Ok(());
            }
            FileKind::Symlink => {
                // A trailing slash requires the directory at the target of the link, which this path may not remove.
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
            let fail = |_: &mut Watch<'_>, path: &[u8], problem: RemovalProblem<'_>| {
                first_failure(engine, path, problem)
            };
            let mut unobserved = ();
            let mut removal = Removal::new(engine, Subvolumes::Refuse, &mut unobserved, &fail);
            removal.contents(id, path.as_os_str().as_bytes())?;
        }
        Ok(self.engine.rmdir(end.dir, &name)?)
    }
}

/// Refuses a directory that contains subvolumes. Walks from each subvolume up to the directory or the root of its tree,
/// because there are few subvolumes, and perhaps millions of files.
fn refuse_subvolumes(engine: &Engine, top: FileId, path: &Path) -> Caused<()> {
    let mut elsewhere = HashSet::new();
    for (_, place) in engine.nested_subvolumes(top.root)? {
        let mut names = vec![place.name];
        let mut at = place.dir;
        // A damaged volume may contain a loop of directories.
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

/// Reports a file that could not be removed, unless all others would fail for the same reason.
fn report(watch: &mut Watch<'_>, path: &[u8], problem: RemovalProblem<'_>) -> Caused<()> {
    let error = named(Path::new(OsStr::from_bytes(path)), problem);
    if error.is_of_volume() {
        return Err(error.into());
    }
    let errno = Errno::from_raw_os_error(error.errno());
    let problem = Problem::new(path, error.reason(), errno).with_kind(error.kind());
    Ok(watch.problem(&problem)?)
}

/// Ends a removal at the first failure.
fn first_failure(engine: &Engine, path: &[u8], problem: RemovalProblem<'_>) -> Caused<()> {
    let path = Path::new(OsStr::from_bytes(path));
    match problem {
        RemovalProblem::Enter {
            dir,
            entry,
            refused,
        } => {
            let operation = "enter";
            let found = engine.lookup(dir, &entry.name);
            if found.naming(operation, path)? != Some(entry.id) {
                // Another thread has moved or removed it in between.
                return Ok(());
            }
            let error = match refused {
                Refused::Elsewhere => looped(dir, entry),
                Refused::Engine(error) => error,
            };
            Ok(Err(error).naming(operation, path)?)
        }
        // Another thread has removed it in between.
        RemovalProblem::Unlink(EngineError::NotFound)
        | RemovalProblem::Rmdir(EngineError::NotFound) => Ok(()),
        problem => Err(named(path, problem).into()),
    }
}

/// Converts a problem to the error of a removal for a program.
fn named(path: &Path, problem: RemovalProblem<'_>) -> Error {
    let (operation, cause) = match problem {
        RemovalProblem::Find(error) => ("find", error.into()),
        RemovalProblem::List(error) => ("list", error.into()),
        RemovalProblem::Enter { refused, .. } => ("enter", Cause::from(refused)),
        RemovalProblem::Subvolume => ("remove directory", Cause::Subvolume(path.to_owned())),
        RemovalProblem::Unlink(error) => ("remove", error.into()),
        RemovalProblem::Rmdir(error) => ("remove directory", error.into()),
    };
    Error::new(operation, path, cause)
}

/// Returns the error for a directory that is reached through `entry` of `dir`, but has another entry as its own.
fn looped(dir: FileId, entry: &Entry) -> EngineError {
    EngineError::Corrupt {
        tree: dir.root,
        key: Key::new(entry.id.ino.0, KeyType::INODE_ITEM, 0),
        what: CorruptItem::Loop,
    }
}
