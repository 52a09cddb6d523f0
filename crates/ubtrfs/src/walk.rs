//! Walking all that is below a directory.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ubtrfs_engine::{DirEntry as EngineEntry, FileId, FileKind};

use crate::error::{Cause, Naming, Result};
use crate::handle::Engine;
use crate::read_dir::DirEntry;
use crate::subvolume::Subvolume;
use crate::transfer::walk::{Entry, Filter, Order, Refused, Step, WalkOn};

/// An iterator over all that is below a directory, each directory before what is in it. Subvolumes count as directories, and
/// links are not followed.
///
/// It goes on behind an error, which has the path. Memory grows with the depth, and not with the files. On a damaged volume
/// a directory that stands in several places is an error, so that a walk always ends.
///
/// ```
/// use std::path::Path;
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir_all("/data/old/older")?;
/// root.write("/data/file", b"content")?;
/// let mut found = Vec::new();
/// let mut walk = root.walk("/data")?;
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
    walk: WalkOn<Arc<ubtrfs_engine::Volume>>,
    /// Keeps the volume open.
    engine: Engine,
    /// The directory that the next step enters.
    next_dir: Option<Entry>,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Walk");
        shown.field("at", &self.path()).finish_non_exhaustive()
    }
}

impl Walk {
    fn new(engine: &Engine, dir: FileId, path: &Path, order: Order) -> Walk {
        let path = path.as_os_str().as_bytes();
        let volume = Arc::clone(engine);
        Walk {
            walk: WalkOn::on(volume, dir, path, order, Filter::default()),
            engine: engine.clone(),
            next_dir: None,
        }
    }

    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.walk.path()))
    }

    /// How far below the beginning the last entry is: 1 for what is right in that directory.
    pub fn depth(&self) -> usize {
        self.walk.depth()
    }

    /// Leaves out what is in the directory that was returned last.
    pub fn skip_contents(&mut self) {
        self.next_dir = None;
    }

    fn entry(&mut self, entry: Entry) -> DirEntry {
        if entry.kind == FileKind::Directory {
            self.next_dir = Some(entry.clone());
        }
        let path = self.walk.path();
        let dir = &path[..path.len() - entry.name.len()];
        let dir = Path::new(OsStr::from_bytes(dir)).to_owned();
        let Entry {
            name,
            kind,
            id,
            index,
        } = entry;
        let entry = EngineEntry {
            name,
            kind,
            id,
            index,
        };
        DirEntry::new(&self.engine, dir, entry)
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if let Some(dir) = self.next_dir.take()
            && let Err(refused) = self.walk.enter(&dir)
        {
            return Some(Err(Cause::from(refused)).naming("enter", self.path()));
        }
        loop {
            match self.walk.next_step()? {
                Step::Entry(entry) => return Some(Ok(self.entry(entry))),
                Step::Failed(error) => return Some(Err(error).naming("list", self.path())),
                Step::Leave => {}
            }
        }
    }
}

impl Subvolume {
    /// Walks all that is below a directory, in the order in which the entries of each were made.
    ///
    /// # Errors
    ///
    /// It is no directory, is missing, or cannot be read.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        self.walk_in(path.as_ref(), Order::Index)
    }

    /// Walks all that is below a directory, by the bytes of the names in each. Memory grows with the largest directory.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::walk`].
    pub fn walk_by_name(&self, path: impl AsRef<Path>) -> Result<Walk> {
        self.walk_in(path.as_ref(), Order::Name)
    }

    fn walk_in(&self, path: &Path, order: Order) -> Result<Walk> {
        let begun = self
            .resolve(path)
            .and_then(|dir| match self.engine.attr(dir)?.kind {
                FileKind::Directory => Ok(Walk::new(&self.engine, dir, path, order)),
                _ => Err(ubtrfs_engine::Error::NotADirectory(dir).into()),
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
