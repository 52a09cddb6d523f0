//! Options for creating directories.

use crate::subvolume::DIR_PERMISSIONS;

/// Options for creating directories, like [`std::fs::DirBuilder`].
/// [`Subvolume::create_dir_with`](crate::Subvolume::create_dir_with) takes them.
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
    /// Creates the options for a single directory with mode 0o755.
    pub fn new() -> DirBuilder {
        DirBuilder::default()
    }

    /// Sets whether missing parents are created as well. An existing directory is not an error then.
    #[must_use]
    pub fn recursive(mut self, recursive: bool) -> DirBuilder {
        self.recursive = recursive;
        self
    }

    /// Sets the permission bits of new directories, less the bits of [`DirBuilder::umask`].
    #[must_use]
    pub fn mode(mut self, mode: u32) -> DirBuilder {
        self.mode = mode;
        self
    }

    /// Sets the permission bits to clear in new directories, like umask(2). The default is 0. A default ACL of the
    /// parent directory replaces it.
    #[must_use]
    pub fn umask(mut self, umask: u32) -> DirBuilder {
        self.umask = umask;
        self
    }
}
