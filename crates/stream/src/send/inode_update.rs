//! The state of an inode that is being updated to the new snapshot.
//!
//! Not here: the commands for its names and attributes (`update`) and for its data (`data`).

use std::ops::Range;

use super::file_tree::Inode;

/// An inode that is being updated to its state in the new snapshot.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) ino: u64,
    /// Its state in the old snapshot, if it is the same inode there.
    pub(super) before: Option<Inode>,
    pub(super) after: Inode,
    /// Its current path at the receiver.
    pub(super) path: Vec<u8>,
    pub(super) data: FileData,
    /// Capabilities to set after the last command that clears them.
    pub(super) capability: Option<Vec<u8>>,
}

/// Progress of sending the data of a file.
#[derive(Debug, Default)]
pub(super) struct FileData {
    /// The size of the receiver's file.
    pub(super) size_there: u64,
    pub(super) size: u64,
    /// The old size of the file, until the range after it has been handled.
    pub(super) grows_from: u64,
    /// The last range of differing items; everything before it was sent.
    pub(super) differing: Range<u64>,
    /// Ranges that are held back to be merged with the next ones.
    pub(super) writes: Range<u64>,
    pub(super) zeros: Range<u64>,
    /// Whether the file's times at the receiver were changed.
    pub(super) is_touched: bool,
    /// Whether the file's capabilities at the receiver were cleared.
    pub(super) clears_capability: bool,
}

impl FileData {
    pub(super) fn new(size_there: u64, size: u64) -> FileData {
        FileData {
            size_there,
            size,
            grows_from: size_there,
            ..FileData::default()
        }
    }

    pub(super) fn wrote_to(&mut self, end: u64) {
        self.size_there = self.size_there.max(end);
        self.touch();
    }

    pub(super) fn touch(&mut self) {
        self.is_touched = true;
        self.clears_capability = true;
    }
}
