//! Rights that the kernel's btrfs asks for to make, delete or change subvolumes.
//!
//! They follow from modes, ACLs, owners and capabilities. A mount asks for calls that only btrfs has, which the kernel
//! does not check before. The library asks for callers that a program names.
//!
//! Locks: none of an inode, so that it may be asked while those that are meant are locked.
//!
//! Not here: what flags and read-only subvolumes forbid to all callers, and which process a caller is.

mod acl;
mod caller;

use std::collections::HashSet;

use rustix::io::Errno;
use ubtrfs_format::item::{FileKind, RootItemFlags};
use ubtrfs_transaction::FileId;

pub use self::caller::{Caller, Mask, READ, SEARCH, WRITE};
use crate::error::Error;
use crate::volume::Volume;

const STICKY: u32 = 0o1000;

/// Why something is not done. The words are those of the kernel's errors.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// EACCES: modes or ACLs are in the way.
    #[error("Permission denied")]
    Access,
    /// EPERM: one must own it, or have a capability.
    #[error("Operation not permitted")]
    Permission,
    /// EROFS
    #[error("Read-only file system")]
    ReadOnly,
    #[error(transparent)]
    Volume(#[from] Error),
}

/// A caller and the mount that it asks something of.
#[derive(Clone, Copy, Debug)]
pub struct Rights<'a> {
    pub caller: &'a Caller,
    pub volume: &'a Volume,
    /// The mount option: a caller that may remove directories may delete subvolumes.
    pub user_subvol_rm_allowed: bool,
}

impl Refused {
    /// Returns the errno of the refusal.
    pub fn errno(&self) -> Errno {
        match self {
            Refused::Access => Errno::ACCESS,
            Refused::Permission => Errno::PERM,
            Refused::ReadOnly => Errno::ROFS,
            Refused::Volume(error) => error.errno(),
        }
    }
}

impl Rights<'_> {
    fn may(&self, file: FileId, mask: Mask) -> Result<(), Refused> {
        // Told before modes are looked at, and to every caller.
        if mask & WRITE != 0 && !file.is_empty_subvolume_dir() {
            let tree = self.volume.subvolume_tree(file.root)?;
            if tree.item().flags().contains(RootItemFlags::RDONLY) {
                return Err(Refused::ReadOnly);
            }
        }
        match self.caller.may(self.volume, file, mask)? {
            true => Ok(()),
            false => Err(Refused::Access),
        }
    }

    /// Allows calls that concern the volume as a whole, or read it as it is on disk.
    pub fn administer(&self) -> Result<(), Refused> {
        match self.caller.is_administrator() {
            true => Ok(()),
            false => Err(Refused::Permission),
        }
    }

    /// Allows a new name in a directory.
    pub fn add_to(&self, dir: FileId) -> Result<(), Refused> {
        self.may(dir, WRITE | SEARCH)
    }

    /// Allows changes of contents, and of attributes that belong to no user.
    pub fn write_to(&self, file: FileId) -> Result<(), Refused> {
        self.may(file, WRITE)
    }

    /// Allows finding a name in a directory.
    pub fn search(&self, dir: FileId) -> Result<(), Refused> {
        self.may(dir, SEARCH)
    }

    pub fn read_and_search(&self, dir: FileId) -> Result<(), Refused> {
        self.may(dir, READ | SEARCH)
    }

    /// Allows reading a file's contents.
    pub fn read(&self, file: FileId) -> Result<(), Refused> {
        self.may(file, READ)
    }

    /// Allows calls of the owner: changes of a subvolume's flags and of the note of its origin, and a snapshot of it.
    pub fn own(&self, file: FileId) -> Result<(), Refused> {
        match self.caller.owns(&self.volume.stored_attr(file)?) {
            true => Ok(()),
            false => Err(Refused::Permission),
        }
    }

    /// Allows deleting any subvolume at all.
    pub fn delete_subvolumes(&self) -> Result<(), Refused> {
        match self.caller.is_administrator() || self.user_subvol_rm_allowed {
            true => Ok(()),
            false => Err(Refused::Permission),
        }
    }

    /// Allows deleting the subvolume with this root directory, which stands in `dir`.
    pub fn delete_subvolume(&self, dir: FileId, subvolume: FileId) -> Result<(), Refused> {
        self.delete_subvolumes()?;
        if !self.caller.is_administrator() {
            self.may(subvolume, WRITE | SEARCH)?;
        }
        self.may(dir, WRITE | SEARCH)?;
        let holder = self.volume.stored_attr(dir)?;
        let is_sticky = holder.mode & STICKY != 0 && !self.caller.owns(&holder);
        match is_sticky && !self.caller.owns(&self.volume.stored_attr(subvolume)?) {
            true => Err(Refused::Permission),
            false => Ok(()),
        }
    }

    /// Allows searching every directory that a path without symbolic links leads through. The last name need not exist.
    pub fn reach(&self, root: FileId, path: &[u8]) -> Result<(), Refused> {
        let mut names = path
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty());
        let mut at = root;
        let mut next = names.next();
        while let Some(name) = next {
            if at.is_empty_subvolume_dir()
                || self.volume.stored_attr(at)?.kind != FileKind::Directory
            {
                return Err(Refused::Access);
            }
            self.may(at, SEARCH)?;
            let Some(found) = self.volume.lookup(at, name)? else {
                return Ok(());
            };
            at = found;
            next = names.next();
        }
        Ok(())
    }

    /// Allows searching every directory between `dir` and `top`, which must be above it. This is [`Rights::reach`] of a
    /// directory whose path is not known.
    pub fn reach_up(&self, dir: FileId, top: FileId) -> Result<(), Refused> {
        let mut at = dir;
        // A damaged volume may have directories in a loop.
        let mut seen = HashSet::new();
        while at != top {
            let parent = self.volume.parent(at)?;
            if parent == at || !seen.insert(at) {
                return Err(Refused::Access);
            }
            self.search(parent)?;
            at = parent;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
