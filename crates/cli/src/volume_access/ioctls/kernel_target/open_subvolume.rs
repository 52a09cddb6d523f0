//! The files of one subvolume in a mount, opened by path below its root. Directories stay open.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawMode, ResolveFlags, fchmod, fstat, fstatfs, lgetxattr,
    open, openat, openat2, statat,
};
use rustix::io::Errno;
use ubtrfs_format::ids::InodeNr;
use ubtrfs_stream::{PathCache, TargetError, TreePath};

use super::super::Asked;

pub(super) const SET_ID: RawMode = 0o6000;
pub(super) const PERMISSIONS: RawMode = 0o7777;
/// The most directories of the new subvolume kept open.
const MAX_DIRS: usize = 64;
/// The most directories of a clone source kept open. The total of all sources is far below the limit of a
/// process.
const MAX_SOURCE_DIRS: usize = 8;
const OPEN_DIR: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Nonblocking, because opening a pipe or a device could block.
pub(super) const OPEN_FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// For opening through the link in /proc.
const OPEN_AGAIN: OFlags = OFlags::NOCTTY.union(OFlags::CLOEXEC);

/// Attributes that a file inherits from its directory, even if the sender's file lacks them.
pub(super) const HANDED_ON: [&[u8]; 3] = [
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"btrfs.compression",
];
/// The attributes of a directory from which they are inherited.
pub(super) const HANDING_ON: [&[u8]; 2] = [HANDED_ON[1], HANDED_ON[2]];

/// A subvolume whose files are opened by path.
#[derive(Debug)]
pub(super) struct OpenSubvolume {
    pub(super) root: Asked,
    device: u64,
    pub(super) sectorsize: u64,
    pub(super) dirs: PathCache<Arc<OpenDir>>,
    /// The last file. Commands for one file are consecutive.
    pub(super) file: Option<(Vec<u8>, File)>,
    /// The mode of an opened file with set-id bits. Writes clear them, unless root writes.
    set_id_mode: Option<RawMode>,
    files_are_written: bool,
}

#[derive(Debug)]
pub(super) struct OpenDir {
    fd: OwnedFd,
    /// Whether new files in it inherit attributes.
    pub(super) hands_on: bool,
}

impl AsFd for OpenDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl OpenSubvolume {
    pub(super) fn new(root: Asked, files_are_written: bool) -> Result<OpenSubvolume, TargetError> {
        let device = fstat(root.as_fd()).map_err(io::Error::from)?.st_dev;
        let statfs = fstatfs(root.as_fd()).map_err(io::Error::from)?;
        Ok(OpenSubvolume {
            root,
            device,
            sectorsize: statfs.f_bsize.unsigned_abs(),
            dirs: PathCache::new(if files_are_written {
                MAX_DIRS
            } else {
                MAX_SOURCE_DIRS
            }),
            file: None,
            set_id_mode: None,
            files_are_written,
        })
    }

    pub(super) fn dir(&mut self, path: TreePath<'_>) -> Result<Arc<OpenDir>, TargetError> {
        if let Some(dir) = self.dirs.get(path.as_bytes()) {
            return Ok(dir);
        }
        let below = match path.as_bytes() {
            b"" => b".",
            path => path,
        };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = openat2(self.root.as_fd(), below, OPEN_DIR, Mode::empty(), within);
        let fd = dir.map_err(io::Error::from)?;
        self.must_be_here(fd.as_fd())?;
        let place = proc_path(&fd, b".");
        let hands_on = HANDING_ON.iter().any(|name| has_xattr(&place, name));
        let dir = Arc::new(OpenDir { fd, hands_on });
        self.dirs.add(path.as_bytes(), Arc::clone(&dir));
        Ok(dir)
    }

    pub(super) fn must_be_here(&self, file: BorrowedFd<'_>) -> Result<(), TargetError> {
        if fstat(file).map_err(io::Error::from)?.st_dev == self.device {
            Ok(())
        } else {
            Err(TargetError::OtherSubvolume)
        }
    }

    /// Returns the directory of a path, and the name in it.
    pub(super) fn place<'p>(
        &mut self,
        path: TreePath<'p>,
    ) -> Result<(Arc<OpenDir>, &'p [u8]), TargetError> {
        match path.split() {
            Some((dir, name)) => Ok((self.dir(dir)?, name)),
            None => Ok((self.dir(path)?, b".")),
        }
    }

    /// Refuses the name of a nested subvolume, which does not belong to the stream.
    pub(super) fn must_be_no_subvolume(&mut self, path: TreePath<'_>) -> Result<(), TargetError> {
        let (dir, name) = self.place(path)?;
        let found = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)?;
        let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if is_dir && found.st_ino == InodeNr::FIRST_FREE.0 {
            Err(TargetError::OtherSubvolume)
        } else {
            Ok(())
        }
    }

    pub(super) fn file(&mut self, path: TreePath<'_>) -> Result<&File, TargetError> {
        let bytes = path.as_bytes();
        if self.file.as_ref().is_none_or(|(known, _)| known != bytes) {
            self.file = None;
            self.set_id_mode = None;
            let (dir, name) = self.place(path)?;
            let access = if self.files_are_written {
                OFlags::RDWR
            } else {
                OFlags::RDONLY
            };
            // Opening a device would have side effects.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = openat(&dir, name, flags, Mode::empty()).map_err(io::Error::from)?;
            self.must_be_here(found.as_fd())?;
            let kind = fstat(&found).map_err(io::Error::from)?.st_mode;
            if FileType::from_raw_mode(kind) != FileType::RegularFile {
                return Err(io::Error::from(Errno::INVAL).into());
            }
            self.set_id_mode = (kind & SET_ID != 0).then_some(kind & PERMISSIONS);
            let again = format!("/proc/self/fd/{}", found.as_raw_fd());
            let file = open(again, OPEN_AGAIN | access, Mode::empty()).map_err(io::Error::from)?;
            self.file = Some((bytes.to_vec(), file.into()));
        }
        let (_, file) = self
            .file
            .as_ref()
            .ok_or(Errno::NOENT)
            .map_err(io::Error::from)?;
        Ok(file)
    }

    /// Caches a newly created file, which is open.
    pub(super) fn know_new_file(&mut self, path: TreePath<'_>, file: File) {
        self.file = Some((path.as_bytes().to_vec(), file));
        self.set_id_mode = None;
    }

    /// Restores the set-id bits that a write has cleared in the open file.
    pub(super) fn keep_set_ids(&self) -> Result<(), TargetError> {
        let (Some(mode), Some((_, file))) = (self.set_id_mode, &self.file) else {
            return Ok(());
        };
        let found = fstat(file).map_err(io::Error::from)?.st_mode;
        if found & PERMISSIONS != mode {
            fchmod(file, Mode::from_raw_mode(mode)).map_err(io::Error::from)?;
        }
        Ok(())
    }

    pub(super) fn forget(&mut self, path: TreePath<'_>) {
        self.dirs.forget(path.as_bytes());
        // The open file may be below a moved directory.
        self.file = None;
    }
}

/// Returns a path to a name in an open directory, for calls that accept only a path. They must not follow the
/// last name.
pub(super) fn proc_path(dir: &impl AsFd, name: &[u8]) -> PathBuf {
    let dir = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
    Path::new(&dir).join(OsStr::from_bytes(name))
}

pub(super) fn has_xattr(path: &Path, name: &[u8]) -> bool {
    lgetxattr(path, name, &mut [0u8; 0]).is_ok()
}
