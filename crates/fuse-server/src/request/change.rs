//! Arguments of requests that change something.
//!
//! Not here: byte layouts of the FUSE protocol, which belong to a transport.

use super::{DeviceNr, Handle, NodeId, Time};

/// The access mode of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessMode {
    Read,
    Write,
    ReadWrite,
}

impl AccessMode {
    #[inline]
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// The flags of open(2) that a file system acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags {
    pub access: AccessMode,
    /// `O_APPEND`
    pub append: bool,
    /// `O_TRUNC`, if the kernel leaves it to the file system.
    pub truncate: bool,
    /// `O_EXCL`, for a new file.
    pub exclusive: bool,
    /// `O_DIRECT`
    pub direct: bool,
    /// `O_SYNC` or `O_DSYNC`
    pub sync: bool,
    /// `O_NOATIME`
    pub no_atime: bool,
    /// A file that this open truncates loses its set-id bits.
    pub kill_setid: bool,
}

/// A file to be created. The owner is the request's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Format and permission bits, before `umask` is applied.
    pub mode: u32,
    pub umask: u32,
    pub rdev: DeviceNr,
    /// The directory's group if the caller is a member and the kernel sent it: then setgid may stay.
    pub directory_group: Option<u32>,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    Now,
    At(Time),
}

/// The attributes to change; `None` leaves one unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrChange {
    /// Permission bits; format bits are ignored.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size_bytes: Option<u64>,
    pub atime: Option<TimeChange>,
    pub mtime: Option<TimeChange>,
    /// Set by a kernel that stores times itself (writeback cache).
    pub ctime: Option<Time>,
    /// Clears set-id bits as a write by an unprivileged caller does.
    pub kill_setid: bool,
}

/// How bytes are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadHow {
    /// Leaves the access time unchanged (`O_NOATIME`).
    pub no_atime: bool,
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHow {
    /// From the kernel's cache: the handle may be any handle of the file, and the process any process.
    pub from_cache: bool,
    /// Clears set-id bits.
    pub kill_setid: bool,
    /// Bypasses the kernel's cache: no page is locked during the write.
    pub direct: bool,
    /// At the end of the file, regardless of the offset (`O_APPEND`).
    pub append: bool,
    /// Durable when it returns (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
}

/// The flags of renameat2(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    pub no_replace: bool,
    pub exchange: bool,
    pub whiteout: bool,
}

/// How an xattr is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrHow {
    /// `XATTR_CREATE`
    pub create: bool,
    /// `XATTR_REPLACE`
    pub replace: bool,
    /// An access ACL by a caller outside the file's group: clears setgid.
    pub kill_setgid: bool,
}

/// One end of a copy within the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    pub node: NodeId,
    pub handle: Handle,
    pub offset: u64,
}
