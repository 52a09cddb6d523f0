//! What carries requests between the kernel and a `FileSystem`.
//!
//! A transport is given the connection's descriptor (an opened `/dev/fuse` that is mounted already),
//! settles the protocol's version and options, and then serves requests until the kernel ends the
//! connection. It knows nothing of btrfs.

mod fuser;
mod guard;

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;

use self::guard::Guarded;
use crate::request::FileSystem;

/// Which transport a mount asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The fastest that the kernel offers.
    #[default]
    Auto,
    /// FUSE over io_uring, or no mount.
    Uring,
    /// Reads and writes of `/dev/fuse`.
    Classic,
}

/// A connection that has been set up; the kernel sends requests from now on.
pub(crate) struct Connection(Box<dyn FnOnce() -> io::Result<()> + Send>);

impl Connection {
    /// Answers the kernel's first request, with which both sides agree on the protocol.
    pub(crate) fn establish(
        file_system: impl FileSystem,
        device: OwnedFd,
        threads: NonZeroUsize,
        choice: TransportChoice,
    ) -> io::Result<Self> {
        if choice == TransportChoice::Uring {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let session = fuser::establish(Guarded(file_system), device, threads)?;
        Ok(Self(Box::new(move || session.run())))
    }

    /// Serves requests until the file system is unmounted or the connection aborted.
    pub(crate) fn serve(self) -> io::Result<()> {
        (self.0)()
    }
}
