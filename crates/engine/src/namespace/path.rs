//! Paths within a namespace, by the rules of the kernel's path walk.
//!
//! Invariants
//! - LOOKUP-1: a path that goes on behind a name, if only by a slash or a ".", fails unless the name is of a directory.
//! - LOOKUP-2: links of one walk share one budget, so that every walk ends.
//! - LOOKUP-3: a caller's right to a directory is asked before anything of it is told, also before "." and "..".

use ubtrfs_format::item::FileKind;
use ubtrfs_transaction::FileId;

use super::entry::MAX_NAME_BYTES;
use crate::error::{Error, Result};
use crate::namespace::Namespace;

/// Links followed on one path before it counts as a loop; the kernel's limit.
const MAX_SYMLINKS: usize = 40;

/// In a walk, what stands for a slash at the end: it asks for a directory, and not to go on in it.
const TRAILING_SLASH: &[u8] = b"";

/// The last part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastName {
    Name(Vec<u8>),
    /// ".", which names the directory itself.
    Current,
    /// "..", which names the parent of the directory.
    Parent,
    /// The path is of the root.
    Root,
}

/// The end of a path: a name in a directory, which something has or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEnd {
    pub dir: FileId,
    pub last: LastName,
    /// The inode of that name; None if there is none, or if `last` is no name.
    pub id: Option<FileId>,
    /// Whether the path ends with a slash: only a directory may be meant.
    pub has_slash: bool,
}

/// A walk under way.
struct PathWalk {
    top: FileId,
    at: FileId,
    /// The names to come, last first.
    pending: Vec<Vec<u8>>,
    links: usize,
}

impl Namespace {
    /// Resolves `path` from `base`. Links in the middle are followed, one at the end is not. A
    /// path or link that begins with '/' starts at `base`'s subvolume root.
    pub(crate) fn resolve(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.walk(base, path, false)
    }

    /// Resolves `path` from `base` with a link at the end followed as well.
    pub(crate) fn resolve_following(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.walk(base, path, true)
    }

    /// Resolves as [`Namespace::resolve_following`], if `check` lets the walk go on from each directory that it comes to.
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

    /// Resolves all of `path` but its last name, which need not exist. With `follow_last`, links at the end are
    /// followed to the name that the last of them leads to, as open(2) does to create a file. A path that ends with a
    /// slash is not followed so.
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

    /// Begins a walk. With `is_whole`, all of the path is walked, with a slash at its end.
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

    /// Goes through the next name, if there is one.
    fn advance(&self, walk: &mut PathWalk, follow_last: bool) -> Result<()> {
        let Some(name) = walk.pending.pop() else {
            return Ok(());
        };
        let follow = follow_last || !walk.pending.is_empty();
        self.step(walk, &name, follow)
    }

    /// Goes through one name, and puts the names of a link that is followed before those to come.
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

    /// Reads a link that the walk follows, and starts anew at the top if its target does.
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
        match name.len() > MAX_NAME_BYTES {
            true => Err(Error::NameTooLong),
            false => self.lookup(dir, name),
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
