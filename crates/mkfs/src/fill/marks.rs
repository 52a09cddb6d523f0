//! Requests for paths below the root: subvolumes and inode flags.
//!
//! Files inherit flags from their directory. Flags are not inherited across a subvolume boundary, as in the kernel.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ubtrfs_format::item::InodeFlags;

use super::{FlagsRequest, SubvolumeRequest};

#[cfg(test)]
mod tests;

/// Marks files whose holes are written out as zeros. It is not stored in inodes: the format has no such flag.
pub(super) const DENSE: InodeFlags = InodeFlags::from_bits_retain(1 << 63);

#[derive(Debug, Default)]
pub(super) struct Marks {
    by_path: HashMap<Vec<u8>, Mark>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// The index of the request.
    subvolume: Option<usize>,
    flags: InodeFlags,
    is_visited: bool,
}

/// The marks of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marked {
    pub(super) subvolume: Option<usize>,
    pub(super) flags: InodeFlags,
}

impl Marks {
    /// Creates the marks. `dense` contains the paths at and below which holes are written out; they need not exist.
    pub(super) fn new(
        subvolumes: &[SubvolumeRequest],
        flags: &[FlagsRequest],
        dense: &[PathBuf],
    ) -> Marks {
        let mut marks = Marks::default();
        for path in dense {
            let mark = marks.at(path);
            mark.flags |= DENSE;
            mark.is_visited = true;
        }
        for (number, request) in subvolumes.iter().enumerate() {
            let mark = marks.at(&request.path);
            mark.subvolume = Some(number);
            mark.is_visited = false;
        }
        for request in flags {
            let mark = marks.at(&request.path);
            mark.flags |= request.flags;
            mark.is_visited = false;
        }
        marks
    }

    fn at(&mut self, path: &Path) -> &mut Mark {
        self.by_path.entry(join(path)).or_default()
    }

    pub(super) fn are_none(&self) -> bool {
        self.by_path.is_empty()
    }

    /// Returns the marks of a path. `inherited` are the flags of its directory. The path of the root is empty.
    pub(super) fn visit(&mut self, path: &[u8], is_dir: bool, inherited: InodeFlags) -> Marked {
        let Some(mark) = self.by_path.get_mut(path) else {
            return Marked {
                subvolume: None,
                flags: inherited,
            };
        };
        mark.is_visited |= is_dir || mark.subvolume.is_none();
        match mark.subvolume.filter(|_| is_dir) {
            None => Marked {
                subvolume: None,
                flags: inherited | mark.flags,
            },
            subvolume => Marked {
                subvolume,
                flags: mark.flags,
            },
        }
    }

    /// Returns a requested path that was not found. The result is deterministic.
    pub(super) fn unvisited(&self) -> Option<PathBuf> {
        let marks = self.by_path.iter();
        let unvisited = marks.filter(|(_, mark)| !mark.is_visited);
        let first = unvisited.map(|(path, _)| path).min();
        first.map(|path| PathBuf::from(OsStr::from_bytes(path)))
    }
}

/// Joins the names of a path, without components such as `.`.
fn join(path: &Path) -> Vec<u8> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    });
    names.collect::<Vec<_>>().join(&b'/')
}
