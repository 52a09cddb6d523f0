//! Random paths of a model, for a generator of scripts.

use super::inode::{Body, InodeId};
use super::lookup::Found;
use super::{ModelFs, TOP};
use crate::Rng;
use crate::vocabulary::FsPath;

/// The wanted kind of a path's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Any,
    File,
    FilledFile,
    Dir,
    /// A directory in which names can be created.
    OpenDir,
    EmptyDir,
    NoDir,
    /// A file or a special file, but not a symlink.
    NoSymlink,
    /// Any subvolume except for the top level.
    Subvolume,
    ReadOnlySubvolume,
    /// Immutable or append-only.
    Protected,
    WithXattrs,
    EmptySubvolumeDir,
}

impl Wanted {
    fn takes_root(self) -> bool {
        matches!(self, Wanted::Dir | Wanted::OpenDir)
    }
}

const WALKS: usize = 40;

impl ModelFs {
    /// Finds a path to an inode of the wanted kind. Returns None if a few random walks from the root found none.
    pub fn wander(&self, rng: &mut Rng, wanted: Wanted) -> Option<FsPath> {
        (0..WALKS).find_map(|_| self.walk(rng, wanted))
    }

    fn walk(&self, rng: &mut Rng, wanted: Wanted) -> Option<FsPath> {
        let mut at = Found::Inode(TOP.root());
        let mut path = FsPath::default();
        let mut met = None;
        loop {
            // The volume's root is usually skipped, because most operations do not apply to it.
            let is_passed_by = path.is_root() && !wanted.takes_root() && !rng.one_in(30);
            if !is_passed_by && self.is_wanted(at, wanted) {
                met = Some(path.clone());
                if rng.one_in(3) {
                    return met;
                }
            }
            let Found::Inode(id) = at else {
                return met;
            };
            let Body::Dir(dir) = &self.inode(id).body else {
                return met;
            };
            let count = dir.entries.size() as u64;
            if count == 0 {
                return met;
            }
            let (name, entry) = dir.entries.iter().nth(rng.below(count) as usize)?;
            path = path.join(name);
            at = self.follow(id, name, entry);
        }
    }

    fn is_wanted(&self, found: Found, wanted: Wanted) -> bool {
        let Found::Inode(id) = found else {
            return matches!(
                wanted,
                Wanted::Any | Wanted::EmptySubvolumeDir | Wanted::EmptyDir
            );
        };
        let inode = self.inode(id);
        let is_top = id == TOP.root();
        match wanted {
            Wanted::Any => true,
            Wanted::File => matches!(inode.body, Body::File(_)),
            Wanted::FilledFile => matches!(inode.body, Body::File(_)) && inode.size() > 0,
            Wanted::Dir => inode.is_dir(),
            Wanted::OpenDir => inode.is_dir() && self.may_change_names(id).is_ok(),
            Wanted::EmptyDir => inode.dir().is_ok_and(|dir| dir.entries.size() == 0) && !is_top,
            Wanted::NoDir => !inode.is_dir(),
            Wanted::NoSymlink => !matches!(inode.body, Body::Symlink(_)),
            Wanted::Subvolume => id.is_subvolume() && !is_top,
            Wanted::ReadOnlySubvolume => {
                id.is_subvolume() && self.subvolume(id.subvolume).read_only
            }
            Wanted::Protected => self.check_mutable(id).is_err(),
            Wanted::WithXattrs => !inode.xattrs.is_empty(),
            Wanted::EmptySubvolumeDir => false,
        }
    }

    /// Returns the size of the file at a path, or 0 without one.
    pub fn size_at(&self, path: &FsPath) -> u64 {
        self.found(path).map_or(0, |id| self.inode(id).size())
    }

    pub fn exists(&self, path: &FsPath) -> bool {
        self.find(path).is_ok()
    }

    pub fn is_dir_at(&self, path: &FsPath) -> bool {
        self.find(path).is_ok_and(|found| self.is_dir(found))
    }

    pub fn is_read_only_at(&self, path: &FsPath) -> bool {
        self.found(path)
            .is_some_and(|id| self.subvolume(id.subvolume).read_only)
    }

    /// Lists the names of the xattrs of the file at a path.
    pub fn xattrs_at(&self, path: &FsPath) -> Vec<Vec<u8>> {
        let found = self.found(path);
        found.map_or(Vec::new(), |id| {
            self.inode(id).xattrs.keys().cloned().collect()
        })
    }

    /// Returns the number of inodes in all subvolumes.
    pub fn inode_count(&self) -> usize {
        let counts = self.subvolumes.values();
        counts.map(|subvolume| subvolume.inodes.size()).sum()
    }

    pub fn subvolume_count(&self) -> usize {
        self.subvolumes.size()
    }

    fn found(&self, path: &FsPath) -> Option<InodeId> {
        self.find_inode(path).ok()
    }
}
