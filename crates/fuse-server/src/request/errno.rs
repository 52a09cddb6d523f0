//! Error numbers of failed requests.

use std::fmt;

/// A positive errno of the Linux ABI.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(rustix::io::Errno);

/// The outcome of a request.
pub type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    pub const ACCES: Self = Self(rustix::io::Errno::ACCESS);
    pub const EXIST: Self = Self(rustix::io::Errno::EXIST);
    pub const FBIG: Self = Self(rustix::io::Errno::FBIG);
    pub const INVAL: Self = Self(rustix::io::Errno::INVAL);
    pub const IO: Self = Self(rustix::io::Errno::IO);
    pub const LOOP: Self = Self(rustix::io::Errno::LOOP);
    pub const MLINK: Self = Self(rustix::io::Errno::MLINK);
    pub const NAMETOOLONG: Self = Self(rustix::io::Errno::NAMETOOLONG);
    pub const NODATA: Self = Self(rustix::io::Errno::NODATA);
    pub const NODEV: Self = Self(rustix::io::Errno::NODEV);
    pub const NOENT: Self = Self(rustix::io::Errno::NOENT);
    pub const NOSPC: Self = Self(rustix::io::Errno::NOSPC);
    pub const NOSYS: Self = Self(rustix::io::Errno::NOSYS);
    pub const NOTEMPTY: Self = Self(rustix::io::Errno::NOTEMPTY);
    pub const NOTDIR: Self = Self(rustix::io::Errno::NOTDIR);
    pub const NOTTY: Self = Self(rustix::io::Errno::NOTTY);
    pub const NXIO: Self = Self(rustix::io::Errno::NXIO);
    pub const OPNOTSUPP: Self = Self(rustix::io::Errno::OPNOTSUPP);
    pub const OVERFLOW: Self = Self(rustix::io::Errno::OVERFLOW);
    pub const PERM: Self = Self(rustix::io::Errno::PERM);
    pub const RANGE: Self = Self(rustix::io::Errno::RANGE);
    pub const ROFS: Self = Self(rustix::io::Errno::ROFS);
    pub const STALE: Self = Self(rustix::io::Errno::STALE);
    /// The error of btrfs for inconsistent metadata ("Structure needs cleaning").
    pub const UCLEAN: Self = Self(rustix::io::Errno::UCLEAN);
    pub const ISDIR: Self = Self(rustix::io::Errno::ISDIR);
    pub const NOMEM: Self = Self(rustix::io::Errno::NOMEM);
    pub const BUSY: Self = Self(rustix::io::Errno::BUSY);
    pub const DQUOT: Self = Self(rustix::io::Errno::DQUOT);
    pub const TXTBSY: Self = Self(rustix::io::Errno::TXTBSY);
    /// Not for the kernel: the request is to be repeated where it may block (REQ-6).
    pub const WOULD_BLOCK: Self = Self(rustix::io::Errno::AGAIN);
    pub const XDEV: Self = Self(rustix::io::Errno::XDEV);

    /// Returns the positive number of the error, as in C.
    #[inline]
    pub fn code(self) -> i32 {
        self.0.raw_os_error()
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {})", self.code(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Errno {}
