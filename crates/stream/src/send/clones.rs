//! The trees with sources of clones, and the choice among the files that refer to an extent.
//!
//! Invariants
//! - CLONE-1: a source in the subvolume being sent must be complete by then: a lower inode, or an earlier range of
//!   the same one.
//! - CLONE-2: a clone ends at a sector boundary, or at the end of both files.
//!
//! Not here: finding these files (`cloning`).

use std::cmp::Reverse;
use std::ops::Range;
use std::rc::Rc;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_fs::RootsOfBlocks;

use super::extents::DiskRange;
use super::file_tree::FileTree;
use super::inode_update::Update;

/// The possible sources of clones.
pub(super) struct Clones<'a> {
    /// The new snapshot is the first one.
    pub(super) trees: Vec<FileTree<'a>>,
    pub(super) looks_up_all: bool,
    pub(super) sectorsize: u64,
    pub(super) roots: RootsOfBlocks,
    /// The last result, with its extent and inode, because files use one extent in many places.
    pub(super) last: Option<(Logical, u64, Rc<CloneSources>)>,
}

impl<'a> Clones<'a> {
    pub(super) fn new(
        new: FileTree<'a>,
        old: Option<FileTree<'a>>,
        sources: &[FileTree<'a>],
    ) -> Clones<'a> {
        let mut trees: Vec<FileTree<'a>> = vec![new];
        for other in old.into_iter().chain(sources.iter().copied()) {
            let id = other.snapshot.id();
            if trees.iter().all(|tree| tree.snapshot.id() != id) {
                trees.push(other);
            }
        }
        Clones {
            trees,
            looks_up_all: !sources.is_empty(),
            sectorsize: u64::from(new.snapshot.volume().superblock().sectorsize.get()),
            roots: RootsOfBlocks::default(),
            last: None,
        }
    }

    pub(super) fn sectorsize(&self) -> u64 {
        self.sectorsize
    }

    /// Returns the index of the tree of a subvolume.
    pub(super) fn index_of(&self, root: RootId) -> Option<usize> {
        self.trees
            .iter()
            .position(|tree| tree.snapshot.id() == root)
    }
}

/// A file in one of the trees.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct SourceFile {
    /// Index of the tree; 0 is the new snapshot.
    pub(super) tree: usize,
    pub(super) ino: u64,
}

/// A part of a file that refers to the extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct CloneSource {
    pub(super) file: SourceFile,
    pub(super) file_size: u64,
    pub(super) start: u64,
    pub(super) len: u64,
    /// Offset of the part in the extent.
    pub(super) offset: u64,
}

/// The files that refer to one extent.
#[derive(Debug, Default)]
pub(super) struct CloneSources {
    pub(super) all: Vec<CloneSource>,
    pub(super) sectorsize: u64,
}

/// The part of a range that can be cloned.
pub(super) enum Clonable {
    /// The first `len` bytes.
    Now {
        source: SourceFile,
        offset: u64,
        len: u64,
    },
    /// Possibly a part after the first `skip` bytes.
    Behind {
        skip: u64,
    },
    Never,
}

impl CloneSources {
    pub(super) fn best(&self, disk: &DiskRange, range: &Range<u64>, update: &Update) -> Clonable {
        let clonable = self.all.iter().filter_map(|source| {
            let (offset, len) = self.part(source, disk, range, update)?;
            Some((len, Reverse((source.file, offset))))
        });
        if let Some((len, Reverse((source, offset)))) = clonable.max() {
            return Clonable::Now {
                source,
                offset,
                len,
            };
        }
        let len = range.end - range.start;
        let behind = self.all.iter().filter_map(|source| {
            let skip = source.offset.checked_sub(disk.offset)?;
            (skip > 0 && skip < len).then_some(skip)
        });
        behind
            .min()
            .map_or(Clonable::Never, |skip| Clonable::Behind { skip })
    }

    /// Returns the offset in the source file and the length that can be cloned.
    fn part(
        &self,
        source: &CloneSource,
        disk: &DiskRange,
        range: &Range<u64>,
        update: &Update,
    ) -> Option<(u64, u64)> {
        let into = disk.offset.checked_sub(source.offset)?;
        let offset = source.start.checked_add(into)?;
        let mut end = (source.start + source.len).min(source.file_size);
        let is_own_file = source.file.tree == 0 && source.file.ino == update.ino;
        if is_own_file {
            // CLONE-1
            end = end.min(range.start);
        }
        let mut len = end.checked_sub(offset)?.min(range.end - range.start);
        // CLONE-2
        let ends_both = offset + len == source.file_size
            && range.start + len == update.data.size
            && !is_own_file;
        if !ends_both {
            len -= len % self.sectorsize;
        }
        // A small file may be inline at the receiver, which cannot be cloned.
        let may_be_inline = offset == 0 && len <= self.sectorsize;
        (len > 0 && !may_be_inline).then_some((offset, len))
    }
}
