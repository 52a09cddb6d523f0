//! Walking a directory of a volume from the top down.
//!
//! Invariants
//! - ENTRIES-1: a directory is entered only from the entry that it records as its own, once, and never the start of the
//!   walk. So even a walk of a damaged or crafted image is over a tree, and ends.
//! - ENTRIES-2: memory is bounded by the depth, with `BATCH` entries a level. In order of names it is bounded by the
//!   largest directory on the path.
//!
//! Not here: the use of entries (the commands), order of the items on disk (engine).

use std::collections::HashSet;
use std::ops::{ControlFlow, Deref};

// The library has a public type of the same name.
pub(crate) use ubtrfs_fs::DirEntry as Entry;
use ubtrfs_fs::{Error, FileId, FileKind, Volume};

#[cfg(test)]
mod tests;

/// The number of entries of a directory that are read at a time.
const BATCH: usize = 1024;

/// The order of a directory's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// By the bytes of the names.
    Name,
    /// In the order of the directory's listing, which needs little memory.
    Index,
}

/// The entries to skip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filter {
    /// Entries whose names begin with a dot.
    pub(crate) skip_hidden: bool,
    pub(crate) only_directories: bool,
}

impl Filter {
    fn passes(self, entry: &Entry) -> bool {
        !(self.skip_hidden && entry.name.starts_with(b".")
            || self.only_directories && entry.kind != FileKind::Directory)
    }
}

