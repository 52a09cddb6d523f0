//! Walks a mounted tree through the system's file interface.
//!
//! It works on file handles, so that paths may be longer than PATH_MAX and symlinks are never followed by accident.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, StatxFlags, StatxTimestamp, openat, statx,
};
use rustix::io::Errno;

use super::{Kind, Listed, Source, Stat, Time, Xattr};
use crate::Result;
use crate::error::At;

#[derive(Debug)]
pub struct Vfs {
    root: PathBuf,
    /// The last file that was read, by its inode's handle.
    open: Option<(i32, File)>,
}

/// A handle of an inode of any kind.
#[derive(Debug)]
pub struct VfsNode(OwnedFd);

impl VfsNode {
    /// Returns a path to the inode itself, even for a symlink.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    fn reopen(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let open = |flags| openat(CWD, self.path(), flags | OFlags::CLOEXEC, Mode::empty());
        match open(flags | OFlags::NOATIME) {
            // Only the owner and root may use O_NOATIME.
            Err(Errno::PERM) => open(flags),
            opened => opened,
        }
    }
}

impl Vfs {
    pub fn new(root: &Path) -> Result<Vfs> {
        let root = fs::canonicalize(root).at("canonicalize", root)?;
        Ok(Vfs { root, open: None })
    }

    fn file(&mut self, node: &VfsNode) -> io::Result<&File> {
        let handle = node.0.as_raw_fd();
        if self.open.as_ref().is_none_or(|(of, _)| *of != handle) {
            let file = File::from(node.reopen(OFlags::RDONLY)?);
            self.open = Some((handle, file));
        }
        match &self.open {
            Some((_, file)) => Ok(file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn open_path(
    dir: impl std::os::fd::AsFd,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<VfsNode> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty()).map(VfsNode)
}

impl Source for Vfs {
    type Node = VfsNode;
    type Error = io::Error;

    fn root(&mut self) -> io::Result<VfsNode> {
        Ok(open_path(CWD, &self.root)?)
    }

    fn list(&mut self, dir: &VfsNode) -> io::Result<Vec<Listed>> {
        let handle = dir.reopen(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(handle)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push((name.to_vec(), kind_of(entry.file_type())));
            }
        }
        Ok(names)
    }

    fn lookup(&mut self, dir: &VfsNode, name: &[u8]) -> io::Result<Option<VfsNode>> {
        // The number of a closed handle may be reused.
        self.open = None;
        match open_path(&dir.0, name) {
            Ok(node) => Ok(Some(node)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn stat(&mut self, node: &VfsNode) -> io::Result<Stat> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = statx(&node.0, "", AtFlags::EMPTY_PATH, wanted)?;
        let has_btime = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let mode = u32::from(stat.stx_mode);
        let kind = kind_of(FileType::from_raw_mode(mode)).ok_or(io::ErrorKind::Unsupported)?;
        Ok(Stat {
            kind,
            mode: mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            nlink: u64::from(stat.stx_nlink),
            rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
            size: stat.stx_size,
            ino: stat.stx_ino,
            atime: time(stat.stx_atime),
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
            btime: has_btime.then(|| time(stat.stx_btime)),
        })
    }

    fn readlink(&mut self, node: &VfsNode) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&node.0, "", Vec::new())?.into_bytes())
    }

    fn xattrs(&mut self, node: &VfsNode) -> io::Result<Vec<Xattr>> {
        // The path is a magic link, so following it once ends at the inode.
        let path = node.path();
        let mut pairs = Vec::new();
        for name in xattr::list_deref(&path)? {
            if let Some(value) = xattr::get_deref(&path, &name)? {
                pairs.push((name.into_vec(), value));
            }
        }
        Ok(pairs)
    }

    fn read(&mut self, node: &VfsNode, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        // FileExt takes a u64 and fails above i64::MAX, which exceeds any file.
        let file = self.file(node)?;
        let mut done = 0;
        while done < buf.len() {
            match file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn next_data(&mut self, node: &VfsNode, offset: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(self.file(node)?, SeekFrom::Data(offset)) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(error) => Err(error.into()),
        }
    }
}

pub(crate) fn kind_of(kind: FileType) -> Option<Kind> {
    Some(match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return None,
    })
}

fn time(time: StatxTimestamp) -> Time {
    Time {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    }
}
