//! How a directory is made.

use crate::subvolume::DIR_PERMISSIONS;

/// How a directory is made, as [`std::fs::DirBuilder`]. [`Subvolume::create_dir_with`](crate::Subvolume::create_dir_with)
/// takes it.
///
/// ```
/// use ubtrfs::{DirBuilder, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// let private = DirBuilder::new().recursive(true).mode(0o700);
/// root.create_dir_with("/home/user", &private)?;
/// assert_eq!(root.metadata("/home/user")?.mode() & 0o7777, 0o700);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DirBuilder {
    pub(crate) recursive: bool,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl Default for DirBuilder {
    fn default() -> DirBuilder {
        DirBuilder {
            recursive: false,
            mode: DIR_PERMISSIONS,
            umask: 0,
        }
    }
}

impl DirBuilder {
    /// Makes one directory, of mode 0o755.
    pub fn new() -> DirBuilder {
        DirBuilder::default()
    }

    /// Sets whether missing directories above are made as well. A directory that is there is no error then.
    #[must_use]
    pub fn recursive(mut self, recursive: bool) -> DirBuilder {
        self.recursive = recursive;
        self
    }

    /// Sets the permission bits of each directory that is made, less those of [`DirBuilder::umask`].
    #[must_use]
    pub fn mode(mut self, mode: u32) -> DirBuilder {
        self.mode = mode;
        self
    }

    /// Sets the permission bits that directories go without, as umask(2). The default is none. A default ACL of the
    /// directory above takes its place.
    #[must_use]
    pub fn umask(mut self, umask: u32) -> DirBuilder {
        self.umask = umask;
        self
    }
}
