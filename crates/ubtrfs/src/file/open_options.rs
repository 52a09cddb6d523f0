//! Options for opening files.

use crate::error::{Cause, Caused};

/// Permission bits of a new file.
const NEW_FILE_MODE: u32 = 0o644;

/// Options for opening files, like [`std::fs::OpenOptions`]. [`Subvolume::open_with`](crate::Subvolume::open_with)
/// takes them.
///
/// ```
/// use std::io::{Read, Seek, Write};
/// use ubtrfs::{OpenOptions, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let options = OpenOptions::new().read(true).write(true).create_new(true);
/// let mut file = volume.root().open_with("/file", &options)?;
/// file.write_all(b"content")?;
/// file.rewind()?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text, "content");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "as in std")]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) no_follow: bool,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            no_follow: false,
            mode: NEW_FILE_MODE,
            umask: 0,
        }
    }
}

impl OpenOptions {
    /// Creates options that allow nothing.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Opens for reading.
    #[must_use]
    pub fn read(mut self, read: bool) -> OpenOptions {
        self.read = read;
        self
    }

    /// Opens for writing. Without `truncate` an existing file keeps its content.
    #[must_use]
    pub fn write(mut self, write: bool) -> OpenOptions {
        self.write = write;
        self
    }

    /// Opens for appending: each write goes to the current end of the file.
    #[must_use]
    pub fn append(mut self, append: bool) -> OpenOptions {
        self.append = append;
        self
    }

    /// Truncates the file to length 0. Needs `write`.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Creates the file if it does not exist, also at the target of a dangling link. Needs `write` or `append`.
    #[must_use]
    pub fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// Creates the file, which must not exist, not even as a link. Needs `write` or `append`.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Refuses a link at the end of the path, like `O_NOFOLLOW`.
    #[must_use]
    pub fn no_follow(mut self, no_follow: bool) -> OpenOptions {
        self.no_follow = no_follow;
        self
    }

    /// Sets the permission bits of a new file, less the bits of [`OpenOptions::umask`]. The default is 0o644.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = mode;
        self
    }

    /// Sets the permission bits to clear in a new file, like umask(2). The default is 0. A default ACL of the directory
    /// replaces it.
    #[must_use]
    pub fn umask(mut self, umask: u32) -> OpenOptions {
        self.umask = umask;
        self
    }

    /// Returns whether the file may be changed.
    pub(crate) fn writes(&self) -> bool {
        self.write || self.append
    }

    /// Refuses the same combinations as `std`.
    pub(crate) fn check(&self) -> Caused<()> {
        if !self.read && !self.writes() {
            return Err(Cause::InvalidOptions("neither reading nor writing"));
        }
        let makes = self.create || self.create_new;
        if !self.writes() && (self.truncate || makes) {
            return Err(Cause::InvalidOptions("a change without writing"));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(Cause::InvalidOptions("truncating with appending"));
        }
        Ok(())
    }
}
