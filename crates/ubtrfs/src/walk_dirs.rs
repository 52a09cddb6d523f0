//! Walking directories, each listed completely before its subdirectories.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_fs::{Error as EngineError, FileId, FileKind};

use crate::dir::Dir;
use crate::error::{Cause, Error, Naming, Result};
use crate::handle::Engine;
use crate::read_dir::DirEntry;
use crate::subvolume::Subvolume;
use crate::transfer::walk::{Entry, Gate, entries};
use crate::walk::WalkOptions;

/// An iterator over a directory and all directories below it, each with all of its entries, as `ls -R` lists them. A
/// directory is returned before its subdirectories. Subvolumes count as directories, and links are not followed.
///
/// It continues after an error, which has the path. On a damaged volume a directory with several parents is an error,
/// so that a walk always ends.
///
/// All entries of a directory are in memory, and the paths of directories that are still to be listed. These are the
/// later siblings on each level above. [`Walk`](crate::Walk) needs less.
///
/// ```
/// use std::path::Path;
/// use ubtrfs::{Volume, WalkOptions};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir_all("/data/old")?;
/// root.write("/data/file", b"content")?;
/// let mut found = Vec::new();
/// for dir in root.walk_dirs("/data", &WalkOptions::new().sort_by_name(true))? {
///     let dir = dir?;
///     found.push((dir.path.to_path_buf(), dir.entries.len()));
/// }
/// assert_eq!(found, [(Path::new("/data").to_owned(), 2), (Path::new("/data/old").to_owned(), 0)]);
/// # Ok(())
/// # }
/// ```
pub struct WalkDirs {
    engine: Engine,
    /// The root of the subvolume that is walked.
    top: FileId,
    /// The start of the walk.
    start: FileId,
    options: WalkOptions,
    /// Directories to list and errors to return, the next one last.
    pending: Vec<Result<(Arc<Path>, FileId)>>,
    /// The directory that was returned last, and its subdirectories with their paths.
    last: Option<(FileId, Vec<(Entry, PathBuf)>)>,
}

/// A directory of a walk with its entries. [`WalkDirs`] has an example.
#[derive(Debug)]
#[non_exhaustive]
pub struct ListedDir {
    /// The path of the start, as it was given, joined with the names below it.
    pub path: Arc<Path>,
    /// The entries that are not skipped.
    pub entries: Vec<DirEntry>,
    /// The error that ended the listing early.
    pub failure: Option<Error>,
    engine: Engine,
    id: FileId,
    /// The root of the subvolume that was walked.
    top: FileId,
}

impl ListedDir {
    /// Opens the directory itself, without a new path lookup.
    pub fn open(&self) -> Dir {
        Dir::listed(&self.engine, self.id, self.top, self.path.to_path_buf())
    }

    /// Opens the parent directory: `..`. The top directory of the walked subvolume is its own parent.
    ///
    /// # Errors
    ///
    /// The directory was removed, or the volume cannot be read.
    pub fn open_parent(&self) -> Result<Dir> {
        let path = self.path.join("..");
        let parent = if self.id == self.top {
            Ok(self.id)
        } else {
            self.engine.parent(self.id)
        };
        let parent = parent.naming("open directory", &path)?;
        Ok(Dir::listed(&self.engine, parent, self.top, path))
    }
}

impl fmt::Debug for WalkDirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("WalkDirs");
        shown
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl WalkDirs {
    /// Skips everything below the directory that was returned last.
    pub fn skip_below(&mut self) {
        self.last = None;
    }

    fn list(&mut self, path: Arc<Path>, dir: FileId) -> ListedDir {
        let WalkOptions { filter, .. } = self.options;
        let (entries, failed) = entries(&self.engine, dir, self.options.order(), filter);
        let mut below = Vec::new();
        let mut entry = |entry: Entry| {
            let dir = (entry.kind == FileKind::Directory).then(|| entry.clone());
            let entry = DirEntry::new(&self.engine, Arc::clone(&path), entry);
            below.extend(dir.map(|dir| (dir, entry.path())));
            entry
        };
        let entries = entries.into_iter().map(&mut entry).collect();
        self.last = Some((dir, below));
        let failure = failed.and_then(|error| Err::<(), _>(error).naming("list", &path).err());
        ListedDir {
            engine: self.engine.clone(),
            id: dir,
            top: self.top,
            path,
            entries,
            failure,
        }
    }

    /// Adds the subdirectories of a directory.
    fn push_below(&mut self, dir: FileId, below: Vec<(Entry, PathBuf)>) {
        let mut gate = Gate::of(self.start, dir);
        let mut passed = Vec::with_capacity(below.len());
        for (entry, path) in below {
            let entered = gate.pass(&self.engine, &entry).map_err(Cause::from);
            let entered = entered.naming("enter", &path);
            passed.push(entered.map(|()| (path.into(), entry.id)));
        }
        self.pending.extend(passed.into_iter().rev());
    }
}

impl Iterator for WalkDirs {
    type Item = Result<ListedDir>;

    fn next(&mut self) -> Option<Result<ListedDir>> {
        if let Some((dir, below)) = self.last.take() {
            self.push_below(dir, below);
        }
        Some(match self.pending.pop()? {
            Ok((path, dir)) => Ok(self.list(path, dir)),
            Err(error) => Err(error),
        })
    }
}

impl Subvolume {
    /// Walks a directory and all directories below it, each listed completely.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::walk`].
    pub fn walk_dirs(&self, path: impl AsRef<Path>, options: &WalkOptions) -> Result<WalkDirs> {
        let path = path.as_ref();
        let dir = if options.no_follow {
            self.resolve_link(path)
        } else {
            self.resolve(path)
        };
        let begun = dir.and_then(|dir| match self.engine.attr(dir)?.kind {
            FileKind::Directory => Ok(WalkDirs {
                engine: self.engine.clone(),
                top: self.root,
                start: dir,
                options: *options,
                pending: vec![Ok((path.into(), dir))],
                last: None,
            }),
            _ => Err(EngineError::NotADirectory(dir).into()),
        });
        begun.naming("walk", path)
    }
}
