//! All that a reader shows of a volume, as a sorted list that can be kept and compared.
//!
//! Any reader can be walked that implements `Source`: the kernel's mount and ours through `Vfs`, the
//! library through an adapter in its tests. A failure of a reader is part of the list and never equal to
//! anything, so that a comparison names all faults at once.

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

/// Entries sorted by path; the first is the root, whose path is empty. Paths have no leading slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    pub entries: Vec<Entry>,
    pub faults: Vec<Fault>,
}

/// Something that the reader could not show, or showed in two ways.
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

    /// Walks a folder through the system's file interface, into subvolumes and mounts as well.
    pub fn of_dir(dir: &Path) -> Result<Manifest> {
        Ok(Manifest::of(&mut Vfs::new(dir)?))
    }

    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.path.as_slice().cmp(path));
        at.ok().map(|at| &self.entries[at])
    }

    /// Returns the part below the folder `path`, as if that were the root.
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
