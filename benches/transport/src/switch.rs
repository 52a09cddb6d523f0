//! The kernel's switch for FUSE over io_uring, turned on for as long as a mount is being made.
//!
//! The kernel reads the switch only then. The thread that turns it on holds an exclusive lock on it and restores the
//! old state. The lock excludes other threads that turn it on or mount meanwhile. Otherwise the kernel could offer
//! io_uring to a mount and then refuse it. That mount would do without io_uring or fail.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

pub(crate) const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Calls `mount` with the switch turned on, if the mount is to be over io_uring, else with whatever it is.
///
/// Errors: the mount is to be over io_uring, and the kernel has no such switch, or it is not for us.
pub(crate) fn with_uring<T>(is_wanted: bool, mount: impl FnOnce() -> T) -> io::Result<T> {
    let switch = Path::new(SWITCH);
    if !is_wanted {
        let lock = File::open(switch);
        if let Ok(lock) = &lock {
            flock(lock, FlockOperation::LockShared)?;
        }
        return Ok(mount());
    }
    let lock = File::open(switch)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let before = fs::read_to_string(switch)?;
    fs::write(switch, "Y")?;
    let _before = Before(before);
    Ok(mount())
}

/// Puts the switch back, also when making the mount panics. The lock is let go of later.
struct Before(String);

impl Drop for Before {
    fn drop(&mut self) {
        if let Err(error) = fs::write(SWITCH, &self.0) {
            eprintln!("{SWITCH} stays turned on: {error}");
        }
    }
}
