//! A directory of the host as the source of copies.
//!
//! Invariants
//! - FROM-HOST-1: no link is followed below the path that the user named: every name is opened relative to an open
//!   directory.
//! - FROM-HOST-2: names of a directory are sorted by their bytes, so that copies of the same tree are created in the
//!   same order.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use ubtrfs_fs::{FileId, FileKind, FileTime, PreservedAttributes, Times, Volume};

use super::CopyError;
use super::attributes::{Attributes, Xattrs};
use super::source::{CopyStep, Data, Source, Walking};
use crate::transfer::device_of_host;
use crate::transfer::file_data::Damage;

#[cfg(test)]
mod tests;

/// A reference (`O_PATH`), which neither follows a link nor opens a device.
const REFERENCE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const LISTED: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// A file of the host, held by a reference.
#[derive(Debug)]
pub(crate) struct HostFile {
    fd: OwnedFd,
    stat: Stat,
}

impl HostFile {
    /// Opens a reference to the file that the user named. A link is followed if `follow` is set.
    ///
    /// # Errors
    ///
    /// [`CopyError::Host`].
    pub(crate) fn open(path: &Path, follow: bool) -> Result<HostFile, CopyError> {
        let flags = if follow {
            REFERENCE
        } else {
            REFERENCE | OFlags::NOFOLLOW
        };
        HostFile::new(rustix::fs::open(path, flags, Mode::empty()))
    }

    fn open_in(dir: impl AsFd, name: &[u8]) -> Result<HostFile, CopyError> {
        // FROM-HOST-1
        let flags = REFERENCE | OFlags::NOFOLLOW;
        HostFile::new(rustix::fs::openat(dir, name, flags, Mode::empty()))
    }

    fn new(fd: rustix::io::Result<OwnedFd>) -> Result<HostFile, CopyError> {
        let fd = fd.map_err(failed("open"))?;
        let stat = rustix::fs::fstat(&fd).map_err(failed("examine"))?;
        Ok(HostFile { fd, stat })
    }

    /// Returns the kind of the file.
    ///
    /// # Errors
    ///
    /// [`CopyError::UnknownKind`].
    pub(crate) fn kind(&self) -> Result<FileKind, CopyError> {
        FileKind::from_mode(self.stat.st_mode).ok_or(CopyError::UnknownKind)
    }

    /// Returns whether it is a directory.
    pub(crate) fn is_dir(&self) -> bool {
        FileKind::from_mode(self.stat.st_mode) == Some(FileKind::Directory)
    }

    fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// Returns a path that leads to exactly this file.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}

fn failed(call: &'static str) -> impl Fn(Errno) -> CopyError {
    move |errno| CopyError::Host {
        call,
        source: errno.into(),
    }
}

/// The host as the source of copies.
#[derive(Debug)]
pub(crate) struct FromHost {
    /// Device and inode numbers of the images being written, which cannot be copied into themselves.
    pub(crate) images: Vec<(u64, u64)>,
}

impl Source for FromHost {
    type File = HostFile;
    type Id = (u64, u64);

    fn attributes(&self, file: &HostFile, with_xattrs: bool) -> Result<Attributes, CopyError> {
        if self.images.contains(&file.identity()) {
            return Err(CopyError::Image);
        }
        let stat = &file.stat;
        let time = |sec, nsec| FileTime {
            sec,
            nsec: nsec as u32,
        };
        Ok(Attributes {
            kind: file.kind()?,
            file: PreservedAttributes {
                mode: stat.st_mode,
                uid: stat.st_uid,
                gid: stat.st_gid,
                device: device_of_host(stat.st_rdev),
                times: Times {
                    access: time(stat.st_atime, stat.st_atime_nsec),
                    modification: time(stat.st_mtime, stat.st_mtime_nsec),
                    change: time(stat.st_ctime, stat.st_ctime_nsec),
                },
            },
            nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            xattrs: if with_xattrs {
                xattrs(&file.path())?
            } else {
                Vec::new()
            },
        })
    }

    fn id(&self, file: &HostFile) -> (u64, u64) {
        file.identity()
    }

    fn link_target(&self, file: &HostFile) -> Result<Vec<u8>, CopyError> {
        let target = rustix::fs::readlinkat(&file.fd, "", Vec::new());
        Ok(target.map_err(failed("read the link"))?.into_bytes())
    }

