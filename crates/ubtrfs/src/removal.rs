//! Removing a directory with all below.
//!
//! Invariants
//! - REMOVAL-1: a link is removed and never followed, at the top as below. Names are removed in directories that are
//!   held by their handles, whatever is renamed meanwhile.
//! - REMOVAL-2: no subvolume is entered. One that is there at the beginning is refused before anything is removed.
//! - REMOVAL-3: a directory is entered only if it is none of those on the way to it, so that a removal ends on any bytes.
//!
//! Memory: `BATCH` entries a level of the tree.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ubtrfs_engine::{CorruptItem, DirEntry, FileId, FileKind};
use ubtrfs_engine::{Error as EngineError, Volume as Engine};
use ubtrfs_format::key::{Key, KeyType};

use crate::error::{Error, Naming, Result};
use crate::open::Volume;

/// Entries of a directory that are read at a time.
const BATCH: usize = 1024;

impl Volume {
    /// Removes a directory with all that is in it; a link itself, as `std::fs` does.
    ///
    /// Errors: it is a subvolume, or one is below, in which case nothing is removed. A file that cannot be removed, such as
    /// an immutable one, ends the removal half-way.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.remove_tree(path).naming("remove directory", path)
    }

    fn remove_tree(&self, path: &Path) -> Result<()> {
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
        if !id.is_stub() {
            if id.root != end.dir.root {
                return Err(Error::Subvolume(path.to_owned()));
            }
            refuse_subvolumes(&self.engine, id, path)?;
            Removal::of(&self.engine, id, path).run()?;
        }
        Ok(self.engine.rmdir(end.dir, &name)?)
    }
}

/// REMOVAL-2. Goes from each subvolume up to the directory or the root of its tree: there are few subvolumes, and perhaps
/// millions of files below.
fn refuse_subvolumes(engine: &Engine, top: FileId, path: &Path) -> Result<()> {
    let mut elsewhere = HashSet::new();
    let places = engine.subvolumes()?.into_iter().filter_map(|s| s.place);
    for place in places.filter(|place| place.dir.root == top.root) {
        let mut names = vec![place.name];
        let mut at = place.dir;
        // A damaged volume may have directories in a loop.
        while at == top || elsewhere.insert(at) {
            if at == top {
                let names = names.iter().rev().map(|name| OsStr::from_bytes(name));
                return Err(Error::Subvolume(path.join(names.collect::<PathBuf>())));
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

/// A directory that is being emptied.
struct Level {
    dir: FileId,
    /// In the directory of the level before.
    name: Vec<u8>,
    entries: std::vec::IntoIter<DirEntry>,
    /// Where the next batch begins; None after the last.
    from: Option<u64>,
}

impl Level {
    fn of(dir: FileId, name: &[u8]) -> Level {
        Level {
            dir,
            name: name.to_vec(),
            entries: Vec::new().into_iter(),
            from: Some(0),
        }
    }

    fn next(&mut self, engine: &Engine) -> Result<Option<DirEntry>> {
        if let Some(entry) = self.entries.next() {
            return Ok(Some(entry));
        }
        let Some(from) = self.from.take() else {
            return Ok(None);
        };
        let mut entries = Vec::new();
        engine.readdir(self.dir, from, &mut |entry| {
            let index = entry.index;
            entries.push(entry);
            if entries.len() < BATCH {
                return ControlFlow::Continue(());
            }
            self.from = index.checked_add(1);
            ControlFlow::Break(())
        })?;
        self.entries = entries.into_iter();
        Ok(self.entries.next())
    }
}

struct Removal<'a> {
    engine: &'a Engine,
    /// From the top down.
    levels: Vec<Level>,
    path: PathBuf,
}

impl Removal<'_> {
    fn of<'a>(engine: &'a Engine, top: FileId, path: &Path) -> Removal<'a> {
        Removal {
            engine,
            levels: vec![Level::of(top, b"")],
            path: path.to_owned(),
        }
    }

    /// Empties the top.
    fn run(mut self) -> Result<()> {
        while let Some(level) = self.levels.last_mut() {
            let listed = level.next(self.engine).naming("list", &self.path)?;
            if let Some(entry) = listed {
                self.entry(&entry)?;
                continue;
            }
            let emptied = self.levels.pop();
            if let (Some(parent), Some(emptied)) = (self.levels.last(), emptied) {
                let removed = self.engine.rmdir(parent.dir, &emptied.name);
                gone(removed).naming("remove directory", &self.path)?;
            }
            self.path.pop();
        }
        Ok(())
    }

    fn entry(&mut self, entry: &DirEntry) -> Result<()> {
        let Some(parent) = self.levels.last().map(|level| level.dir) else {
            return Ok(());
        };
        self.path.push(OsStr::from_bytes(&entry.name));
        if entry.kind == FileKind::Directory && !entry.id.is_stub() {
            self.check_enter(parent, entry)?;
            self.levels.push(Level::of(entry.id, &entry.name));
            return Ok(());
        }
        let removed = match entry.kind {
            FileKind::Directory => self.engine.rmdir(parent, &entry.name),
            _ => self.engine.unlink(parent, &entry.name),
        };
        gone(removed).naming("remove", &self.path)?;
        self.path.pop();
        Ok(())
    }

    fn check_enter(&self, parent: FileId, entry: &DirEntry) -> Result<()> {
        if entry.id.root != parent.root {
            return Err(Error::Subvolume(self.path.clone()));
        }
        // REMOVAL-3
        if self.levels.iter().any(|level| level.dir == entry.id) {
            let looped = EngineError::Corrupt {
                tree: parent.root,
                key: Key::new(entry.id.ino.0, KeyType::INODE_ITEM, 0),
                what: CorruptItem::Loop,
            };
            return Err(looped).naming("enter", &self.path);
        }
        Ok(())
    }
}

/// What somebody else has removed meanwhile is removed.
fn gone(removed: std::result::Result<(), EngineError>) -> std::result::Result<(), EngineError> {
    match removed {
        Err(EngineError::NotFound) => Ok(()),
        removed => removed,
    }
}
