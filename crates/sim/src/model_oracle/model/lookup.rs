//! Resolution of paths to inodes.

use super::inode::{DirEntry, InodeId, Target};
use super::{ModelFs, TOP};
use crate::vocabulary::{At, FsPath, OpError};

const NAME_BYTES: usize = 255;

/// The result of resolving a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Inode(InodeId),
    /// In a snapshot, the empty directory in place of a nested subvolume.
    EmptySubvolumeDir,
}

impl ModelFs {
    pub(super) fn find(&self, path: &FsPath) -> Result<Found, OpError> {
        let mut at = Found::Inode(TOP.root());
        for name in path.names() {
            let Found::Inode(dir) = at else {
                return Err(if name.len() > NAME_BYTES {
                    OpError::NameTooLong
                } else {
                    OpError::NotFound
                });
            };
            at = self.lookup(dir, name)?.ok_or(OpError::NotFound)?;
        }
        Ok(at)
    }

    /// Finds an inode. Operations on an empty subvolume directory are out of scope.
    pub(super) fn find_inode(&self, path: &FsPath) -> Result<InodeId, OpError> {
        match self.find(path)? {
            Found::Inode(id) => Ok(id),
            Found::EmptySubvolumeDir => Err(OpError::OutOfScope),
        }
    }

    pub(super) fn lookup(&self, dir: InodeId, name: &[u8]) -> Result<Option<Found>, OpError> {
        let directory = self.inode(dir).dir()?;
        if name.len() > NAME_BYTES {
            return Err(OpError::NameTooLong);
        }
        let entry = directory.entries.get(name);
        Ok(entry.map(|entry| self.follow(dir, name, entry)))
    }

    pub(super) fn follow(&self, dir: InodeId, name: &[u8], entry: &DirEntry) -> Found {
        match entry.target {
            Target::Inode(ino) => Found::Inode(InodeId { ino, ..dir }),
            Target::Subvolume(id) => {
                let subvolume = self.subvolumes.get(&id);
                let place = subvolume.and_then(|subvolume| subvolume.place.as_ref());
                match place {
                    Some(place) if place.dir == dir && place.name == name => {
                        Found::Inode(id.root())
                    }
                    _ => Found::EmptySubvolumeDir,
                }
            }
        }
    }

    /// Finds the parent directory of a path, and returns it with the last name.
    pub(super) fn parent<'p>(&self, path: &'p FsPath) -> Result<(InodeId, &'p [u8]), OpError> {
        let Some((dir, name)) = path.split() else {
            return Err(OpError::OutOfScope);
        };
        let dir = self.find_inode(&dir)?;
        self.inode(dir).dir()?;
        Ok((dir, name))
    }

    /// Finds the directory for a new name. The name must not exist, and the directory must accept names.
    pub(super) fn new_name<'p>(&self, path: &'p FsPath) -> Result<(InodeId, &'p [u8]), OpError> {
        let (dir, name) = self.parent(path)?;
        if self.lookup(dir, name)?.is_some() {
            return Err(OpError::Exists);
        }
        self.may_change_names(dir)?;
        Ok((dir, name))
    }

    pub(super) fn at(&self, at: &At) -> Result<InodeId, OpError> {
        match at {
            At::Path(path) => self.find_inode(path),
            At::Slot(slot) => self.open.get(slot).copied().ok_or(OpError::OutOfScope),
        }
    }

    /// Lists the inodes along `path`, including the last one.
    pub(super) fn chain(&self, path: &FsPath) -> Vec<Found> {
        let mut prefix = FsPath::default();
        let mut chain = vec![Found::Inode(TOP.root())];
        for name in path.names() {
            prefix = prefix.join(name);
            chain.extend(self.find(&prefix));
        }
        chain
    }
}
