//! The source that a volume is filled from, as the filler meets it: a walk of directories with their contents.
//!
//! Invariants
//! - SOURCE-1: names of a directory come in the order of their bytes, each once; a subdirectory's contents
//!   follow its name. Two sources with the same contents give the same events.
//! - SOURCE-2: pieces of a file ascend and do not overlap; none begins past its size.
//!
//! Not here: what becomes of it (`filler`).

use std::path::PathBuf;

use ubtrfs_format::item::acl::{self, Parsed};
use ubtrfs_format::item::{FileKind, FileTime, InodeFlags};

use super::LeftOutAcls;
use super::data_space::PlacedExtent;
use super::encode::{Encoder, Part};
use super::error::FillError;
use super::folder::{is_kept, kernel_rdev};
use crate::archive::{Member, OwnerNames};

/// The attributes of a file besides its contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    /// With the kind's bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The device number as an inode holds it.
    pub(super) rdev: u64,
    pub(super) times: Times,
    /// By name.
    pub(super) xattrs: Vec<Xattr>,
    /// Asked for, or inherited from the directory.
    pub(super) flags: InodeFlags,
}

impl Attributes {
    /// Takes the attributes of a member of an archive, with ACLs that are text. False: one of them means nothing
    /// here.
    pub(super) fn of(member: &Member, names: &OwnerNames) -> (Attributes, bool) {
        let facts = &member.attributes;
        let (mut xattrs, is_whole) = facts.xattrs_with_acls(names);
        xattrs.retain(|(name, _)| is_kept(name));
        let mut mode = facts.mode;
        if facts.acl_access.is_some() || facts.acl_default.is_some() {
            apply_acls(&mut xattrs, &mut mode);
            xattrs.sort_unstable();
        }
        let (major, minor) = facts.device;
        let attributes = Attributes {
            mode,
            uid: facts.uid,
            gid: facts.gid,
            rdev: kernel_rdev(major, minor),
            times: Times {
                access: facts.atime,
                modification: facts.mtime,
                change: facts.ctime,
            },
            xattrs,
            flags: InodeFlags::empty(),
        };
        (attributes, is_whole)
    }
}

/// Has a mode and an ACL say the same, as if that had been set on the file.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) access: FileTime,
    pub(super) modification: FileTime,
    pub(super) change: FileTime,
}

/// The identity by which several names are one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkId {
    pub(super) device: u64,
    pub(super) number: u64,
}

#[derive(Debug)]
pub(super) enum Event {
    /// A directory, the first being the root; what follows is in it.
    Enter {
        name: Vec<u8>,
        attributes: Attributes,
        /// The bytes of all names in it.
        name_bytes: u64,
        /// By its number among those asked for.
        subvolume: Option<usize>,
    },
    Leave,
    /// Anything else.
    File {
        name: Vec<u8>,
        attributes: Attributes,
        /// If there may be so many other names.
        link: Option<(LinkId, u32)>,
        body: Body,
    },
    /// More of the last file.
    Parts(Vec<Part>),
    /// The last file's parts end.
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
    /// In place since they were met.
    Placed {
        extents: Vec<PlacedExtent>,
        is_incompressible: bool,
    },
    /// Not read yet, as they may not be needed.
    Deferred(Box<dyn Deferred>),
}

/// Contents to be read when it is sure that they are wanted.
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

    /// Returns where subvolumes and flags were asked for that were not met on the way.
    fn unmet(&self) -> Option<PathBuf>;

    /// Returns the ACLs of the source that the files lack.
    fn left_out(&self) -> Option<LeftOutAcls> {
        None
    }
}
