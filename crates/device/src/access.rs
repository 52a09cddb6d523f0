//! The purposes for which a device is opened: they decide what its lock allows to others.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The use that a device is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Together with other readers.
    #[default]
    Read,
    /// Alone.
    Write,
}

impl Access {
    /// Opens a device without a lock.
    pub(crate) fn open(self, path: &Path, flags: OFlags) -> io::Result<File> {
        // Should the path have become a pipe since it was checked, opening it must not wait. Left set, the
        // flag would make io_uring give up on reads that have to wait.
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
