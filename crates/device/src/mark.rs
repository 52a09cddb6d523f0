//! The mark of a ubtrfs process on a device: an OFD lock on one byte far past the end of any volume.
//!
//! The flock on a device may belong to the caller, and several ubtrfs commands can run under it. The mark excludes
//! these from each other. Like the flock, it is released with the last descriptor of the open file.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use crate::access::Access;

/// The locked byte: "ubtrfs" as a number. No other program locks it, and it is outside of any volume.
const MARK_AT: libc::off_t = 0x7562_7472_6673;

/// Marks a device as used: shared by readers or exclusively by one writer. Returns [`Errno::WOULDBLOCK`] if it is in
/// use.
pub(crate) fn set(file: &File, access: Access) -> Result<(), Errno> {
    match access {
        Access::Read => change(file, libc::F_RDLCK),
        // The image of a loop device is opened read-only, and needs only a shared lock: the loop device itself has
        // the writer's mark.
        Access::Write => change(file, libc::F_WRLCK).or_else(|errno| match errno {
            Errno::BADF => change(file, libc::F_RDLCK),
            errno => Err(errno),
        }),
    }
}

/// Removes the mark.
pub(crate) fn remove(file: &File) {
    // If this fails, closing the file removes the mark.
    let _ = change(file, libc::F_UNLCK);
}

fn change(file: &File, kind: libc::c_int) -> Result<(), Errno> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: MARK_AT,
        l_len: 1,
        // OFD locks require a pid of 0.
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and F_OFD_SETLK reads a flock struct.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(());
    }
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        Some(Errno::ACCESS) | None => Err(Errno::WOULDBLOCK),
        Some(errno) => Err(errno),
    }
}