    fn open<'a>(&'a self, file: &HostFile, size: u64) -> Result<Box<dyn Data + 'a>, CopyError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(file.path(), flags, Mode::empty());
        Ok(Box::new(HostData {
            file: File::from(fd.map_err(failed("open"))?),
            size,
            at: 0,
        }))
    }

    fn walk<'a>(
        &'a self,
        dir: &HostFile,
        path: &[u8],
    ) -> Result<Box<dyn Walking<File = HostFile> + 'a>, CopyError> {
        let mut walk = HostWalk {
            levels: Vec::new(),
            path: path.to_vec(),
        };
        walk.push(&dir.fd)?;
        Ok(Box::new(walk))
    }

    fn in_volume(&self, _: &HostFile) -> Option<(&Volume, FileId)> {
        None
    }
}

/// Reads the extended attributes of a file. The result is empty if the file system does not support them.
fn xattrs(path: &str) -> Result<Xattrs, CopyError> {
    let names = match sized(|buf| rustix::fs::listxattr(path, buf)) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        names => names.map_err(failed("list attributes"))?,
    };
    let mut xattrs = Vec::new();
    for name in names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        match sized(|buf| rustix::fs::getxattr(path, name, buf)) {
            Ok(value) => xattrs.push((name.to_vec(), value)),
            // It was removed, or only its file system understands it.
            Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(failed("read an attribute")(errno)),
        }
    }
    Ok(xattrs)
}

/// The first buffer for a value, which is enough for most.
const XATTR_BYTES: usize = 512;
const MAX_XATTR_BYTES: usize = 64 << 10;

fn sized(
    mut get: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; XATTR_BYTES];
    loop {
        match get(&mut value) {
            Err(Errno::RANGE) if value.len() < MAX_XATTR_BYTES => {
                value.resize(MAX_XATTR_BYTES, 0);
            }
            got => {
                value.truncate(got?);
                return Ok(value);
            }
        }
    }
}

struct HostData {
    file: File,
    /// The size at the start of the copy.
    size: u64,
    at: u64,
}

impl Data for HostData {
    fn next_range(&mut self) -> Result<Option<Range<u64>>, CopyError> {
        if self.at >= self.size {
            return Ok(None);
        }
        let seek = |to| rustix::fs::seek(&self.file, to);
        let start = match seek(SeekFrom::Data(self.at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => self.size,
            // The file system does not support the search.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => self.at,
            Err(errno) => return Err(failed("seek")(errno)),
        };
        if start >= self.size {
            self.at = self.size;
            return Ok(None);
        }
        let end = seek(SeekFrom::Hole(start)).unwrap_or(self.size);
        // A file that is being written may return any offset.
        self.at = end.clamp(start + 1, self.size);
        Ok(Some(start..self.at))
    }

    fn read(&mut self, at: u64, buf: &mut [u8], _: &mut Vec<Damage>) -> Result<bool, CopyError> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], at + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let call = "read";
                    return Err(CopyError::Host { call, source });
                }
            }
        }
        // A file that has become shorter reads as zeros.
        buf[done..].fill(0);
        Ok(true)
    }
}

struct HostWalk {
    levels: Vec<HostLevel>,
    path: Vec<u8>,
}

struct HostLevel {
    fd: OwnedFd,
    names: std::vec::IntoIter<Vec<u8>>,
    /// The last name returned.
    last: Vec<u8>,
    /// The length of this directory's path.
    path_len: usize,
}

impl HostWalk {
    /// Lists a directory and enters it. `dir` may be a reference (`O_PATH`).
    fn push(&mut self, dir: impl AsFd) -> Result<(), CopyError> {
        let fd = rustix::fs::openat(dir, ".", LISTED, Mode::empty());
        let fd = fd.map_err(failed("open the directory"))?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&fd).map_err(failed("list"))? {
            let entry = entry.map_err(failed("list"))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        // FROM-HOST-2
        names.sort_unstable();
        self.levels.push(HostLevel {
            fd,
            names: names.into_iter(),
            last: Vec::new(),
            path_len: self.path.len(),
        });
        Ok(())
    }
}

impl Walking for HostWalk {
    type File = HostFile;

    fn next(&mut self) -> Option<CopyStep<HostFile>> {
        let level = self.levels.last_mut()?;
        self.path.truncate(level.path_len);
        let Some(name) = level.names.next() else {
            self.levels.pop();
            return Some(CopyStep::Leave);
        };
        if !self.path.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&name);
        level.last.clone_from(&name);
        Some(match HostFile::open_in(&level.fd, &name) {
            Ok(file) => CopyStep::Entry { name, file },
            Err(error) => CopyStep::Failed(error),
        })
    }

    fn enter(&mut self) -> Result<(), CopyError> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        // FROM-HOST-1
        let flags = LISTED | OFlags::NOFOLLOW;
        let dir = rustix::fs::openat(&level.fd, &*level.last, flags, Mode::empty());
        self.push(dir.map_err(failed("open the directory"))?)
    }

    fn path(&self) -> &[u8] {
        &self.path
    }
}
