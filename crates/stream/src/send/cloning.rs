//! Extents that the receiver already has: in the parent, in clone sources, and in data that was already sent.
//!
//! Back references give the users of an extent. Without clone sources, an extent with a single reference is not
//! looked up. Extents shared between the parent and the new snapshot are not part of the difference.

use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use ubtrfs_format::item::FileKind;

use super::clones::{CloneSource, CloneSources, SourceFile};
use super::error::Result;
use super::extents::{DiskRange, FileMap, Stored};
use super::identity;
use super::inode_update::Update;
use super::job::Job;
use crate::format::Command;

/// Maximum number of users of an extent to check. Extents with more references are not cloned, as in the kernel.
const MAX_USERS: usize = 1024;

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
