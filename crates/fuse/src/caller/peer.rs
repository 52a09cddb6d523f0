//! The process at the other end of a unix socket.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A process at the time when it connected or began to listen, in the ids of our namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// 65534 for a user without a number in our user namespace.
    pub uid: u32,
    pub gid: u32,
    /// 0 for a process outside our pid namespace.
    pub pid: u32,
}

impl Peer {
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        let mut found = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `found`, and any bytes form a valid `ucred`.
        let outcome = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut len,
            )
        };
        match outcome {
            0 => Ok(Peer {
                uid: found.uid,
                gid: found.gid,
                pid: found.pid.unsigned_abs(),
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
