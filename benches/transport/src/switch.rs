//! The kernel's switch for FUSE over io_uring, enabled while a mount starts.
//!
//! The kernel reads the switch only then. The thread that enables it holds an exclusive lock on it and restores the
//! old state. The lock excludes other threads that enable it or mount. Otherwise the kernel could offer io_uring to a
//! mount and then refuse it. That mount would work without io_uring or fail.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

pub(crate) const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Calls `mount` with the switch enabled if `is_wanted`, otherwise with its current state.
///
/// Errors: io_uring is wanted, and the kernel has no such switch, or the process may not change it.
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

/// Restores the switch, also when `mount` panics. The lock is released later.
struct Before(String);

impl Drop for Before {
    fn drop(&mut self) {
        if let Err(error) = fs::write(SWITCH, &self.0) {
            eprintln!("{SWITCH} stays turned on: {error}");
        }
    }
}
