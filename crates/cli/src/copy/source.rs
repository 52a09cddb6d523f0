//! Where a copy is made from: what the copier asks of a volume and of this machine alike.

use std::hash::Hash;
use std::ops::Range;

use ubtrfs_engine::{FileId, Volume};

use super::CopyError;
use super::facts::Facts;
use crate::file_data::Damage;

pub(crate) trait Source {
    /// Refers to one file.
    type File;
    /// Equal for the names of one file.
    type Id: Eq + Hash;

    fn facts(&self, file: &Self::File, with_xattrs: bool) -> Result<Facts, CopyError>;

    fn id(&self, file: &Self::File) -> Self::Id;

    /// Where a symbolic link leads.
    fn link_target(&self, file: &Self::File) -> Result<Vec<u8>, CopyError>;

    fn open<'a>(&'a self, file: &Self::File, size: u64) -> Result<Box<dyn Data + 'a>, CopyError>;

    /// Everything below a directory. `path` is the directory's, for messages.
    fn walk<'a>(
        &'a self,
        dir: &Self::File,
        path: &[u8],
    ) -> Result<Box<dyn Walking<File = Self::File> + 'a>, CopyError>;

    /// The file, if it is in a volume and could share its extents there.
    fn in_volume(&self, file: &Self::File) -> Option<(&Volume, FileId)>;
}

/// The data of a file.
pub(crate) trait Data {
    /// The next range that is no hole.
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

#[derive(Debug)]
pub(crate) enum CopyStep<F> {
    /// A name in the directory that was entered last.
    Entry { name: Vec<u8>, file: F },
    /// All of a directory that was entered has been seen.
    Leave,
    /// What is at the path cannot be copied.
    Failed(CopyError),
}

/// A walk in pre-order. A directory is entered if the copier says so after its step.
pub(crate) trait Walking {
    type File;

    fn next(&mut self) -> Option<CopyStep<Self::File>>;

    /// Enters the directory of the last step.
    fn enter(&mut self) -> Result<(), CopyError>;

    /// Of what the last step was about.
    fn path(&self) -> &[u8];
}
