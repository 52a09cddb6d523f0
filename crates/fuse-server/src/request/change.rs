//! Arguments of requests that change something.
//!
//! Not here: byte layouts of the FUSE protocol; those belong to a transport.

use super::{DeviceNr, Handle, NodeId, Time};

/// The use that a file is opened for.
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
    /// `O_TRUNC`, where the kernel leaves it to the file system.
    pub truncate: bool,
    /// `O_EXCL`, of a file that is made.
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

/// A file to be made. The owner is the request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Format and permission bits, `umask` not taken away.
    pub mode: u32,
    pub umask: u32,
    pub rdev: DeviceNr,
    /// A group of the caller that the directory's is, where the kernel tells: then setgid may stay.
    pub directory_group: Option<u32>,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    Now,
    At(Time),
}

/// The attributes to change; None leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrChange {
    /// Permission bits; format bits are ignored.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size_bytes: Option<u64>,
    pub atime: Option<TimeChange>,
    pub mtime: Option<TimeChange>,
    /// Given by a kernel that keeps times itself (write-back cache).
    pub ctime: Option<Time>,
    /// Takes set-id bits away as writing by an unprivileged caller does.
    pub kill_setid: bool,
}

/// How bytes are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadHow {
    /// The access time stays (`O_NOATIME`).
    pub no_atime: bool,
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHow {
    /// From the kernel's cache: the handle may be any of the file's, the process any.
    pub from_cache: bool,
    /// Takes set-id bits away.
    pub kill_setid: bool,
    /// Past the kernel's cache: no page of it is locked meanwhile.
    pub direct: bool,
    /// At the end of the file, whatever the offset (`O_APPEND`).
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
    /// An access ACL by a caller outside the file's group: setgid goes.
    pub kill_setgid: bool,
}

/// One end of a copy within the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    pub node: NodeId,
    pub handle: Handle,
    pub offset: u64,
}
