//! Creating files below a directory of the host, and never elsewhere.
//!
//! A name is one component, used below an open directory without following links (COPY-1). An existing file is replaced
//! as by cp(1): a file by a file, never a directory, nor by one.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dev, FileType, Mode, OFlags};
use rustix::io::Errno;
use ubtrfs_device::{DeviceError, check_overwrite, errno_of};

use crate::transfer::walk::is_component;

#[cfg(test)]
mod tests;

/// COPY-1: no link is followed.
const DIR_FLAGS: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// New files are private until the final mode is set.
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const PRIVATE_DIR: Mode = Mode::RWXU;

/// Device and inode numbers of the images being read, which nothing may replace.
pub(super) type Images = [(u64, u64)];

/// An error of creating a file in the destination directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DestError {
    #[error("refused: the name is not one that a directory can hold")]
    Name,
    #[error("refused: would replace a directory by something else")]
    ReplacesDirectory,
    #[error("refused: would replace the image that is read")]
    ReplacesImage,
    #[error("refused: would replace a volume: {0}")]
    ReplacesVolume(Box<DeviceError>),
    #[error("refused: would replace a file that is no directory by one")]
    ReplacedByDirectory,
    #[error("{call}: {source}")]
    Call {
        call: &'static str,
        source: io::Error,
    },
}

impl DestError {
    /// Returns the errno that Linux has for the same failure.
    pub(super) fn errno(&self) -> Errno {
        match self {
            DestError::Name => Errno::NAMETOOLONG,
            DestError::ReplacesDirectory => Errno::ISDIR,
            DestError::ReplacesImage => Errno::INVAL,
            DestError::ReplacesVolume(error) => error.errno(),
            DestError::ReplacedByDirectory => Errno::NOTDIR,
            DestError::Call { source, .. } => errno_of(source),
        }
    }
}

fn failed(call: &'static str) -> impl Fn(Errno) -> DestError {
    move |errno| DestError::Call {
        call,
        source: errno.into(),
    }
}

/// Checks that a name is one component of a path. The length limit is left to the system.
fn check(name: &[u8]) -> Result<&[u8], DestError> {
    // COPY-1
    is_component(name).then_some(name).ok_or(DestError::Name)
}

/// Opens a directory that the user named. Links in its path are followed, as they are the user's own.
///
/// # Errors
///
/// There is no directory at the path, or it may not be listed.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Creates or enters a directory. Returns whether it was created.
pub(super) fn directory(parent: impl AsFd, name: &[u8]) -> Result<(OwnedFd, bool), DestError> {
    let name = check(name)?;
    let made = match rustix::fs::mkdirat(&parent, name, PRIVATE_DIR) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(failed("mkdir")(errno)),
    };
    match rustix::fs::openat(&parent, name, DIR_FLAGS, Mode::empty()) {
        Ok(fd) => Ok((fd, made)),
        Err(Errno::NOTDIR | Errno::LOOP) => Err(DestError::ReplacedByDirectory),
        Err(errno) => Err(failed("open")(errno)),
    }
}

/// Creates an empty file.
pub(super) fn file(parent: impl AsFd, name: &[u8], images: &Images) -> Result<File, DestError> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDWR;
    making(&parent, name, images, "create", |name| {
        rustix::fs::openat(&parent, name, flags, PRIVATE_FILE)
    })
    .map(File::from)
}

pub(super) fn symlink(
    parent: impl AsFd,
    name: &[u8],
    target: &[u8],
    images: &Images,
) -> Result<(), DestError> {
    making(&parent, name, images, "symlink", |name| {
        rustix::fs::symlinkat(target, &parent, name)
    })
}

/// Creates a device, FIFO or socket.
pub(super) fn node(
    parent: impl AsFd,
    name: &[u8],
    kind: FileType,
    device: Dev,
    images: &Images,
) -> Result<(), DestError> {
    making(&parent, name, images, "mknod", |name| {
        rustix::fs::mknodat(&parent, name, kind, PRIVATE_FILE, device)
    })
}

/// Adds a name to a file that was created in `dirs` below `top`.
pub(super) fn link(
    top: impl AsFd,
    dirs: &[u8],
    first: &[u8],
    parent: impl AsFd,
    name: &[u8],
    images: &Images,
) -> Result<(), DestError> {
    let mut at = top
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| DestError::Call {
            call: "dup",
            source,
        })?;
    for dir in dirs
        .split(|&byte| byte == b'/')
        .filter(|dir| !dir.is_empty())
    {
        let flags = DIR_FLAGS | OFlags::PATH;
        at = rustix::fs::openat(&at, check(dir)?, flags, Mode::empty()).map_err(failed("open"))?;
    }
    let first = check(first)?;
    making(&parent, name, images, "link", |name| {
        rustix::fs::linkat(&at, first, &parent, name, AtFlags::empty())
    })
}

/// Opens a reference (`O_PATH`) to any created file, without following a link or opening a device.
pub(super) fn refer(parent: impl AsFd, name: &[u8]) -> Result<OwnedFd, DestError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, check(name)?, flags, Mode::empty()).map_err(failed("open"))
}

/// Creates a file, after removing an existing file if necessary.
fn making<T>(
    parent: impl AsFd,
    name: &[u8],
    images: &Images,
    call: &'static str,
    make: impl Fn(&[u8]) -> rustix::io::Result<T>,
) -> Result<T, DestError> {
    let name = check(name)?;
    match make(name) {
        Err(Errno::EXIST) => {}
        other => return other.map_err(failed(call)),
    }
    let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
    let stat = stat.map_err(failed("stat"))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Err(DestError::ReplacesDirectory);
    }
    if images.contains(&(stat.st_dev, stat.st_ino)) {
        return Err(DestError::ReplacesImage);
    }
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        check_replaced(&parent, name)?;
    }
    rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(failed("unlink"))?;
    make(name).map_err(failed(call))
}

/// Refuses to replace a file that is a volume, or that another program uses as one.
fn check_replaced(parent: impl AsFd, name: &[u8]) -> Result<(), DestError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // A file that may not be read cannot be a volume of this user.
    let Ok(file) = rustix::fs::openat(parent, name, flags, Mode::empty()) else {
        return Ok(());
    };
    let path = Path::new(OsStr::from_bytes(name));
    let checked = check_overwrite(&File::from(file), path);
    checked.map_err(|error| DestError::ReplacesVolume(Box::new(error)))
}
