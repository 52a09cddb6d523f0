//! Walking a directory of a volume from the top down.
//!
//! Invariants
//! - WALK-1: a directory is entered only from the directory that it names as its parent, and only once
//!   from there. Whatever a damaged or crafted image holds, a walk is then over a tree, and ends.
//! - WALK-2: memory is bounded by the largest directory on the way, plus the depth.
//!
//! Not here: what is done with an entry (the commands), order of the items on disk (engine).

use std::collections::HashSet;
use std::ops::ControlFlow;

use ubtrfs_engine::{Error, FileId, FileKind, Volume};

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: FileKind,
    pub(crate) id: FileId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// By the bytes of the names.
    Name,
    /// As the directory lists them.
    Index,
}

/// Which entries are passed over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filter {
    /// Those whose names begin with a dot.
    pub(crate) skip_hidden: bool,
    pub(crate) only_directories: bool,
}

impl Filter {
    fn passes(self, entry: &Entry) -> bool {
        !(self.skip_hidden && entry.name.starts_with(b".")
            || self.only_directories && entry.kind != FileKind::Directory)
    }
}

/// The entries of a directory, and the error that ended the listing early if one did.
pub(crate) fn entries(volume: &Volume, dir: FileId, order: Order) -> (Vec<Entry>, Option<Error>) {
    let mut entries = Vec::new();
    let result = volume.readdir(dir, 0, &mut |entry| {
        entries.push(Entry {
            name: entry.name,
            kind: entry.kind,
            id: entry.id,
        });
        ControlFlow::Continue(())
    });
    if order == Order::Name {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
    }
    (entries, result.err())
}

/// The subdirectories that may be entered from one directory (WALK-1).
#[derive(Debug)]
pub(crate) struct Gate {
    dir: FileId,
    entered: HashSet<FileId>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("directory stands in more than one place")]
    Elsewhere,
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Gate {
    pub(crate) fn of(dir: FileId) -> Gate {
        Gate {
            dir,
            entered: HashSet::new(),
        }
    }

    /// Whether the walk may enter `child` from here; counts as entered if so.
    pub(crate) fn pass(&mut self, volume: &Volume, child: FileId) -> Result<(), Refused> {
        // A stub is empty: it cannot lead anywhere.
        if child.is_stub() {
            return Ok(());
        }
        match volume.parent(child)? == self.dir && self.entered.insert(child) {
            true => Ok(()),
            false => Err(Refused::Elsewhere),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Step {
    /// An entry; its path is [`Walk::path`]. A directory is entered if the caller says so next.
    Entry(Entry),
    /// All of a directory that was entered has been seen; its path is [`Walk::path`].
    Leave,
    /// The directory at [`Walk::path`] could not be listed to its end.
    Failed(Error),
}

#[derive(Debug)]
struct Level {
    gate: Gate,
    entries: std::vec::IntoIter<Entry>,
    failed: Option<Error>,
    /// How much of the path is this directory's own.
    path_len: usize,
}

/// A walk in pre-order; the caller pulls the steps.
#[derive(Debug)]
pub(crate) struct Walk<'v> {
    volume: &'v Volume,
    order: Order,
    filter: Filter,
    levels: Vec<Level>,
    path: Vec<u8>,
}

impl<'v> Walk<'v> {
    /// Begins within `dir`, whose own path is `path` ("" for paths without a leading slash).
    pub(crate) fn new(
        volume: &'v Volume,
        dir: FileId,
        path: &[u8],
        order: Order,
        filter: Filter,
    ) -> Walk<'v> {
        let mut walk = Walk {
            volume,
            order,
            filter,
            levels: Vec::new(),
            path: path.to_vec(),
        };
        walk.push(dir);
        walk
    }

    pub(crate) fn volume(&self) -> &'v Volume {
        self.volume
    }

    /// The path of what the last step was about.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// How many directories the last step's entry is below the beginning: 1 for those right in it.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Enters the directory that the last step returned.
    pub(crate) fn enter(&mut self, dir: FileId) -> Result<(), Refused> {
        if let Some(level) = self.levels.last_mut() {
            level.gate.pass(self.volume, dir)?;
        }
        self.push(dir);
        Ok(())
    }

    fn push(&mut self, dir: FileId) {
        let (mut entries, failed) = entries(self.volume, dir, self.order);
        entries.retain(|entry| self.filter.passes(entry));
        self.levels.push(Level {
            gate: Gate::of(dir),
            entries: entries.into_iter(),
            failed,
            path_len: self.path.len(),
        });
    }

    /// The next step; None after the beginning's own `Leave`.
    pub(crate) fn next(&mut self) -> Option<Step> {
        let level = self.levels.last_mut()?;
        self.path.truncate(level.path_len);
        if let Some(error) = level.failed.take() {
            return Some(Step::Failed(error));
        }
        match level.entries.next() {
            Some(entry) => {
                if !self.path.is_empty() && !self.path.ends_with(b"/") {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(&entry.name);
                Some(Step::Entry(entry))
            }
            None => {
                self.levels.pop();
                Some(Step::Leave)
            }
        }
    }

    /// Whether more entries follow in the directory of the last step.
    pub(crate) fn has_sibling(&self) -> bool {
        self.levels
            .last()
            .is_some_and(|level| !level.entries.as_slice().is_empty())
    }
}
