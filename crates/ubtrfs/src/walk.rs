//! Walking all files below a directory.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_fs::{FileId, FileKind};

use crate::error::{Cause, Naming, Result};
use crate::handle::Engine;
use crate::read_dir::DirEntry;
use crate::subvolume::Subvolume;
use crate::transfer::walk::{Entry, Filter, Order, Refused, Step, WalkOn};

/// An iterator over all files below a directory, each directory before its contents. Subvolumes count as directories,
/// and links are not followed.
///
/// It continues after an error, which has the path. Memory use grows with the depth, and not with the number of files.
/// On a damaged volume a directory with several parents is an error, so that a walk always ends.
///
/// ```
/// use std::path::Path;
/// use ubtrfs::{Volume, WalkOptions};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir_all("/data/old/older")?;
/// root.write("/data/file", b"content")?;
/// let mut found = Vec::new();
/// let mut walk = root.walk("/data", &WalkOptions::new())?;
/// while let Some(entry) = walk.next() {
///     let entry = entry?;
///     if entry.file_name() == "old" {
///         walk.skip_contents();
///     }
///     found.push(entry.path());
/// }
/// assert_eq!(found, [Path::new("/data/old"), Path::new("/data/file")]);
/// # Ok(())
/// # }
/// ```
pub struct Walk {
    walk: WalkOn<Arc<ubtrfs_fs::Volume>>,
    /// Keeps the volume open.
    engine: Engine,
    /// The paths of the directories that the walk is in, from the start down.
    dirs: Vec<Arc<Path>>,
    /// The directory that the next step enters, with its path.
    next_dir: Option<(Entry, PathBuf)>,
    /// Whether the last error belongs to that directory.
    is_refused: bool,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Walk");
        shown.field("in", &self.dirs.last()).finish_non_exhaustive()
    }
}

impl Walk {
    fn new(engine: &Engine, dir: FileId, path: &Path, options: WalkOptions) -> Walk {
        let dirs = vec![path.into()];
        let path = path.as_os_str().as_bytes();
        let volume = Arc::clone(engine);
        Walk {
            walk: WalkOn::on(volume, dir, path, options.order(), options.filter),
            engine: engine.clone(),
            dirs,
            next_dir: None,
            is_refused: false,
        }
    }

    /// Returns the depth of the last entry: 1 directly in the start directory.
    pub fn depth(&self) -> usize {
        self.walk.depth()
    }

    /// Returns whether more entries follow in the directory of the last one. It is known only with
    /// [`WalkOptions::sort_by_name`].
    pub fn has_sibling(&self) -> bool {
        self.walk.has_sibling()
    }

    /// Returns whether the last step was an error of the previous directory entry, which is not entered. Any other
    /// error belongs to a directory that could not be listed completely, after the entries that were read.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Skips the contents of the directory that was returned last.
    pub fn skip_contents(&mut self) {
        self.next_dir = None;
    }

    fn entry(&mut self, entry: Entry) -> DirEntry {
        let next_dir = (entry.kind == FileKind::Directory).then(|| entry.clone());
        let dir = self.current_dir();
        let entry = DirEntry::new(&self.engine, dir, entry);
        self.next_dir = next_dir.map(|dir| (dir, entry.path()));
        entry
    }

    /// Returns the path of the directory of the last step. ENTRY-PATH-1 holds for this path, but not for the path in
    /// `walk`.
    fn current_dir(&mut self) -> Arc<Path> {
        self.dirs.truncate(self.walk.depth());
        let dir = self.dirs.last().map(Arc::clone);
        dir.unwrap_or_else(|| Path::new("").into())
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        self.is_refused = false;
        if let Some((dir, path)) = self.next_dir.take() {
            if let Err(refused) = self.walk.enter(&dir) {
                self.is_refused = true;
                return Some(Err(Cause::from(refused)).naming("enter", &path));
            }
            self.dirs.push(path.into());
        }
        loop {
            match self.walk.next_step()? {
                Step::Entry(entry) => return Some(Ok(self.entry(entry))),
                Step::Failed(error) => {
                    return Some(Err(error).naming("list", &self.current_dir()));
                }
                Step::Leave => {}
            }
        }
    }
}

/// Options for [`Subvolume::walk`] and [`Subvolume::walk_dirs`].
///
/// ```
/// use std::path::Path;
/// use ubtrfs::{Volume, WalkOptions};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir_all("/data/b")?;
/// root.create_dir_all("/data/.hidden")?;
/// root.create_dir_all("/data/a/below")?;
/// root.write("/data/a/file", b"content")?;
/// let options = WalkOptions::new()
///     .sort_by_name(true)
///     .skip_hidden(true)
///     .only_directories(true);
/// let walk = root.walk("/data", &options)?;
/// let found = walk.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, ubtrfs::Error>>()?;
/// assert_eq!(found, ["/data/a", "/data/a/below", "/data/b"].map(Path::new));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkOptions {
    by_name: bool,
    pub(crate) no_follow: bool,
    pub(crate) filter: Filter,
}

impl WalkOptions {
    /// Creates options that return everything, with the entries of each directory in the order of their creation.
    pub fn new() -> WalkOptions {
        WalkOptions::default()
    }

    /// Sorts each directory by the bytes of the names. Memory use grows with the largest directory then.
    #[must_use]
    pub fn sort_by_name(mut self, by_name: bool) -> WalkOptions {
        self.by_name = by_name;
        self
    }

    /// Does not follow a link at the end of the path, which is an error then. Links below it are never followed.
    #[must_use]
    pub fn no_follow(mut self, no_follow: bool) -> WalkOptions {
        self.no_follow = no_follow;
        self
    }

    /// Skips entries whose names begin with a dot, and everything below them.
    #[must_use]
    pub fn skip_hidden(mut self, skip_hidden: bool) -> WalkOptions {
        self.filter.skip_hidden = skip_hidden;
        self
    }

    /// Skips all entries except directories.
    #[must_use]
    pub fn only_directories(mut self, only_directories: bool) -> WalkOptions {
        self.filter.only_directories = only_directories;
        self
    }

    pub(crate) fn order(self) -> Order {
        if self.by_name {
            Order::Name
        } else {
            Order::Index
        }
    }
}

impl Subvolume {
    /// Walks the files below a directory.
    ///
    /// # Errors
    ///
    /// It is not a directory, does not exist, or cannot be read.
    pub fn walk(&self, path: impl AsRef<Path>, options: &WalkOptions) -> Result<Walk> {
        let path = path.as_ref();
        let dir = if options.no_follow {
            self.resolve_link(path)
        } else {
            self.resolve(path)
        };
        let begun = dir.and_then(|dir| match self.engine.attr(dir)?.kind {
            FileKind::Directory => Ok(Walk::new(&self.engine, dir, path, *options)),
            _ => Err(ubtrfs_fs::Error::NotADirectory(dir).into()),
        });
        begun.naming("walk", path)
    }
}

impl From<Refused> for Cause {
    fn from(refused: Refused) -> Cause {
        match refused {
            Refused::Elsewhere => Cause::Elsewhere,
            Refused::Engine(error) => Cause::Engine(error),
        }
    }
}
