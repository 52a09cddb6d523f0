//! The paths of inodes in a mount, queried through ioctls.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::Context;
use rustix::io::Errno;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_fs::FileId;

use crate::presentation::console::Console;
use crate::volume_access::control::mountpoint_of;
use crate::volume_access::ioctls::{Asked, joined};
use crate::volume_access::location::Location;

/// A path in a mount, and the bases of displayed paths.
#[derive(Debug)]
pub(super) struct MountedPaths {
    pub(super) asked: Asked,
    /// Path prefixes, each with the subvolume whose root it is. The first one that contains a file is used.
    bases: Vec<(PathBuf, RootId)>,
}

impl MountedPaths {
    pub(super) fn of(location: &Location) -> anyhow::Result<MountedPaths> {
        let asked = Asked::open(location)?;
        let written = location.written_path();
        let not_there = || format!("cannot access '{location}'");
        let mut bases = Vec::new();
        if asked.inode()? == InodeNr::FIRST_FREE {
            bases.push((written.to_owned(), asked.root_id()?));
        }
        let path = written.canonicalize().with_context(not_there)?;
        let mountpoint = mountpoint_of(&path).with_context(not_there)?;
        // A mount point hidden under another mount cannot be used.
        if let Ok(top) = Asked::at(&mountpoint)
            && let Ok(root) = top.root_id()
        {
            bases.push((mountpoint, root));
        }
        Ok(MountedPaths { asked, bases })
    }

    /// Returns all paths of a file. Paths outside the mount begin with `<FS_TREE>`.
    pub(super) fn of_file(&self, file: FileId) -> Result<Vec<Vec<u8>>, Errno> {
        let base = self.base_for(file.root)?;
        let paths = self.asked.paths_of(file)?;
        let below = |path: &Vec<u8>| {
            if path.is_empty() {
                base.clone()
            } else {
                joined(&base, path)
            }
        };
        Ok(paths.iter().map(below).collect())
    }

    fn base_for(&self, root: RootId) -> Result<Vec<u8>, Errno> {
        if let Some(base) = self.mounted_base(root)? {
            return Ok(base);
        }
        let path = self.path_from_top(root)?;
        Ok([&b"<FS_TREE>"[..], &separated(&path)].concat())
    }

    /// Returns the path of a subvolume in the mount, or None if it is not there.
    fn mounted_base(&self, root: RootId) -> Result<Option<Vec<u8>>, Errno> {
        for (base, from) in &self.bases {
            let (reached, path) = self.asked.subvolume_path(root, *from)?;
            if reached.is_some() {
                let base = base.as_os_str().as_bytes();
                let base = base.strip_suffix(b"/").unwrap_or(base);
                return Ok(Some([base, &separated(&path)].concat()));
            }
        }
        Ok(None)
    }

    pub(super) fn is_mounted(&self, root: RootId) -> Result<bool, Errno> {
        Ok(self.mounted_base(root)?.is_some())
    }

    /// Returns the path of a subvolume from the top level.
    pub(super) fn path_from_top(&self, root: RootId) -> Result<Vec<u8>, Errno> {
        Ok(self.asked.subvolume_path(root, RootId::FS_TREE)?.1)
    }

    pub(super) fn write(&self, console: &mut Console, path: &[u8]) -> io::Result<()> {
        use io::Write;
        console.write_path(path)?;
        console.out.write_all(b"\n")
    }
}

fn separated(path: &[u8]) -> Vec<u8> {
    match path {
        [] => Vec::new(),
        path => [b"/", path].concat(),
    }
}
