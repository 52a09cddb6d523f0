//! The interface between sources and the filler: a walk of directories with their contents.
//!
//! Invariants
//! - SOURCE-1: the names of a directory are returned in byte order, each once; a subdirectory's contents follow its
//!   name. Two sources with the same contents give the same events.
//! - SOURCE-2: pieces of a file ascend and do not overlap; none begins after the end of the file.
//!
//! Not here: the use of the events (`filler`).

use std::path::PathBuf;

use ubtrfs_format::item::acl::{self, Parsed};
use ubtrfs_format::item::{FileKind, InodeFlags, PreservedAttributes};

use super::LeftOutAcls;
use super::data_space::PlacedExtent;
use super::encode::{Encoder, Part};
use super::error::FillError;
use crate::archive::{Member, OwnerNames};

/// The attributes of a file, without its contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    pub(super) file: PreservedAttributes,
    /// Sorted by name.
    pub(super) xattrs: Vec<Xattr>,
    /// Requested, or inherited from the directory.
    pub(super) flags: InodeFlags,
}

impl Attributes {
    /// Returns the attributes of an archive member, including ACLs in text form. The flag is false if an ACL was left
    /// out.
    pub(super) fn of(member: &Member, names: &OwnerNames) -> (Attributes, bool) {
        let facts = &member.attributes;
        let (mut xattrs, is_whole) = facts.xattrs_with_acls(names);
        xattrs.retain(|(name, _)| is_kept(name));
        let mut file = facts.file;
        if facts.acl_access.is_some() || facts.acl_default.is_some() {
            apply_acls(&mut xattrs, &mut file.mode);
            xattrs.sort_unstable();
        }
        let attributes = Attributes {
            file,
            xattrs,
            flags: InodeFlags::empty(),
        };
        (attributes, is_whole)
    }
}

/// Returns whether btrfs stores attributes with this name. Others belong to the source file system.
pub(super) fn is_kept(name: &[u8]) -> bool {
    let spaces: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"btrfs."];
    let acls: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
    spaces.iter().any(|space| name.starts_with(space)) || acls.contains(&name)
}

/// Makes the mode and the ACLs consistent, as if the ACLs had been set on the file.
fn apply_acls(xattrs: &mut Vec<Xattr>, mode: &mut u32) {
    let kind = FileKind::from_mode(*mode);
    xattrs.retain_mut(|(name, value)| match name.as_slice() {
        acl::DEFAULT => kind == Some(FileKind::Directory),
        acl::ACCESS if kind == Some(FileKind::Symlink) => false,
        acl::ACCESS => {
            let Parsed::Acl(acl) = acl::parse(value) else {
                return true;
            };
            let applied = acl.applied_to(*mode);
            *mode = applied.mode;
            let access = applied.access.map(|acl| acl.to_bytes());
            let is_more = access.is_some();
            *value = access.unwrap_or_default();
            is_more
        }
        _ => true,
    });
}

/// Name and value.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// The identity of a file with several names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkId {
    pub(super) device: u64,
    pub(super) number: u64,
}

#[derive(Debug)]
pub(super) enum Event {
    /// A directory, whose contents follow. The first one is the root.
    Enter {
        name: Vec<u8>,
        attributes: Attributes,
        /// The total length of all names in it.
        name_bytes: u64,
        /// The index of the request.
        subvolume: Option<usize>,
    },
    Leave,
    /// A file that is not a directory.
    File {
        name: Vec<u8>,
        attributes: Attributes,
        /// Set if there may be other names; with the total number of names.
        link: Option<(LinkId, u32)>,
        body: Body,
    },
    /// Further contents of the last file.
    Parts(Vec<Part>),
    /// The end of the last file's parts.
    End {
        is_incompressible: bool,
    },
}

#[derive(Debug)]
pub(super) enum Body {
    /// Device, pipe, socket.
    None,
    Symlink(Vec<u8>),
    Data {
        size: u64,
        contents: Contents,
    },
}

#[derive(Debug)]
pub(super) enum Contents {
    Whole {
        parts: Vec<Part>,
        is_incompressible: bool,
    },
    /// `Parts` and `End` follow.
    Following,
    /// Data that is already placed.
    Placed {
        extents: Vec<PlacedExtent>,
        is_incompressible: bool,
    },
    /// Not read yet, because it may not be needed.
    Deferred(Box<dyn Deferred>),
}

/// Contents that are read only when they are needed.
pub(super) trait Deferred: std::fmt::Debug + Send {
    fn read(
        self: Box<Self>,
        encoder: &mut Encoder<'_>,
        emit: &mut dyn FnMut(Part) -> Result<(), FillError>,
    ) -> Result<(), FillError>;
}

pub(super) trait Source {
    fn next(&mut self) -> Result<Option<Event>, FillError>;

    /// Skips contents from here on: only their sizes matter.
    fn skip_contents(&mut self);

    /// Returns a requested path for a subvolume or flags that was not found.
    fn unvisited(&self) -> Option<PathBuf>;

    /// Returns the ACLs of the source that were left out.
    fn left_out(&self) -> Option<LeftOutAcls> {
        None
    }
}
