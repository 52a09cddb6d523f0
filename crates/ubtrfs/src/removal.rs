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

use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{CorruptItem, FileId, FileKind};
use ubtrfs_fs::{Error as EngineError, Volume as Engine};

use crate::error::{Cause, Caused, Error, Naming, Result};
use crate::metadata::FileType;
use crate::subvolume::Subvolume;
use crate::transfer::removal::{Removal, RemovalObserver as Observer, RemovalProblem, Subvolumes};
use crate::transfer::walk::{Entry, Refused};

#[cfg(test)]
mod tests;

/// An observer of [`Subvolume::remove_tree_with`].
///
/// ```
/// use std::path::{Path, PathBuf};
/// use ubtrfs::{Error, FileFlags, FileType, RemovalObserver, RemoveOptions, Volume};
///
/// #[derive(Default)]
/// struct Progress {
///     files: u64,
///     kept: Vec<PathBuf>,
/// }
///
/// impl RemovalObserver for Progress {
///     fn removed(&mut self, _: &Path, _: FileType) {
///         self.files += 1;
///     }
///     fn failed(&mut self, path: &Path, _: Error) -> Result<(), Error> {
///         self.kept.push(path.to_owned());
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir("/dir")?;
/// root.write("/dir/file", b"content")?;
/// root.write("/dir/kept", b"content")?;
/// root.set_flags("/dir/kept", FileFlags { immutable: true, ..FileFlags::default() })?;
/// let mut progress = Progress::default();
/// root.remove_tree_with("/dir", &RemoveOptions::new(), &mut progress)?;
/// assert_eq!(progress.files, 1);
/// assert_eq!(progress.kept, ["/dir/kept", "/dir"].map(Path::new));
/// # Ok(())
/// # }
/// ```
///
/// A group waits for the removal, and changes by other threads wait for the group. An observer must not wait for
/// either.
pub trait RemovalObserver {
    /// Receives each file after its removal.
    fn removed(&mut self, path: &Path, file_type: FileType) {
        let _ = (path, file_type);
    }

    /// Returns whether to cancel the removal now. Called before each file, so it should be fast. The removal then
    /// returns an error of kind `Interrupted`.
    fn is_cancelled(&mut self) -> bool {
        false
    }

    /// Receives each file that could not be removed. A directory that is not empty for this reason follows its files.
    ///
    /// # Errors
    ///
    /// An error ends the removal, which returns it.
    fn failed(&mut self, path: &Path, error: Error) -> Result<()>;
}

