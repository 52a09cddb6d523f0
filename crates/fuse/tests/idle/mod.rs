//! Unmounting in a process whose other tests start programs.

use std::thread;
use std::time::{Duration, Instant};

use super::{MountError, Session, UnmountError};

pub(crate) const BUSY_LIMIT: Duration = Duration::from_secs(60);

/// Unmounts, and tries again while the mount is busy. A thread of another test that starts a program holds copies of
/// all open files between fork and exec, including files of this mount.
pub(crate) fn unmount_once_idle(session: &mut Session) {
    let begun = Instant::now();
    loop {
        match session.unmount() {
            Err(MountError::Unmount(UnmountError::Busy(_))) if begun.elapsed() < BUSY_LIMIT => {
                thread::yield_now();
            }
            done => return done.unwrap(),
        }
    }
}
