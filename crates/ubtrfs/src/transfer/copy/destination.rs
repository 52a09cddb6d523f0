//! Destinations of copies: what the copier asks of a volume and of this machine alike.
//!
//! A name is one component (COPY-1). A file that stands in the way is replaced by a file only, never a directory nor
//! by one. Nothing is written through a link.

use ubtrfs_engine::{FileId, Volume};

use super::CopyError;
use super::facts::Facts;

/// A place where copies are made.
pub(crate) trait Destination {
    /// A directory that is open.
    type Dir;
    /// Something that was made and is no directory.
    type File;
    /// A way to find a file that was made, for its further names.
    type Link;

    /// Makes or enters a directory; tells whether it was made.
    fn directory(
        &mut self,
        parent: &Self::Dir,
        name: &[u8],
        facts: &Facts,
    ) -> Result<(Self::Dir, bool), CopyError>;

    /// Makes a regular file without data. `of` is what it is copied from, if that is in a volume.
    fn file(
        &mut self,
        parent: &Self::Dir,
        name: &[u8],
        facts: &Facts,
        of: Option<(&Volume, FileId)>,
    ) -> Result<Self::File, CopyError>;

    /// Writes data at an offset in bytes.
    fn write(&mut self, file: &Self::File, at: u64, bytes: &[u8]) -> Result<(), CopyError>;

    /// Sets the size of a file whose data was written, in bytes.
    fn set_size(&mut self, file: &Self::File, size: u64) -> Result<(), CopyError>;

    /// Has the file share all data of one in a volume; false if it cannot.
    fn share(&mut self, file: &Self::File, of: (&Volume, FileId)) -> Result<bool, CopyError>;

    /// Makes a symbolic link.
    fn symlink(
        &mut self,
        parent: &Self::Dir,
        name: &[u8],
        target: &[u8],
    ) -> Result<Self::File, CopyError>;

    /// Makes a device, fifo or socket.
    fn node(
        &mut self,
        parent: &Self::Dir,
        name: &[u8],
        facts: &Facts,
    ) -> Result<Self::File, CopyError>;

    /// Notes where a file was made. `dir` is the path of its directory below the one where the copy began.
    fn link_to(&self, dir: Vec<u8>, name: &[u8], file: &Self::File) -> Self::Link;

    /// Gives a file that was made a further name. `top` is where the copy began.
    fn link(
        &mut self,
        top: &Self::Dir,
        first: &Self::Link,
        parent: &Self::Dir,
        name: &[u8],
    ) -> Result<(), CopyError>;

    /// Gives a file what it is to keep. Returns what could not be kept.
    fn keep(&mut self, file: &Self::File, facts: &Facts) -> Vec<CopyError>;

    /// Gives a directory that was filled what it is to keep. Returns what could not be kept.
    fn keep_directory(&mut self, dir: &Self::Dir, facts: &Facts) -> Vec<CopyError>;
}
