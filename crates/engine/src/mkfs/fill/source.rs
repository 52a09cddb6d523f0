//! What a volume is filled from, as the filler meets it: a walk of directories with their contents.
//!
//! Invariants
//! - SOURCE-1: names of a directory come in the order of their bytes, each once; a subdirectory's contents
//!   follow its name. Two sources with the same contents give the same events.
//! - SOURCE-2: pieces of a file ascend and do not overlap; none begins past its size.
//!
//! Not here: what becomes of it (`filler`).

use std::path::PathBuf;

use ubtrfs_format::item::InodeFlags;

use super::data_space::PlacedExtent;
use super::encode::{Encoder, Part};
use super::error::FillError;
use super::folder::{is_kept, kernel_rdev};
use crate::archive::Member;
use crate::fs::FileTime;

/// What a file is besides its contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    /// With the kind's bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// As an inode holds it.
    pub(super) rdev: u64,
    pub(super) times: Times,
    /// By name.
    pub(super) xattrs: Vec<Xattr>,
    /// Asked for, or inherited from the directory.
    pub(super) flags: InodeFlags,
}

impl Attributes {
    /// Of a member of an archive. ACLs as text are left out: they have names of users of the machine that made
    /// the archive. Among the extended attributes they are as they were.
    pub(super) fn of(member: &Member) -> Attributes {
        let facts = &member.attributes;
        let mut xattrs = facts.xattrs.clone();
        xattrs.retain(|(name, _)| is_kept(name));
        let (major, minor) = facts.device;
        Attributes {
            mode: facts.mode,
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
        }
    }
}

/// Name and value.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) access: FileTime,
    pub(super) modification: FileTime,
    pub(super) change: FileTime,
}

/// What makes several names one file.
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
        /// Of all names in it.
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

    /// From here on contents do not matter, only how large they are.
    fn skip_contents(&mut self);

    /// Where subvolumes and flags were asked for that were not met on the way.
    fn unmet(&self) -> Option<PathBuf>;
}
