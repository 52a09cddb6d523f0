//! How a device is opened, which decides its lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Access mode of an open device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Shared with other readers.
    #[default]
    Read,
    /// Exclusive.
    Write,
}

impl Access {
    /// Opens a device without a lock.
    pub(crate) fn open(self, path: &Path, flags: OFlags) -> io::Result<File> {
        // Without O_NONBLOCK, open would hang if the path has become a pipe since it was checked. The flag is cleared
        // below: io_uring would fail reads that have to wait.
        let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = OpenOptions::new()
            .read(true)
            .write(self == Access::Write)
            .custom_flags(flags.bits() as i32)
            .open(path)?;
        rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
        Ok(file)
    }
}
