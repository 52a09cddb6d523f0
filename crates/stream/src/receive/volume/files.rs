//! The files of one subvolume by path: resolved name by name, and cached.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{Error, FileId, FileKind, Volume};

use crate::receive::path::TreePath;
use crate::receive::path_cache::PathCache;
use crate::receive::target::TargetError;

/// Maximum number of cached directories. Their paths use at most 2 MiB.
const MAX_DIRS: usize = 512;

/// Attributes of a directory that new files in it inherit.
pub(super) const HANDING_ON: [&[u8]; 2] = [b"system.posix_acl_default", b"btrfs.compression"];

const SETGID: u32 = 0o2000;

/// A resolved directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct KnownDir {
    pub(super) id: FileId,
    /// Whether new files in it inherit attributes.
    pub(super) hands_on: bool,
    flags: InodeFlags,
    /// Whether new files in it inherit its group.
    is_setgid: bool,
}

impl KnownDir {
    /// Returns whether a new file in this directory equals one that is created in `other` and moved.
    pub(super) fn makes_files_of(&self, other: &KnownDir) -> bool {
        !self.hands_anything() && !other.hands_anything() && self.flags == other.flags
    }

    pub(super) fn hands_anything(&self) -> bool {
        self.hands_on || self.is_setgid
    }
}

#[derive(Debug)]
pub(super) struct Files {
    pub(super) subvolume: RootId,
    dirs: PathCache<KnownDir>,
    /// The last file, because commands for one file are adjacent.
    file: Option<(Vec<u8>, FileId)>,
}

impl Files {
    pub(super) fn of(subvolume: RootId) -> Files {
        Files {
            subvolume,
            dirs: PathCache::new(MAX_DIRS),
            file: None,
        }
    }

    pub(super) fn dir(
        &mut self,
        volume: &Volume,
        path: TreePath<'_>,
    ) -> Result<KnownDir, TargetError> {
        let bytes = path.as_bytes();
        if let Some(dir) = self.dirs.get(bytes) {
            return Ok(dir);
        }
        // Starts at the deepest cached directory.
        let mut done = bytes.len();
        let mut at = loop {
            let Some(slash) = bytes[..done].iter().rposition(|&byte| byte == b'/') else {
                done = 0;
                break self.root(volume)?;
            };
            done = slash;
            if let Some(dir) = self.dirs.get(&bytes[..slash]) {
                done += 1;
                break dir;
            }
        };
        while done < bytes.len() {
            let rest = &bytes[done..];
            let len = rest.iter().position(|&byte| byte == b'/');
            let len = len.unwrap_or(rest.len());
            at = known_dir(volume, child(volume, at.id, &rest[..len])?)?;
            self.dirs.add(&bytes[..done + len], at);
            done += len + 1;
        }
        Ok(at)
    }

    fn root(&mut self, volume: &Volume) -> Result<KnownDir, TargetError> {
        if let Some(dir) = self.dirs.get(b"") {
            return Ok(dir);
        }
        let dir = known_dir(volume, volume.root_dir(self.subvolume)?)?;
        self.dirs.add(b"", dir);
        Ok(dir)
    }

    /// Returns the parent directory and the name.
    pub(super) fn place<'p>(
        &mut self,
        volume: &Volume,
        path: TreePath<'p>,
    ) -> Result<(FileId, &'p [u8]), TargetError> {
        let (dir, name) = path.split().ok_or(Error::Exists)?;
        Ok((self.dir(volume, dir)?.id, name))
    }

    /// Finds a file of any kind, without following symlinks.
    pub(super) fn file(
        &mut self,
        volume: &Volume,
        path: TreePath<'_>,
    ) -> Result<FileId, TargetError> {
        match &self.file {
            Some((known, id)) if known == path.as_bytes() => return Ok(*id),
            _ => {}
        }
        let Some((dir, name)) = path.split() else {
            return Ok(self.root(volume)?.id);
        };
        let dir = self.dir(volume, dir)?;
        let id = child(volume, dir.id, name)?;
        self.know_file(path, id);
        Ok(id)
    }

    pub(super) fn know_file(&mut self, path: TreePath<'_>, id: FileId) {
        match &mut self.file {
            Some((known, known_id)) => {
                known.clear();
                known.extend_from_slice(path.as_bytes());
                *known_id = id;
            }
            file => *file = Some((path.as_bytes().to_vec(), id)),
        }
    }

    /// Forgets a directory whose attributes have changed.
    pub(super) fn attributes_changed(&mut self, path: TreePath<'_>) {
        if self.dirs.get(path.as_bytes()).is_some() {
            self.dirs.forget(path.as_bytes());
        }
    }

    /// Forgets a removed path and all paths below it.
    pub(super) fn forget(&mut self, path: TreePath<'_>) {
        let path = path.as_bytes();
        let is_below = |other: &[u8]| {
            let rest = other.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        if self.file.as_ref().is_some_and(|(file, _)| is_below(file)) {
            self.file = None;
        }
        self.dirs.forget(path);
    }
}

/// Looks up a name in a directory of a subvolume.
pub(super) fn child(volume: &Volume, dir: FileId, name: &[u8]) -> Result<FileId, TargetError> {
    let found = volume.lookup(dir, name)?.ok_or(Error::NotFound)?;
    if found.root == dir.root {
        Ok(found)
    } else {
        Err(TargetError::OtherSubvolume)
    }
}

fn known_dir(volume: &Volume, id: FileId) -> Result<KnownDir, TargetError> {
    let attr = volume.stored_attr(id)?;
    if attr.kind != FileKind::Directory {
        return Err(Error::NotADirectory(id).into());
    }
    let mut hands_on = false;
    if !id.is_empty_subvolume_dir() {
        for name in HANDING_ON {
            hands_on |= volume.xattr(id, name)?.is_some();
        }
    }
    Ok(KnownDir {
        id,
        hands_on,
        flags: attr.flags,
        is_setgid: attr.mode & SETGID != 0,
    })
}
