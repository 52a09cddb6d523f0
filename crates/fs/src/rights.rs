//! The rights that the kernel's btrfs requires for creating, deleting or changing subvolumes.
//!
//! They depend on modes, ACLs, owners and capabilities. A mount checks them for the ioctls of btrfs, because
//! the kernel does not check those in advance. The library checks them for callers that a program specifies.
//!
//! Locks: none of an inode, so inodes may be locked during a check.
//!
//! Not here: flags and read-only subvolumes, which concern all callers; the identity of a caller's process.

mod acl;
mod caller;

use std::collections::HashSet;

use rustix::io::Errno;
use ubtrfs_format::item::{FileKind, RootItemFlags};
use ubtrfs_storage::FileId;

pub use self::caller::Caller;
use crate::error::Error;
use crate::volume::Volume;

/// Requested rights: read 4, write 2, execute or search 1.
pub type Mask = u32;
pub const READ: Mask = 4;
pub const WRITE: Mask = 2;
pub const SEARCH: Mask = 1;

const STICKY: u32 = 0o1000;

/// The reason why an operation is refused, in the words of the kernel's errors.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// EACCES: modes or ACLs do not allow it.
    #[error("Permission denied")]
    Access,
    /// EPERM: only the owner or a caller with a capability may do it.
    #[error("Operation not permitted")]
    Permission,
    /// EROFS
    #[error("Read-only file system")]
    ReadOnly,
    #[error(transparent)]
    Volume(#[from] Error),
}

/// A caller and the volume that it operates on.
#[derive(Clone, Copy, Debug)]
pub struct Rights<'a> {
    pub caller: &'a Caller,
    pub volume: &'a Volume,
    /// The mount option that lets a caller delete subvolumes if it may remove directories.
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
        // As in the kernel, checked before the mode and for every caller.
        if mask & WRITE != 0 && !file.is_empty_subvolume_dir() {
            let tree = self.volume.subvolume_tree(file.root)?;
            if tree.item().flags().contains(RootItemFlags::RDONLY) {
                return Err(Refused::ReadOnly);
            }
        }
        if self.caller.may(self.volume, file, mask)? {
            Ok(())
        } else {
            Err(Refused::Access)
        }
    }

    /// Allows operations that concern the whole volume, or read it as it is on disk.
    pub fn administer(&self) -> Result<(), Refused> {
        if self.caller.is_administrator() {
            Ok(())
        } else {
            Err(Refused::Permission)
        }
    }

    /// Allows adding a name to a directory.
    pub fn add_to(&self, dir: FileId) -> Result<(), Refused> {
        self.may(dir, WRITE | SEARCH)
    }

    /// Allows changing contents, and attributes that do not belong to a user.
    pub fn write_to(&self, file: FileId) -> Result<(), Refused> {
        self.may(file, WRITE)
    }

    /// Allows looking up a name in a directory.
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

    /// Allows operations of the owner: changing a subvolume's flags or its received UUID, and taking a
    /// snapshot of it.
    pub fn own(&self, file: FileId) -> Result<(), Refused> {
        if self.caller.owns(&self.volume.stored_attr(file)?) {
            Ok(())
        } else {
            Err(Refused::Permission)
        }
    }

    /// Allows deleting subvolumes in general.
    pub fn delete_subvolumes(&self) -> Result<(), Refused> {
        if self.caller.is_administrator() || self.user_subvol_rm_allowed {
            Ok(())
        } else {
            Err(Refused::Permission)
        }
    }

    /// Allows deleting the subvolume with this root directory, whose parent is `dir`.
    pub fn delete_subvolume(&self, dir: FileId, subvolume: FileId) -> Result<(), Refused> {
        self.delete_subvolumes()?;
        if !self.caller.is_administrator() {
            self.may(subvolume, WRITE | SEARCH)?;
        }
        self.may(dir, WRITE | SEARCH)?;
        let holder = self.volume.stored_attr(dir)?;
        let is_sticky = holder.mode & STICKY != 0 && !self.caller.owns(&holder);
        if is_sticky && !self.caller.owns(&self.volume.stored_attr(subvolume)?) {
            Err(Refused::Permission)
        } else {
            Ok(())
        }
    }

    /// Allows searching every directory of a path without symbolic links. The last name need not exist.
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

    /// Allows searching every directory between `dir` and its ancestor `top`. Used in place of
    /// [`Rights::reach`] for a directory whose path is unknown.
    pub fn reach_up(&self, dir: FileId, top: FileId) -> Result<(), Refused> {
        let mut at = dir;
        // A damaged volume may have a loop of directories.
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
