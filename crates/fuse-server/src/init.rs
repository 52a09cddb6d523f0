//! FUSE_INIT: kernel and server negotiate the features of the connection, before any other request.
//!
//! The server requests the offered features that make sense for the file system's connection flags. It does not
//! request, with reasons:
//! - `ATOMIC_O_TRUNC`: a kernel that does not send opens would lose the truncation. Without this feature, truncation by
//!   an open is sent as a change of size.
//! - `READDIRPLUS_AUTO`: it sends no attributes to programs that list all of a directory before they stat, such as find
//!   and rsync. Each stat then costs a request of its own.
//! - `POSIX_LOCKS`, `FLOCK_LOCKS`: the kernel handles local locks by itself.
//! - `AUTO_INVAL_DATA`: nothing changes behind the back of the mount, which sends notifications itself.
//! - `SECURITY_CTX`, `PASSTHROUGH`: the file system does not support them.

use std::io;

use zerocopy::{FromBytes, FromZeros};

use crate::abi::init::{InitIn, InitInMore, InitOut, flag};
use crate::abi::{self, output};
use crate::capacity::{Capacity, REQUEST_SMALL_BYTES};
use crate::encode;
use crate::request::{ConnectionFlags, Errno, Opened, Result, WriteHow};

/// The negotiated parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) minor: u32,
    /// `SETXATTR` has its longer form.
    pub(crate) setxattr_ext: bool,
    /// The server may stop the kernel from sending opens.
    pub(crate) elide_open: bool,
    pub(crate) elide_opendir: bool,
    /// Requests use io_uring once its queues are registered.
    pub(crate) uring: bool,
    /// The largest payload of a request or an answer.
    pub(crate) request_bytes: usize,
    /// The limit of extra threads.
    pub(crate) surplus_threads: usize,
}

impl Negotiated {
    /// Returns the answer to an open. It may be `NOSYS`: the kernel need not send opens.
    #[inline]
    pub(crate) fn open_out(&self, opened: Opened, is_dir: bool) -> Result<output::OpenOut> {
        let (elide, cache) = if is_dir {
            let cache = output::FOPEN_KEEP_CACHE | output::FOPEN_CACHE_DIR;
            (self.elide_opendir, cache)
        } else {
            (self.elide_open, output::FOPEN_KEEP_CACHE)
        };
        if elide && opened == Opened::Elided {
            return Err(Errno::NOSYS);
        }
        Ok(encode::open_out(opened, cache))
    }

    /// Returns the remaining duties of a write. If the kernel syncs the file after all parts of a write, each part need
    /// not be durable. The kernel may leave the sync of a write that bypasses its cache to the server, as for writes
    /// without a waiting thread (AIO).
    #[inline]
    pub(crate) fn left_to_do(&self, how: WriteHow) -> WriteHow {
        let kernel_syncs = self.minor >= abi::SYNCING_MINOR && !how.direct;
        WriteHow {
            sync: how.sync && !kernel_syncs,
            ..how
        }
    }
}

/// The kernel's offer in its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) flags: u64,
}

impl Offer {
    /// Parses the payload of a first request. Returns `None` if it is something else.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let (first, rest) = InitIn::read_from_prefix(payload).ok()?;
        let mut flags = u64::from(first.flags);
        if flags & flag::INIT_EXT != 0 {
            let (more, _) = InitInMore::read_from_prefix(rest).ok()?;
            flags |= u64::from(more.flags2) << 32;
        }
        Some(Self {
            major: first.major,
            minor: first.minor,
            flags,
        })
    }

    pub(crate) fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

/// Computes the answer to the offer, and the negotiated parameters. `uring` means that io_uring is used if offered.
pub(crate) fn negotiate(
    offer: &Offer,
    connection_flags: &ConnectionFlags,
    uring: bool,
    capacity: &Capacity,
) -> io::Result<(Negotiated, InitOut)> {
    if offer.major != abi::MAJOR || offer.minor < abi::OLDEST_MINOR {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "the kernel speaks FUSE {}.{}, needed is {}.{} or newer",
                offer.major,
                offer.minor,
                abi::MAJOR,
                abi::OLDEST_MINOR
            ),
        ));
    }
    let agreed = wanted(connection_flags, uring) & offer.flags;
    let has = |flag| agreed & flag != 0;
    let request_bytes = if has(flag::MAX_PAGES) {
        capacity.request_bytes
    } else {
        // 32 pages.
        capacity.request_bytes.min(REQUEST_SMALL_BYTES)
    };
    let negotiated = Negotiated {
        minor: offer.minor.min(abi::MINOR),
        setxattr_ext: has(flag::SETXATTR_EXT),
        elide_open: has(flag::NO_OPEN_SUPPORT),
        elide_opendir: has(flag::NO_OPENDIR_SUPPORT),
        uring: has(flag::OVER_IO_URING),
        request_bytes,
        surplus_threads: capacity.surplus_threads(),
    };
    let pages = request_bytes / rustix::param::page_size();
    let answer = InitOut {
        major: abi::MAJOR,
        minor: negotiated.minor,
        max_readahead: request_bytes as u32,
        flags: agreed as u32,
        flags2: (agreed >> 32) as u32,
        max_background: capacity.background,
        // From this number on the kernel throttles the processes that cause them.
        congestion_threshold: capacity.background / 4 * 3,
        max_write: request_bytes as u32,
        time_gran: 1,
        max_pages: u16::try_from(pages).unwrap_or(u16::MAX),
        ..InitOut::new_zeroed()
    };
    Ok((negotiated, answer))
}

fn wanted(connection_flags: &ConnectionFlags, uring: bool) -> u64 {
    let mut wanted = flag::ASYNC_READ
        | flag::BIG_WRITES
        | flag::EXPORT_SUPPORT
        | flag::DONT_MASK
        | flag::HAS_IOCTL_DIR
        | flag::DO_READDIRPLUS
        | flag::ASYNC_DIO
        | flag::NO_OPEN_SUPPORT
        | flag::PARALLEL_DIROPS
        | flag::ABORT_ERROR
        | flag::MAX_PAGES
        | flag::CACHE_SYMLINKS
        | flag::NO_OPENDIR_SUPPORT
        | flag::EXPLICIT_INVAL_DATA
        | flag::SETXATTR_EXT
        | flag::INIT_EXT
        | flag::CREATE_SUPP_GROUP
        | flag::HAS_EXPIRE_ONLY
        | flag::DIRECT_IO_ALLOW_MMAP;
    for (is_wanted, flag) in [
        (connection_flags.posix_acl, flag::POSIX_ACL),
        (connection_flags.writable, flag::HANDLE_KILLPRIV_V2),
        (connection_flags.idmapped, flag::ALLOW_IDMAP),
        (
            connection_flags.writable && connection_flags.writeback_cache,
            flag::WRITEBACK_CACHE,
        ),
        (uring, flag::OVER_IO_URING),
    ] {
        if is_wanted {
            wanted |= flag;
        }
    }
    wanted
}

#[cfg(test)]
mod tests;
