//! The interface of the copier to sources: volumes and the host.

use std::hash::Hash;
use std::ops::Range;

use ubtrfs_fs::{FileId, Volume};

use super::CopyError;
use super::attributes::Attributes;
use crate::transfer::file_data::Damage;

/// A source of copies.
pub(crate) trait Source {
    /// A reference to one file.
    type File;
    /// An identity, equal for all names of one file.
    type Id: Eq + Hash;

    /// Reads the attributes to preserve. Extended attributes are left out unless `with_xattrs` is set.
    fn attributes(&self, file: &Self::File, with_xattrs: bool) -> Result<Attributes, CopyError>;

    /// Returns the file's identity.
    fn id(&self, file: &Self::File) -> Self::Id;

    /// Reads the target of a symbolic link.
    fn link_target(&self, file: &Self::File) -> Result<Vec<u8>, CopyError>;

    /// Opens a regular file of `size` bytes.
    fn open<'a>(&'a self, file: &Self::File, size: u64) -> Result<Box<dyn Data + 'a>, CopyError>;

    /// Begins a walk of everything below a directory. `path` is the directory's, for messages.
    fn walk<'a>(
        &'a self,
        dir: &Self::File,
        path: &[u8],
    ) -> Result<Box<dyn Walking<File = Self::File> + 'a>, CopyError>;

    /// Returns the file if it is in a volume and could share its extents there.
    fn in_volume(&self, file: &Self::File) -> Option<(&Volume, FileId)>;
}

/// The data of a file.
pub(crate) trait Data {
    /// Finds the next data range, as offsets in bytes.
    fn next_range(&mut self) -> Result<Option<Range<u64>>, CopyError>;

    /// Fills `buf` from `at`. Holes, bytes past the end and damaged ranges are zeros; damage is also reported. Returns
    /// false if nothing could be read.
    fn read(
        &mut self,
        at: u64,
        buf: &mut [u8],
        damage: &mut Vec<Damage>,
    ) -> Result<bool, CopyError>;
}

/// A step of a walk of a source.
#[derive(Debug)]
pub(crate) enum CopyStep<F> {
    /// A name in the directory that was entered last.
    Entry { name: Vec<u8>, file: F },
    /// The end of a directory that was entered.
    Leave,
    /// The file at the path cannot be copied.
    Failed(CopyError),
}

/// A walk in pre-order. A directory is entered if the copier calls `enter` after its step.
pub(crate) trait Walking {
    /// The source's reference to one file.
    type File;

    /// Takes the next step. Returns `None` at the end.
    fn next(&mut self) -> Option<CopyStep<Self::File>>;

    /// Enters the directory of the last step.
    fn enter(&mut self) -> Result<(), CopyError>;

    /// Returns the path of the last step's file.
    fn path(&self) -> &[u8];
}