/// Returns whether a name is one component of a path: an image may contain any bytes.
pub(crate) fn is_component(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Lists all entries of a directory that pass the filter. The error is the one that ended the listing early.
pub(crate) fn entries(
    volume: &Volume,
    dir: FileId,
    order: Order,
    filter: Filter,
) -> (Vec<Entry>, Option<Error>) {
    let mut listing = Listing::of(dir, order, filter);
    let mut all = Vec::new();
    while let Some(entry) = listing.next(volume) {
        all.push(entry);
    }
    (all, listing.failed)
}

/// A directory that is being listed.
#[derive(Debug)]
struct Listing {
    dir: FileId,
    order: Order,
    filter: Filter,
    entries: std::vec::IntoIter<Entry>,
    failed: Option<Error>,
    /// The start of the next batch; `None` after the last.
    from: Option<u64>,
}

impl Listing {
    fn of(dir: FileId, order: Order, filter: Filter) -> Listing {
        Listing {
            dir,
            order,
            filter,
            entries: Vec::new().into_iter(),
            failed: None,
            from: Some(0),
        }
    }

    /// Reads the next batch, or all entries if they have to be sorted.
    fn fill(&mut self, volume: &Volume) {
        let Some(from) = self.from.take() else { return };
        let mut entries = Vec::new();
        let result = volume.readdir(self.dir, from, &mut |entry| {
            let index = entry.index;
            if self.filter.passes(&entry) {
                entries.push(entry);
            }
            // ENTRIES-2
            if self.order == Order::Index && entries.len() >= BATCH {
                self.from = index.checked_add(1);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if self.order == Order::Name {
            entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.entries = entries.into_iter();
        self.failed = result.err();
    }

    fn next(&mut self, volume: &Volume) -> Option<Entry> {
        if self.entries.as_slice().is_empty() {
            self.fill(volume);
        }
        self.entries.next()
    }
}

/// The subdirectories that may be entered from one directory (ENTRIES-1).
#[derive(Debug)]
pub(crate) struct Gate {
    /// The start of the walk.
    start: FileId,
    dir: FileId,
    /// Entered directories that record their parent, but not the index of their entry in it.
    strays: HashSet<FileId>,
}

/// The reason why a walk does not enter a directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The entry is not the one that the directory records as its own (ENTRIES-1).
    #[error("directory has more than one name")]
    Elsewhere,
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Gate {
    /// Creates the gate to the subdirectories of `dir`, for a walk that began in `start`.
    pub(crate) fn of(start: FileId, dir: FileId) -> Gate {
        Gate {
            start,
            dir,
            strays: HashSet::new(),
        }
    }

    /// Marks the directory of `entry` as entered.
    ///
    /// # Errors
    ///
    /// The walk may not enter it, or cannot determine that.
    pub(crate) fn pass(&mut self, volume: &Volume, entry: &Entry) -> Result<(), Refused> {
        let child = entry.id;
        // It is empty, and so cannot lead anywhere.
        if child.is_empty_subvolume_dir() {
            return Ok(());
        }
        let (parent, index) = volume.parent_entry(child)?;
        if child == self.start || parent != self.dir {
            return Err(Refused::Elsewhere);
        }
        // A directory lists an index once.
        if index == entry.index {
            return Ok(());
        }
        // The directory records another index here. If that entry exists, it is the one to enter. Otherwise the record
        // is damaged, and the first entry is used.
        if self.leads_to(volume, index, child)? || !self.strays.insert(child) {
            return Err(Refused::Elsewhere);
        }
        Ok(())
    }

    /// Returns whether the entry at `index` leads to `child`.
    fn leads_to(&self, volume: &Volume, index: u64, child: FileId) -> Result<bool, Error> {
        let mut found = false;
        volume.readdir(self.dir, index, &mut |entry| {
            found = entry.index == index && entry.id == child;
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}

/// A step of a walk.
#[derive(Debug)]
pub(crate) enum Step {
    /// An entry; its path is [`Walk::path`]. A directory is entered if the caller calls `enter` next.
    Entry(Entry),
    /// The end of a directory that was entered; its path is [`Walk::path`].
    Leave,
    /// The directory at [`Walk::path`] could not be listed completely.
    Failed(Error),
}

#[derive(Debug)]
struct Level {
    gate: Gate,
    listing: Listing,
    /// The length of this directory's path.
    path_len: usize,
}

/// A walk in pre-order; the caller pulls the steps.
pub(crate) type Walk<'v> = WalkOn<&'v Volume>;

/// A walk that holds the volume by a reference or a handle.
#[derive(Debug)]
pub(crate) struct WalkOn<V> {
    volume: V,
    start: FileId,
    order: Order,
    filter: Filter,
    levels: Vec<Level>,
    path: Vec<u8>,
}

impl<'v> Walk<'v> {
    /// Begins a walk within `dir`, whose own path is `path` ("" for paths without a leading slash).
    pub(crate) fn new(
        volume: &'v Volume,
        dir: FileId,
        path: &[u8],
        order: Order,
        filter: Filter,
    ) -> Walk<'v> {
        WalkOn::on(volume, dir, path, order, filter)
    }
}

impl<V: Deref<Target = Volume>> WalkOn<V> {
    /// Begins a walk as [`Walk::new`].
    pub(crate) fn on(
        volume: V,
        dir: FileId,
        path: &[u8],
        order: Order,
        filter: Filter,
    ) -> WalkOn<V> {
        let mut walk = WalkOn {
            volume,
            start: dir,
            order,
            filter,
            levels: Vec::new(),
            path: path.to_vec(),
        };
        walk.push(dir);
        walk
    }

    /// Returns the path of the last step's file.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the depth of the last step's entry. It is 1 directly in the start of the walk.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Enters the directory of the last step.
    ///
    /// # Errors
    ///
    /// It is not entered, and the walk continues after it.
    pub(crate) fn enter(&mut self, entry: &Entry) -> Result<(), Refused> {
        if let Some(level) = self.levels.last_mut() {
            level.gate.pass(&self.volume, entry)?;
        }
        self.push(entry.id);
        Ok(())
    }

    fn push(&mut self, dir: FileId) {
        self.levels.push(Level {
            gate: Gate::of(self.start, dir),
            listing: Listing::of(dir, self.order, self.filter),
            path_len: self.path.len(),
        });
    }

    /// Takes the next step. Returns `None` after the `Leave` of the start.
    pub(crate) fn next_step(&mut self) -> Option<Step> {
        let level = self.levels.last_mut()?;
        self.path.truncate(level.path_len);
        if let Some(entry) = level.listing.next(&self.volume) {
            if !self.path.is_empty() && !self.path.ends_with(b"/") {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&entry.name);
            return Some(Step::Entry(entry));
        }
        if let Some(error) = level.listing.failed.take() {
            return Some(Step::Failed(error));
        }
        self.levels.pop();
        Some(Step::Leave)
    }

    /// Returns whether more entries follow in the directory of the last step, which is known only in order of names.
    pub(crate) fn has_sibling(&self) -> bool {
        self.levels
            .last()
            .is_some_and(|level| !level.listing.entries.as_slice().is_empty())
    }
}
