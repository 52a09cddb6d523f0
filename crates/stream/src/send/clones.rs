//! Extents that the receiver already has: in the parent, in clone sources, and in data that was already sent.
//!
//! Back references give the users of an extent. Without clone sources, an extent with a single reference is not
//! looked up. Extents shared between the parent and the new snapshot are not part of the difference.
//!
//! Invariants
//! - CLONE-1: a source in the subvolume being sent must be complete by then: a lower inode, or an earlier range of
//!   the same one.
//! - CLONE-2: a clone ends at a sector boundary, or at the end of both files.

use std::cmp::Reverse;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::FileKind;
use ubtrfs_fs::RootsOfBlocks;

use super::error::Result;
use super::extents::{DiskRange, FileMap, Stored};
use super::file_tree::FileTree;
use super::identity;
use super::job::Job;
use super::update::Update;
use crate::format::Command;

/// Maximum number of users of an extent to check. Extents with more references are not cloned, as in the kernel.
const MAX_USERS: usize = 1024;

/// The possible sources of clones.
pub(super) struct Clones<'a> {
    /// The new snapshot is the first one.
    trees: Vec<FileTree<'a>>,
    looks_up_all: bool,
    sectorsize: u64,
    roots: RootsOfBlocks,
    /// The last result, with its extent and inode, because files use one extent in many places.
    last: Option<(Logical, u64, Rc<CloneSources>)>,
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

    fn index_of(&self, root: RootId) -> Option<usize> {
        self.trees
            .iter()
            .position(|tree| tree.snapshot.id() == root)
    }
}

/// A file in one of the trees.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct SourceFile {
    /// Index of the tree; 0 is the new snapshot.
    tree: usize,
    ino: u64,
}

/// A part of a file that refers to the extent.
#[derive(Clone, Copy, Debug)]
struct CloneSource {
    file: SourceFile,
    file_size: u64,
    start: u64,
    len: u64,
    /// Offset of the part in the extent.
    offset: u64,
}

/// The files that refer to one extent.
#[derive(Debug, Default)]
pub(super) struct CloneSources {
    all: Vec<CloneSource>,
    sectorsize: u64,
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

impl Job<'_> {
    /// Finds the files that refer to an extent and exist at the receiver.
    pub(super) fn clone_sources(
        &mut self,
        update: &Update,
        disk: &DiskRange,
    ) -> Result<Rc<CloneSources>> {
        let (extent, ino) = (disk.extent, update.ino);
        if let Some((last, of, found)) = &self.clones.last
            && (*last, *of) == (extent, ino)
        {
            return Ok(Rc::clone(found));
        }
        let found = Rc::new(self.find_clone_sources(update, disk)?);
        self.clones.last = Some((extent, ino, Rc::clone(&found)));
        Ok(found)
    }

    fn find_clone_sources(&mut self, update: &Update, disk: &DiskRange) -> Result<CloneSources> {
        let mut found = CloneSources {
            all: Vec::new(),
            sectorsize: self.clones.sectorsize,
        };
        let new = self.new.snapshot;
        let least = if self.clones.looks_up_all { 1 } else { 2 };
        if !(least..=MAX_USERS as u64).contains(&new.extent_refs(disk.extent)?) {
            return Ok(found);
        }
        let mut users = Vec::new();
        let mut roots = std::mem::take(&mut self.clones.roots);
        new.extent_users(disk.extent, &mut roots, &mut |user| {
            if let Some(tree) = self.clones.index_of(user.root) {
                let ino = user.ino.0;
                // CLONE-1
                if tree != 0 || ino <= update.ino {
                    users.push((SourceFile { tree, ino }, user.offset));
                }
            }
            if users.len() < MAX_USERS {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        self.clones.roots = roots;
        for (file, start) in users {
            found.all.extend(self.source(file, start, disk)?);
        }
        Ok(found)
    }

    fn source(
        &self,
        file: SourceFile,
        start: u64,
        disk: &DiskRange,
    ) -> Result<Option<CloneSource>> {
        let tree = self.clones.trees[file.tree];
        let Some(inode) = tree.inode(file.ino)? else {
            return Ok(None);
        };
        if inode.kind != FileKind::Regular {
            return Ok(None);
        }
        let (stored, end) = FileMap::new(tree, file.ino, start)?.at(start)?;
        Ok(match stored {
            Stored::Disk(found) if found.extent == disk.extent => Some(CloneSource {
                file,
                file_size: inode.size(),
                start,
                len: end - start,
                offset: found.offset,
            }),
            _ => None,
        })
    }

    /// Writes a clone. Returns false if the source's path is too long for the receiver.
    pub(super) fn write_clone(
        &mut self,
        update: &Update,
        source: SourceFile,
        clone_offset: u64,
        range: Range<u64>,
    ) -> Result<bool> {
        let tree = self.clones.trees[source.tree];
        let clone_path = match source.tree {
            0 if source.ino == update.ino => update.path.clone(),
            0 => {
                let name = tree.first_name(source.ino)?;
                self.new_path(&name)?
            }
            _ => match tree.path(source.ino) {
                Err(error) if error.is_long_path() => return Ok(false),
                path => path?,
            },
        };
        let (clone_uuid, clone_ctransid) = identity(tree.snapshot);
        self.write(&Command::Clone {
            offset: range.start,
            len: range.end - range.start,
            path: &update.path,
            clone_uuid,
            clone_ctransid,
            clone_path: &clone_path,
            clone_offset,
        })?;
        Ok(true)
    }
}
