//! The handle of an inode: its subvolume and its number.
//!
//! A snapshot copies the directory entries of nested subvolumes, but has no ROOT_REF for them. Such an entry reads as
//! an empty directory without an inode on disk. Its handle has the inode number of the parent directory, plus a bit
//! that no real inode number has.

use std::hash::Hasher;

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::key::{Key, KeyType};

const EMPTY_SUBVOLUME_DIR: u64 = 1 << 63;

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Ord, PartialOrd)]
pub struct FileId {
    pub root: RootId,
    pub ino: InodeNr,
}

impl FileId {
    #[inline]
    pub fn new(root: RootId, ino: InodeNr) -> FileId {
        FileId { root, ino }
    }

    /// Returns the handle of an inode that an item names, or None for a number reserved for empty subvolume
    /// directories.
    #[inline]
    pub fn stored(root: RootId, ino: u64) -> Option<FileId> {
        (ino & EMPTY_SUBVOLUME_DIR == 0).then_some(FileId::new(root, InodeNr(ino)))
    }

    /// Returns the handle of the empty directory in `dir` that replaces a subvolume nested in the source of a snapshot.
    #[inline]
    pub fn empty_subvolume_dir_in(dir: FileId) -> FileId {
        FileId {
            root: dir.root,
            ino: InodeNr(dir.ino.0 | EMPTY_SUBVOLUME_DIR),
        }
    }

    /// Returns the directory that holds this empty subvolume directory, or None for anything else.
    #[inline]
    pub fn empty_subvolume_dir_parent(self) -> Option<FileId> {
        (self.ino.0 & EMPTY_SUBVOLUME_DIR != 0).then_some(FileId {
            ino: InodeNr(self.ino.0 & !EMPTY_SUBVOLUME_DIR),
            ..self
        })
    }

    /// Returns the key that directory entries of the inode contain.
    #[inline]
    pub fn location(self) -> Key {
        Key::new(self.ino.0, KeyType::INODE_ITEM, 0)
    }

    /// Returns whether this is the empty directory in place of a nested subvolume.
    #[inline]
    pub fn is_empty_subvolume_dir(self) -> bool {
        self.empty_subvolume_dir_parent().is_some()
    }
}

/// A hasher for tree and inode numbers. It does not resist deliberate collisions, because the numbers are assigned in
/// sequence.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
