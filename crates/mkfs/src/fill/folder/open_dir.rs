//! Directories and files of the source tree, opened without following links and, if possible, without atime updates.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use rustix::path::Arg;
use ubtrfs_format::item::{DeviceNumber, FileTime, InodeFlags, PreservedAttributes, Times};

use crate::fill::error::FillError;
use crate::fill::source::Attributes;

/// Longer paths are shortened at the front in messages.
const MAX_TOLD_BYTES: usize = 4096;

#[derive(Debug)]
pub(super) struct OpenDir {
    pub(super) fd: OwnedFd,
    /// For messages.
    path: Vec<u8>,
}

impl OpenDir {
    pub(super) fn open_root(path: &Path) -> Result<OpenDir, FillError> {
        let failed = |errno: Errno| match errno {
            Errno::NOTDIR => FillError::NotADirectory {
                path: path.to_owned(),
            },
            errno => FillError::Read {
                doing: "open",
                path: path.to_owned(),
                source: errno.into(),
            },
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = open(CWD, path, flags).map_err(failed)?;
        Ok(OpenDir {
            fd,
            path: path.as_os_str().as_bytes().to_vec(),
        })
    }

    pub(super) fn open_dir(&self, name: &[u8]) -> Result<OpenDir, FillError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let fd = self.open(name, flags);
        let fd = fd.map_err(|errno| self.failed("open", name, errno))?;
        Ok(OpenDir {
            fd,
            path: self.shown_path(name),
        })
    }

    /// Opens the parent of this directory. Its path is `path`.
    pub(super) fn open_parent(&self, path: Vec<u8>) -> Result<OpenDir, FillError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self.open(b"..", flags);
        let fd = fd.map_err(|errno| self.failed("open", b"..", errno))?;
        Ok(OpenDir { fd, path })
    }

    pub(super) fn open_file(&self, name: &[u8]) -> Result<File, FillError> {
        // A regular file may have been replaced by a pipe since the listing. The open must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = self.open(name, flags);
        let fd = fd.map_err(|errno| self.failed("open", name, errno))?;
        Ok(File::from(fd))
    }

    fn open(&self, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        open(self.fd.as_fd(), name, flags)
    }

    pub(super) fn stat(&self) -> Result<Stat, FillError> {
        fstat(&self.fd).map_err(|errno| self.failed("examine", b"", errno))
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    fn shown_path(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path.clone();
        if !path.ends_with(b"/") && !name.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        if path.len() > MAX_TOLD_BYTES {
            let cut = path.len() - MAX_TOLD_BYTES;
            path.splice(..cut, *b"...");
        }
        path
    }

    /// Returns the path of a name in the directory, for messages.
    pub(super) fn path_of(&self, name: &[u8]) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.shown_path(name)))
    }

    pub(super) fn failed(
        &self,
        doing: &'static str,
        name: &[u8],
        source: impl Into<io::Error>,
    ) -> FillError {
        FillError::Read {
            doing,
            path: self.path_of(name),
            source: source.into(),
        }
    }
}

fn open(dir: BorrowedFd<'_>, name: impl Arg + Copy, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    match openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        // O_NOATIME is only allowed for the owner and root.
        Err(Errno::PERM) => openat(dir, name, flags, Mode::empty()),
        opened => opened,
    }
}

/// Returns the attributes without the extended ones.
pub(super) fn attributes(stat: &Stat, flags: InodeFlags) -> Attributes {
    Attributes {
        file: PreservedAttributes {
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            device: DeviceNumber {
                major: rustix::fs::major(stat.st_rdev),
                minor: rustix::fs::minor(stat.st_rdev),
            },
            times: Times {
                access: time(stat.st_atime, stat.st_atime_nsec),
                modification: time(stat.st_mtime, stat.st_mtime_nsec),
                change: time(stat.st_ctime, stat.st_ctime_nsec),
            },
        },
        xattrs: Vec::new(),
        flags,
    }
}

fn time(sec: i64, nsec: impl TryInto<u32>) -> FileTime {
    FileTime {
        sec,
        nsec: nsec.try_into().unwrap_or(0),
    }
}
