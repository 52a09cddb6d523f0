//! The socket that has a path, for clients in other network namespaces than the server's.
//!
//! It lies in the folder `ubtrfs` of a folder that is the server's user's alone: `/run` for root, otherwise
//! $XDG_RUNTIME_DIR. Each folder is refused unless it is this user's and no other user may write there. The rest is
//! done from the open folder, so that no link leads elsewhere.
//!
//! The file is removed with the mount. A server that was killed leaves it behind: the next one removes all files at
//! which no process listens. A lock on the folder keeps it from finding one whose server is about to listen.

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
/// Permissions of other users to write there, which the folder must not have.
const OTHERS_MAY_WRITE: Mode = Mode::WGRP.union(Mode::WOTH);

/// A socket's file, which goes with this value.
#[derive(Debug)]
pub(super) struct SocketFile {
    folder: OwnedFd,
    name: String,
    path: PathBuf,
}

impl SocketFile {
    /// Listens from now on, at the first place where that can be done.
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

    /// Listens in the folder `ubtrfs` of `base`.
    pub(super) fn listen_below(base: &Path) -> io::Result<(UnixListener, SocketFile)> {
        let folder = open_folder(base)?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
        sweep(&folder)?;
        let name = format!("{}{SUFFIX}", random_uuid());
        let path = base.join(FOLDER).join(&name);
        // A client must be able to say it.
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

/// Lists folders for files that live as long as a process of this user.
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
    match found.st_uid == geteuid().as_raw() && !is_shared {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Returns a path of a file in an open folder, wherever the folder is by now.
fn within(folder: &OwnedFd, name: &OsStr) -> PathBuf {
    let folder = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    folder.join(name)
}

/// Removes files of servers that were killed.
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

/// Returns whether it is a socket at which no process listens.
fn is_left_over(folder: &OwnedFd, name: &CStr) -> bool {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    if !found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket) {
        return false;
    }
    // Does not wait for a server that has as many clients as can wait for it.
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
