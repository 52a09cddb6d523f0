//! The socket with a path, for clients in other network namespaces than the server's.
//!
//! It is in the folder `ubtrfs` below a folder that only the server's user can write: `/run` for root,
//! otherwise $XDG_RUNTIME_DIR. Each folder must belong to this user and must not be writable by others. All
//! further operations are relative to the open folder, so links cannot redirect them.
//!
//! The file is removed with the mount. A killed server leaves it behind, and the next one removes all files
//! without a listening process. A lock on the folder protects the file of a server that is about to listen.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;
use ubtrfs_device::random_uuid;

const FOLDER: &str = "ubtrfs";
const SUFFIX: &str = ".control";
/// Write permissions of other users, which the folder must not have.
const OTHERS_MAY_WRITE: Mode = Mode::WGRP.union(Mode::WOTH);

/// The file of a socket, which is removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile {
    folder: OwnedFd,
    name: String,
    path: PathBuf,
}

impl SocketFile {
    /// Starts listening at the first suitable place.
    pub(super) fn listen() -> io::Result<(UnixListener, SocketFile)> {
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        for base in bases() {
            outcome = SocketFile::listen_below(&base);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Starts listening in the folder `ubtrfs` of `base`.
    pub(super) fn listen_below(base: &Path) -> io::Result<(UnixListener, SocketFile)> {
        let folder = open_folder(base)?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
        sweep(&folder)?;
        let name = format!("{}{SUFFIX}", random_uuid());
        let path = base.join(FOLDER).join(&name);
        // The path must fit into a client's address.
        SocketAddr::from_pathname(&path)?;
        let listener = UnixListener::bind(within(&folder, OsStr::new(&name)))?;
        let file = SocketFile { folder, name, path };
        rustix::fs::chmodat(
            &file.folder,
            &file.name,
            Mode::RUSR | Mode::WUSR,
            AtFlags::empty(),
        )?;
        rustix::fs::flock(&file.folder, FlockOperation::Unlock)?;
        Ok((listener, file))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        match rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => tracing::warn!(path = %self.path.display(), %error, "left behind"),
        }
    }
}

/// Returns folders for files with the lifetime of this user's processes.
fn bases() -> Vec<PathBuf> {
    let of_root = geteuid().is_root().then(|| PathBuf::from("/run"));
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_user = of_user.filter(|path| path.is_absolute());
    of_root.into_iter().chain(of_user).collect()
}

fn open_folder(base: &Path) -> io::Result<OwnedFd> {
    let is_dir = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base = rustix::fs::open(base, is_dir | OFlags::PATH, Mode::empty())?;
    must_be_ours(&base)?;
    match rustix::fs::mkdirat(&base, FOLDER, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let folder = rustix::fs::openat(
        &base,
        FOLDER,
        is_dir | OFlags::RDONLY | OFlags::NOFOLLOW,
        Mode::empty(),
    )?;
    must_be_ours(&folder)?;
    Ok(folder)
}

fn must_be_ours(folder: &OwnedFd) -> io::Result<()> {
    let found = rustix::fs::fstat(folder)?;
    let is_shared = Mode::from_raw_mode(found.st_mode).intersects(OTHERS_MAY_WRITE);
    if found.st_uid == geteuid().as_raw() && !is_shared {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// Returns the path of a file in an open folder, independent of the folder's location.
fn within(folder: &OwnedFd, name: &OsStr) -> PathBuf {
    let folder = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    folder.join(name)
}

/// Removes files of killed servers.
fn sweep(folder: &OwnedFd) -> io::Result<()> {
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().ends_with(SUFFIX.as_bytes()) && is_left_over(folder, name) {
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    }
    Ok(())
}

/// Returns whether it is a socket without a listening process.
fn is_left_over(folder: &OwnedFd, name: &CStr) -> bool {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    if !found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket) {
        return false;
    }
    // Nonblocking: does not wait for a server whose backlog is full.
    let connected = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .and_then(|socket| {
        let path = within(folder, OsStr::from_bytes(name.to_bytes()));
        rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?)
    });
    connected == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests;
