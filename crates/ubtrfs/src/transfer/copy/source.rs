//! Sources of copies: what the copier asks of a volume and of this machine alike.

use std::hash::Hash;
use std::ops::Range;

use ubtrfs_engine::{FileId, Volume};

use super::CopyError;
use super::facts::Facts;
use crate::transfer::file_data::Damage;

/// A place that files are copied from.
pub(crate) trait Source {
    /// A reference to one file.
    type File;
    /// An identity, equal for the names of one file.
    type Id: Eq + Hash;

    /// Reads what a copy keeps of a file. Extended attributes are left out unless `with_xattrs`.
    fn facts(&self, file: &Self::File, with_xattrs: bool) -> Result<Facts, CopyError>;

    /// Returns the file's identity.
    fn id(&self, file: &Self::File) -> Self::Id;

    /// Reads where a symbolic link leads.
    fn link_target(&self, file: &Self::File) -> Result<Vec<u8>, CopyError>;

    /// Opens a regular file of so many bytes.
    fn open<'a>(&'a self, file: &Self::File, size: u64) -> Result<Box<dyn Data + 'a>, CopyError>;

    /// Begins a walk through everything below a directory. `path` is the directory's, for messages.
    fn walk<'a>(
        &'a self,
        dir: &Self::File,
        path: &[u8],
    ) -> Result<Box<dyn Walking<File = Self::File> + 'a>, CopyError>;

    /// Returns the file, if it is in a volume and could share its extents there.
    fn in_volume(&self, file: &Self::File) -> Option<(&Volume, FileId)>;
}

/// The data of a file.
pub(crate) trait Data {
    /// Finds the next range that is no hole, as offsets in bytes.
    fn next_range(&mut self) -> Result<Option<Range<u64>>, CopyError>;

    /// Fills `buf` from `at`; holes and what is past the end are zeros, and so is damage, which is told. False if
    /// nothing could be read.
    fn read(
        &mut self,
        at: u64,
        buf: &mut [u8],
        damage: &mut Vec<Damage>,
    ) -> Result<bool, CopyError>;
}

/// A step of a walk through a source.
#[derive(Debug)]
pub(crate) enum CopyStep<F> {
    /// A name in the directory that was entered last.
    Entry { name: Vec<u8>, file: F },
    /// All of a directory that was entered has been seen.
    Leave,
    /// The file at the path cannot be copied.
    Failed(CopyError),
}

/// A walk in pre-order. A directory is entered if the copier says so after its step.
pub(crate) trait Walking {
    /// The source's reference to one file.
    type File;

    /// Takes the next step; None at the end.
    fn next(&mut self) -> Option<CopyStep<Self::File>>;

    /// Enters the directory of the last step.
    fn enter(&mut self) -> Result<(), CopyError>;

    /// Returns the path of the file that the last step was about.
    fn path(&self) -> &[u8];
}
