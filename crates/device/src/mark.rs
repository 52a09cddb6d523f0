//! The mark of a user of ours on a device: a lock of the open file on one byte far behind any volume.
//!
//! The flock of a device may be the caller's own, under which several commands of ours can run. The mark keeps these
//! apart. It goes with the last descriptor of the open file, as the flock does.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use crate::access::Access;

/// The byte that is locked: "ubtrfs" as a number. No other program locks it, and no volume has it.
const MARK_AT: libc::off_t = 0x7562_7472_6673;

/// Marks a device as used: by readers together, or by one writer alone. It does not wait: [`Errno::WOULDBLOCK`].
pub(crate) fn set(file: &File, access: Access) -> Result<(), Errno> {
    match access {
        Access::Read => change(file, libc::F_RDLCK),
        // The image of a loop device is open for reading alone. The loop device itself has the writer's mark.
        Access::Write => change(file, libc::F_WRLCK).or_else(|errno| match errno {
            Errno::BADF => change(file, libc::F_RDLCK),
            errno => Err(errno),
        }),
    }
}

/// Takes the mark away.
pub(crate) fn remove(file: &File) {
    // A mark that cannot be removed goes as the kernel has it.
    let _ = change(file, libc::F_UNLCK);
}

fn change(file: &File, kind: libc::c_int) -> Result<(), Errno> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: MARK_AT,
        l_len: 1,
        // Locks of open files have no process.
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the command reads a flock.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(());
    }
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        Some(Errno::ACCESS) | None => Err(Errno::WOULDBLOCK),
        Some(errno) => Err(errno),
    }
}
