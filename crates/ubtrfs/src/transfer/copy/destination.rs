//! The interface of the copier to destinations: volumes and the host.
//!
//! A name is one component (COPY-1). An existing file is replaced only by a file, never a directory nor by one. Nothing
//! is written through a link.

use ubtrfs_fs::{FileId, Volume};

use super::CopyError;
use super::attributes::Attributes;

/// A destination of copies.
pub(crate) trait Destination {
    /// An open directory.
    type Dir;
    /// A created file other than a directory.
    type File;
    /// A reference to a created file, for adding names.
    type Link;

    /// Creates or enters a directory. Returns whether it was created.
    fn directory(
        &mut self,
        parent: &Self::Dir,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<(Self::Dir, bool), CopyError>;

    /// Creates a regular file without data. `of` is its original, if that is in a volume.
    fn file(
        &mut self,
        parent: &Self::Dir,
        name: &[u8],
        attributes: &Attributes,
        of: Option<(&Volume, FileId)>,
    ) -> Result<Self::File, CopyError>;

    /// Writes data at an offset in bytes.
    fn write(&mut self, file: &Self::File, at: u64, bytes: &[u8]) -> Result<(), CopyError>;

    /// Sets the size of a file after its data was written, in bytes.
    fn set_size(&mut self, file: &Self::File, size: u64) -> Result<(), CopyError>;

    /// Makes the file share all data of a file in a volume. Returns false if it cannot.
    fn share(&mut self, file: &Self::File, of: (&Volume, FileId)) -> Result<bool, CopyError>;

    /// Creates a symbolic link.
    fn symlink(
        &mut self,
        parent: &Self::Dir,
        name: &[u8],
        target: &[u8],
    ) -> Result<Self::File, CopyError>;

    /// Creates a device, FIFO or socket.
    fn node(
        &mut self,
        parent: &Self::Dir,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<Self::File, CopyError>;

    /// Returns a reference to a created file. `dir` is the path of its directory, relative to the start of the copy.
    fn link_to(&self, dir: Vec<u8>, name: &[u8], file: &Self::File) -> Self::Link;

    /// Adds a name to a created file. `top` is the start of the copy.
    fn link(
        &mut self,
        top: &Self::Dir,
        first: &Self::Link,
        parent: &Self::Dir,
        name: &[u8],
    ) -> Result<(), CopyError>;

    /// Sets the attributes to preserve on a file. Returns the ones that could not be set.
    fn keep(&mut self, file: &Self::File, attributes: &Attributes) -> Vec<CopyError>;

    /// Sets the attributes to preserve on a complete directory. Returns the ones that could not be set.
    fn keep_directory(&mut self, dir: &Self::Dir, attributes: &Attributes) -> Vec<CopyError>;
}
