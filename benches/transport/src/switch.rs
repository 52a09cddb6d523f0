//! The kernel's switch for FUSE over io_uring, turned on for as long as a mount is being made.
//!
//! The kernel looks at it only then. Whoever turns it on holds a lock on it, against all other threads and
//! processes that do, and puts back what was there.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Errors: the kernel has no such switch, or it is not for us.
pub(crate) fn with_uring<T>(mount: impl FnOnce() -> T) -> io::Result<T> {
    let switch = Path::new(SWITCH);
    let lock = File::open(switch)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let before = fs::read_to_string(switch)?;
    fs::write(switch, "Y")?;
    let mounted = mount();
    fs::write(switch, before)?;
    Ok(mounted)
}