/// Options for [`Subvolume::remove_tree_with`].
///
/// ```
/// use std::path::Path;
/// use ubtrfs::{Error, RemovalObserver, RemoveOptions, Volume};
///
/// /// Ends at the first failure.
/// struct Strict;
///
/// impl RemovalObserver for Strict {
///     fn failed(&mut self, _: &Path, error: Error) -> Result<(), Error> {
///         Err(error)
///     }
/// }
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir("/dir")?;
/// root.create_subvolume("/dir/sub")?.write("/file", b"content")?;
/// let options = RemoveOptions::new();
/// assert!(root.remove_tree_with("/dir", &options, &mut Strict).is_err());
/// root.remove_tree_with("/dir", &options.enter_subvolumes(true), &mut Strict)?;
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
        self.remove_dir_all_with(path, &mut Unobserved)
    }

    /// Removes a directory as [`Subvolume::remove_dir_all`], and reports the progress to an observer. The first failure
    /// ends the removal, which returns it: [`RemovalObserver::failed`] is not called.
    ///
    /// # Errors
    ///
    /// - the errors of [`Subvolume::remove_dir_all`]
    /// - the observer cancelled it (`Interrupted`)
    ///
    /// Files that were already removed stay removed.
    pub fn remove_dir_all_with(
        &self,
        path: impl AsRef<Path>,
        observer: &mut dyn RemovalObserver,
    ) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let removed = self.remove_tree(path, observer);
        removed.naming("remove directory", path)
    }

    /// Removes a file, or a directory with all its contents, and reports the progress to an observer. Links are not
    /// followed. The removal continues after files that cannot be removed, unless all others would fail for the same
    /// reason.
    ///
    /// # Errors
    ///
    /// - `path` does not exist, or is the root of a subvolume (`ResourceBusy`)
    /// - it is a subvolume (`CrossesDevices`), unless [`RemoveOptions::enter_subvolumes`] allows it
    /// - any change of the volume fails ([`Error::is_of_volume`])
    /// - the observer cancelled it (`Interrupted`), or ended it with an error of its own
    ///
    /// Files that were already removed stay removed.
    pub fn remove_tree_with(
        &self,
        path: impl AsRef<Path>,
        options: &RemoveOptions,
        observer: &mut dyn RemovalObserver,
    ) -> Result<()> {
        let _entered = self.engine.enter();
        let path = path.as_ref();
        let subvolumes = options.subvolumes();
        let place = self.place_to_remove(path, subvolumes);
        let (dir, name) = place.naming("remove", path)?;
        let mut forwarded = Forwarded(observer);
        let mut removal = Removal::new(&self.engine, subvolumes, &mut forwarded);
        removal.tree(dir, &name, path.as_os_str().as_bytes())
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

    fn remove_tree(&self, path: &Path, observer: &mut dyn RemovalObserver) -> Caused<()> {
        let (end, name) = self.dir_to_remove(path)?;
        let id = end.id.ok_or(EngineError::NotFound)?;
        match self.engine.attr(id)?.kind {
            FileKind::Directory => {}
            FileKind::Symlink if !end.has_slash => {
                self.engine.unlink(end.dir, &name)?;
                observer.removed(path, FileType::new(FileKind::Symlink));
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
            let mut forwarded = FirstFailure {
                engine,
                observer: Forwarded(observer),
            };
            let mut removal = Removal::new(engine, Subvolumes::Refuse, &mut forwarded);
            removal.contents(id, path.as_os_str().as_bytes())?;
        }
        self.engine.rmdir(end.dir, &name)?;
        observer.removed(path, FileType::new(FileKind::Directory));
        Ok(())
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

/// An observer that ignores all events.
struct Unobserved;

impl RemovalObserver for Unobserved {
    fn failed(&mut self, _: &Path, error: Error) -> Result<()> {
        Err(error)
    }
}

/// Forwards to an observer of the program.
struct Forwarded<'a>(&'a mut dyn RemovalObserver);

impl Observer for Forwarded<'_> {
    type Stop = Error;

    fn begin(&mut self, path: &[u8]) -> Result<()> {
        let path = Path::new(OsStr::from_bytes(path));
        if self.0.is_cancelled() {
            Err(Error::new("remove", path, Cause::Cancelled))
        } else {
            Ok(())
        }
    }

    fn removed(&mut self, path: &[u8], kind: FileKind) {
        let path = Path::new(OsStr::from_bytes(path));
        self.0.removed(path, FileType::new(kind));
    }

    fn failed(&mut self, path: &[u8], problem: RemovalProblem<'_>) -> Result<()> {
        let path = Path::new(OsStr::from_bytes(path));
        let error = named(path, problem);
        if error.is_of_volume() {
            Err(error)
        } else {
            self.0.failed(path, error)
        }
    }
}

/// Ends a removal at the first failure.
struct FirstFailure<'a> {
    engine: &'a Engine,
    observer: Forwarded<'a>,
}

impl Observer for FirstFailure<'_> {
    type Stop = Error;

    fn begin(&mut self, path: &[u8]) -> Result<()> {
        self.observer.begin(path)
    }

    fn removed(&mut self, path: &[u8], kind: FileKind) {
        self.observer.removed(path, kind);
    }

    fn failed(&mut self, path: &[u8], problem: RemovalProblem<'_>) -> Result<()> {
        let path = Path::new(OsStr::from_bytes(path));
        match problem {
            RemovalProblem::Enter {
                dir,
                entry,
                refused,
            } => {
                let operation = "enter";
                let found = self.engine.lookup(dir, &entry.name);
                if found.naming(operation, path)? != Some(entry.id) {
                    // Another thread has moved or removed it in between.
                    return Ok(());
                }
                let error = match refused {
                    Refused::Elsewhere => looped(dir, entry),
                    Refused::Engine(error) => error,
                };
                Err(error).naming(operation, path)
            }
            // Another thread has removed it in between.
            RemovalProblem::Unlink(EngineError::NotFound)
            | RemovalProblem::Rmdir(EngineError::NotFound) => Ok(()),
            problem => Err(named(path, problem)),
        }
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
