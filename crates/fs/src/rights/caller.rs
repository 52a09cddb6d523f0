//! A caller, and the rights that modes and ACLs grant it.

use ubtrfs_format::item::FileKind;
use ubtrfs_storage::FileId;

use super::acl::{self, Entry, Tag};
use super::{Mask, SEARCH, WRITE};
use crate::error::Error;
use crate::inode::Attr;
use crate::volume::Volume;

const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_FOWNER: u32 = 3;
const CAP_FSETID: u32 = 4;
const CAP_SYS_ADMIN: u32 = 21;

/// The default umask of a caller.
const UMASK: u32 = 0o022;

/// The credentials of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// The mode bits that are cleared in files it creates.
    pub umask: u32,
    groups: Vec<u32>,
    /// A bit per capability.
    capabilities: u64,
}

impl Caller {
    /// Creates a user without capabilities and supplementary groups.
    pub fn new(uid: u32, gid: u32) -> Caller {
        Caller {
            uid,
            gid,
            umask: UMASK,
            groups: Vec::new(),
            capabilities: 0,
        }
    }

    /// Sets the mode bits that are cleared in files it creates.
    #[must_use]
    pub fn umask(self, umask: u32) -> Caller {
        Caller { umask, ..self }
    }

    /// Sets its supplementary groups.
    #[must_use]
    pub fn groups(self, groups: Vec<u32>) -> Caller {
        Caller { groups, ..self }
    }

    /// Sets its capabilities, as a bit per number of capabilities(7).
    #[must_use]
    pub fn capabilities(self, capabilities: u64) -> Caller {
        Caller {
            capabilities,
            ..self
        }
    }

    /// Grants it all capabilities.
    #[must_use]
    pub fn as_superuser(self) -> Caller {
        self.capabilities(u64::MAX)
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 != 0
    }

    /// Returns whether it may do operations that concern the whole volume.
    pub fn is_administrator(&self) -> bool {
        self.has(CAP_SYS_ADMIN)
    }

    /// Returns whether it owns the file or has the rights of the owner.
    pub fn owns(&self, attr: &Attr) -> bool {
        self.uid == attr.uid || self.has(CAP_FOWNER)
    }

    /// Returns whether a setgid file with this group keeps the bit when it writes to the file.
    pub fn keeps_setgid(&self, gid: u32) -> bool {
        self.is_in_group(gid) || self.has(CAP_FSETID)
    }

    pub(super) fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Returns whether the file's mode and ACL (if ACLs are enabled) allow it all of `mask`.
    ///
    /// Locks: none of an inode, so inodes may be locked by the caller.
    pub fn may(&self, volume: &Volume, file: FileId, mask: Mask) -> Result<bool, Error> {
        let attr = volume.stored_attr(file)?;
        let acl = if volume.counts_acls() && !file.is_empty_subvolume_dir() {
            volume.xattr(file, acl::ACCESS)?
        } else {
            None
        };
        let granted = match acl.as_deref().and_then(acl::entries) {
            Some(entries) => self.is_granted_by(&entries, &attr, mask),
            None => self.class_bits(&attr) & mask == mask,
        };
        let is_dir = attr.kind == FileKind::Directory;
        // Even a privileged caller cannot execute a file without any execute bit.
        let overridden = if is_dir || mask & SEARCH == 0 || attr.mode & 0o111 != 0 {
            self.has(CAP_DAC_OVERRIDE)
        } else {
            false
        };
        let searched =
            self.has(CAP_DAC_READ_SEARCH) && mask & WRITE == 0 && (is_dir || mask & SEARCH == 0);
        Ok(granted || overridden || searched)
    }

    /// Returns whether an ACL grants it all of `mask`, evaluated in the order of acl(5): owner, named users, groups,
    /// others.
    pub(super) fn is_granted_by(&self, entries: &[Entry], attr: &Attr, mask: Mask) -> bool {
        let bits = |tag: Tag| entries.iter().find(|entry| entry.tag == tag);
        let limit = bits(Tag::Mask).map_or(7, |entry| entry.bits);
        if self.uid == attr.uid {
            return bits(Tag::Owner).is_some_and(|entry| entry.bits & mask == mask);
        }
        if let Some(named) = bits(Tag::User(self.uid)) {
            return named.bits & limit & mask == mask;
        }
        let mut groups = entries
            .iter()
            .filter(|entry| match entry.tag {
                Tag::OwningGroup => self.is_in_group(attr.gid),
                Tag::Group(gid) => self.is_in_group(gid),
                _ => false,
            })
            .peekable();
        if groups.peek().is_some() {
            // A single group entry must grant all of `mask`.
            return groups.any(|entry| entry.bits & limit & mask == mask);
        }
        bits(Tag::Other).is_some_and(|entry| entry.bits & mask == mask)
    }

    /// Returns the rights that the mode grants it.
    pub(super) fn class_bits(&self, attr: &Attr) -> Mask {
        if self.uid == attr.uid {
            attr.mode >> 6 & 7
        } else if self.is_in_group(attr.gid) {
            attr.mode >> 3 & 7
        } else {
            attr.mode & 7
        }
    }
}
