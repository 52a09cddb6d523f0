//! Path resolution within a namespace, by the rules of the kernel's path walk.
//!
//! Invariants
//! - LOOKUP-1: if anything follows a name in a path, even only a slash or a ".", the name must be a
//!   directory.
//! - LOOKUP-2: links of one walk share one budget, so that every walk ends.
//! - LOOKUP-3: a caller's right to a directory is checked before anything about it is revealed, also before
//!   "." and "..".

use ubtrfs_format::item::FileKind;
use ubtrfs_storage::FileId;

use super::entry::MAX_NAME_BYTES;
use crate::error::{Error, Result};
use crate::namespace::Namespace;

/// The kernel's limit of links followed in one path.
const MAX_SYMLINKS: usize = 40;

/// Represents a slash at the end of a path in a walk: the name before it must be a directory.
const TRAILING_SLASH: &[u8] = b"";

/// The last part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastName {
    Name(Vec<u8>),
    /// ".", which names the directory itself.
    Current,
    /// "..", which names the parent of the directory.
    Parent,
    /// The path is the root.
    Root,
}

/// The end of a path: a directory and a last name, which need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEnd {
    pub dir: FileId,
    pub last: LastName,
    /// The inode of that name. None if it does not exist, or if `last` is not a name.
    pub id: Option<FileId>,
    /// Whether the path ends with a slash, so that only a directory may match.
    pub has_slash: bool,
}

/// The state of a path walk.
struct PathWalk {
    top: FileId,
    at: FileId,
    /// The remaining names, last first.
    pending: Vec<Vec<u8>>,
    links: usize,
}

impl Namespace {
    /// Resolves `path` from `base`. A link at the end is not followed. An absolute path or link starts at the
    /// root of `base`'s subvolume.
    pub(crate) fn resolve(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.walk(base, path, false)
    }

    /// Resolves `path` from `base`, and also follows a link at the end.
    pub(crate) fn resolve_following(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.walk(base, path, true)
    }

    /// Resolves like [`Namespace::resolve_following`], but calls `check` before it enters each directory.
    pub(crate) fn resolve_following_if<E: From<Error>>(
        &self,
        base: FileId,
        path: &[u8],
        mut check: impl FnMut(FileId) -> std::result::Result<(), E>,
    ) -> std::result::Result<FileId, E> {
        let mut walk = self.begin_walk(base, path, true)?;
        while !walk.pending.is_empty() {
            // LOOKUP-3
            self.check_directory(walk.at)?;
            if walk
                .pending
                .last()
                .is_some_and(|name| name != TRAILING_SLASH)
            {
                check(walk.at)?;
            }
            self.advance(&mut walk, true)?;
        }
        Ok(walk.at)
    }

    /// Resolves all of `path` but its last name, which need not exist. With `follow_last`, links at the end
    /// are followed to the last target's name, as in open(2) with O_CREAT. A path that ends with a slash is
    /// an exception: its links are not followed.
    pub(crate) fn resolve_end(
        &self,
        base: FileId,
        path: &[u8],
        follow_last: bool,
    ) -> Result<PathEnd> {
        let mut walk = self.begin_walk(base, path, false)?;
        let mut has_slash = path.ends_with(b"/");
        while let Some(name) = walk.pending.pop() {
            if !walk.pending.is_empty() {
                self.step(&mut walk, &name, true)?;
                continue;
            }
            let last = match name.as_slice() {
                b"." => LastName::Current,
                b".." => LastName::Parent,
                _ => LastName::Name(name),
            };
            let mut id = None;
            if let LastName::Name(name) = &last {
                id = self.lookup_component(walk.at, name)?;
            } else {
                self.check_directory(walk.at)?;
            }
            if let Some(link) = id
                && follow_last
                && !has_slash
                && self.inodes.attr(link)?.kind == FileKind::Symlink
            {
                let target = self.read_target(&mut walk, link)?;
                has_slash = target.ends_with(b"/");
                walk.pending.extend(names(&target));
                continue;
            }
            return Ok(PathEnd {
                dir: walk.at,
                last,
                id,
                has_slash,
            });
        }
        Ok(PathEnd {
            dir: walk.at,
            last: LastName::Root,
            id: None,
            has_slash,
        })
    }

    fn walk(&self, base: FileId, path: &[u8], follow_last: bool) -> Result<FileId> {
        let mut walk = self.begin_walk(base, path, true)?;
        while !walk.pending.is_empty() {
            self.advance(&mut walk, follow_last)?;
        }
        Ok(walk.at)
    }

    /// Starts a walk. With `is_whole`, a slash at the end of the path counts.
    fn begin_walk(&self, base: FileId, path: &[u8], is_whole: bool) -> Result<PathWalk> {
        let top = self.roots.root_dir(base.root)?;
        let mut pending = names(path);
        // LOOKUP-1
        if is_whole && path.ends_with(b"/") && !pending.is_empty() {
            pending.insert(0, TRAILING_SLASH.to_vec());
        }
        Ok(PathWalk {
            top,
            at: if path.starts_with(b"/") { top } else { base },
            pending,
            links: 0,
        })
    }

    /// Walks through the next name, if there is one.
    fn advance(&self, walk: &mut PathWalk, follow_last: bool) -> Result<()> {
        let Some(name) = walk.pending.pop() else {
            return Ok(());
        };
        let follow = follow_last || !walk.pending.is_empty();
        self.step(walk, &name, follow)
    }

    /// Walks through one name. If it follows a link, pushes the names of its target.
    fn step(&self, walk: &mut PathWalk, name: &[u8], follow: bool) -> Result<()> {
        match name {
            b"." | TRAILING_SLASH => return self.check_directory(walk.at),
            b".." => {
                self.check_directory(walk.at)?;
                if walk.at != walk.top {
                    walk.at = self.parent(walk.at)?;
                }
                return Ok(());
            }
            _ => {}
        }
        let next = self.lookup_component(walk.at, name)?;
        let next = next.ok_or(Error::NotFound)?;
        if !follow || self.inodes.attr(next)?.kind != FileKind::Symlink {
            walk.at = next;
            return Ok(());
        }
        let target = self.read_target(walk, next)?;
        // LOOKUP-1
        if target.ends_with(b"/") {
            walk.pending.push(TRAILING_SLASH.to_vec());
        }
        walk.pending.extend(names(&target));
        Ok(())
    }

    /// Reads a link that the walk follows. An absolute target restarts the walk at the top.
    fn read_target(&self, walk: &mut PathWalk, link: FileId) -> Result<Vec<u8>> {
        // LOOKUP-2
        walk.links += 1;
        if walk.links > MAX_SYMLINKS {
            return Err(Error::TooManySymlinks);
        }
        let target = self.readlink(link)?;
        match target.first() {
            None => return Err(Error::NotFound),
            Some(b'/') => walk.at = walk.top,
            Some(_) => {}
        }
        Ok(target)
    }

    fn lookup_component(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        if name.len() > MAX_NAME_BYTES {
            Err(Error::NameTooLong)
        } else {
            self.lookup(dir, name)
        }
    }

    fn check_directory(&self, at: FileId) -> Result<()> {
        match self.inodes.attr(at)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(Error::NotADirectory(at)),
        }
    }
}

/// Returns the names of a path, last first.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty());
    let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    names.reverse();
    names
}
