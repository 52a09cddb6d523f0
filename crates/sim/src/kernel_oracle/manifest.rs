//! Everything that a reader shows of a volume, as a sorted list for comparisons.
//!
//! Any reader that implements `Source` can be walked: the kernel's mount and ours through `Vfs`, the library through
//! an adapter in its tests. Errors of a reader are part of the list and never equal to anything, so that one
//! comparison reports all faults.

mod content;
mod diff;
mod entry;
mod identity;
mod text;
mod vfs;
mod walk;

#[cfg(test)]
mod tests;

pub use content::Digest;
pub use diff::{Difference, Field, assert_same, diff, diff_without};
pub(crate) use entry::EMPTY_SUBVOLUME_DIR_INO;
pub use entry::{Content, Entry, Kind, Stat, Time, Value};
pub use vfs::Vfs;
pub(crate) use vfs::kind_of;
pub use walk::{Listed, Source, Xattr};

use std::path::Path;

use crate::Result;

/// Entries sorted by path; the first one is the root with an empty path. Paths have no leading slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    pub entries: Vec<Entry>,
    pub faults: Vec<Fault>,
}

/// An error of the reader, or an inconsistency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub path: Vec<u8>,
    pub doing: &'static str,
    pub reason: String,
}

impl Manifest {
    /// Walks `source` from its root.
    pub fn of<S: Source>(source: &mut S) -> Manifest {
        walk::walk(source)
    }

    /// Walks a folder through the system's file interface, including subvolumes and mounts.
    pub fn of_dir(dir: &Path) -> Result<Manifest> {
        Ok(Manifest::of(&mut Vfs::new(dir)?))
    }

    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.path.as_slice().cmp(path));
        at.ok().map(|at| &self.entries[at])
    }

    /// Returns the part below the folder `path`, as if it were the root.
    pub fn below(&self, path: &[u8]) -> Manifest {
        let cut = |full: &[u8]| {
            let rest = full.strip_prefix(path)?;
            match rest.split_first() {
                None => Some(Vec::new()),
                Some((b'/', rest)) => Some(rest.to_vec()),
                Some(_) => path.is_empty().then(|| rest.to_vec()),
            }
        };
        let mut part = Manifest::default();
        for entry in &self.entries {
            if let Some(path) = cut(&entry.path) {
                part.entries.push(Entry {
                    path,
                    ..entry.clone()
                });
            }
        }
        for fault in &self.faults {
            if let Some(path) = cut(&fault.path) {
                part.faults.push(Fault {
                    path,
                    ..fault.clone()
                });
            }
        }
        part.entries.sort_by(|a, b| a.path.cmp(&b.path));
        part
    }
}
