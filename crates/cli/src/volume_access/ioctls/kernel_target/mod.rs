//! A mount of the kernel's btrfs as the target of a stream: by system calls and ioctls.
//!
//! Directories are opened below the new subvolume, by a call that follows no link and leaves no mount (openat2). The last
//! name of a path is never followed. A directory of another subvolume is refused: its device number is another.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Timespec,
    Timestamps, Uid, XattrFlags, chownat, fallocate, fstat, linkat, lremovexattr, lsetxattr,
    makedev, mkdirat, mknodat, openat, openat2, renameat_with, statat, symlinkat, unlinkat,
    utimensat,
};
use rustix::io::Errno;
use ubtrfs_engine::{FileTime, SubvolumeInfo};
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_stream::{
    CloneSource, Device, EncodedExtent, NewFile, PathCache, Sent, Target, TargetError, TreePath,
    find_sent,
};

use super::data::{clone_range, write_encoded};
use super::{Asked, Subvolumes};

/// Directories of one subvolume that are kept open.
const MAX_DIRS: usize = 64;
/// Clone sources that are kept open.
const MAX_SOURCES: usize = 16;

const OPEN_DIR: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// A pipe or a device would have one wait.
const OPEN_FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Receives into a directory of a mount.
#[derive(Debug)]
pub(crate) struct KernelTarget {
    dir: Asked,
    /// Where the volume is mounted.
    mountpoint: PathBuf,
    current: Option<OpenSubvolume>,
    /// Those that were there when one was first looked for, while one is received.
    subvolumes: Option<Subvolumes>,
    /// Clone sources that were found.
    sources: Vec<(Sent, OpenSubvolume)>,
}

/// A subvolume whose files are opened by path.
#[derive(Debug)]
struct OpenSubvolume {
    root: Asked,
    device: u64,
    dirs: PathCache<Arc<OwnedFd>>,
    /// Commands about one file follow each other.
    file: Option<(Vec<u8>, File)>,
    files_are_written: bool,
}

impl KernelTarget {
    pub(crate) fn new(dir: Asked, mountpoint: PathBuf) -> KernelTarget {
        KernelTarget {
            dir,
            mountpoint,
            current: None,
            subvolumes: None,
            sources: Vec::new(),
        }
    }

    fn current(&mut self) -> Result<&mut OpenSubvolume, TargetError> {
        Ok(self
            .current
            .as_mut()
            .ok_or(Errno::NOENT)
            .map_err(io::Error::from)?)
    }

    fn begin(&mut self, name: &[u8]) -> Result<(), TargetError> {
        let root = self.dir.below(name).map_err(io::Error::from)?;
        self.current = Some(OpenSubvolume::new(root, true)?);
        self.subvolumes = None;
        self.sources.clear();
        Ok(())
    }

    /// The subvolume that a stream names, and its root directory.
    fn find(&mut self, sent: &Sent) -> Result<Option<Asked>, TargetError> {
        if self.subvolumes.is_none() {
            let found = Subvolumes::ask(&self.dir, &self.mountpoint).map_err(io::Error::from)?;
            self.subvolumes = Some(found);
        }
        let Some(subvolumes) = &self.subvolumes else {
            return Ok(None);
        };
        let top = Asked::at(&self.mountpoint).map_err(io::Error::from)?;
        let top_id = match top.inode().map_err(io::Error::from)? {
            InodeNr::FIRST_FREE => Some(top.root_id().map_err(io::Error::from)?),
            // A part of a subvolume is mounted: paths from its top are not known.
            _ => None,
        };
        let path = |info: &SubvolumeInfo| path_below(subvolumes, info.id, top_id?);
        let found = find_sent(&subvolumes.infos, sent, |info| path(info).is_some())?;
        let Some(info) = subvolumes.infos.iter().find(|info| Some(info.id) == found) else {
            return Ok(None);
        };
        let path = path(info).ok_or(TargetError::Unreachable(info.id))?;
        let root = top.below(&path).map_err(io::Error::from)?;
        match root.root_id().map_err(io::Error::from)? == info.id {
            true => Ok(Some(root)),
            // Something else is mounted or was moved there.
            false => Err(TargetError::Unreachable(info.id)),
        }
    }

    fn source(&mut self, sent: &Sent) -> Result<&mut OpenSubvolume, TargetError> {
        let known = self.sources.iter().position(|(known, _)| known == sent);
        let at = match known {
            Some(at) => at,
            None => {
                let found = self.find(sent)?;
                let root = found.ok_or(TargetError::NoCloneSource(sent.uuid))?;
                if self.sources.len() == MAX_SOURCES {
                    self.sources.remove(0);
                }
                let source = OpenSubvolume::new(root, false)?;
                self.sources.push((*sent, source));
                self.sources.len() - 1
            }
        };
        Ok(&mut self.sources[at].1)
    }
}

/// The path of a subvolume from the root of another.
fn path_below(subvolumes: &Subvolumes, id: RootId, top: RootId) -> Option<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut at = id;
    while at != top {
        let info = subvolumes.infos.iter().find(|info| info.id == at)?;
        let place = info.place.as_ref()?;
        names.push(place.name.clone());
        let dir = subvolumes.dirs.get(&place.dir)?;
        if !dir.is_empty() {
            names.push(dir.clone());
        }
        at = place.dir.root;
        if names.len() > subvolumes.infos.len() * 2 {
            return None;
        }
    }
    names.reverse();
    Some(names.join(&b'/'))
}

impl OpenSubvolume {
    fn new(root: Asked, files_are_written: bool) -> Result<OpenSubvolume, TargetError> {
        let device = fstat(root.as_fd()).map_err(io::Error::from)?.st_dev;
        Ok(OpenSubvolume {
            root,
            device,
            dirs: PathCache::new(MAX_DIRS),
            file: None,
            files_are_written,
        })
    }

    fn dir(&mut self, path: TreePath<'_>) -> Result<Arc<OwnedFd>, TargetError> {
        if let Some(dir) = self.dirs.get(path.as_bytes()) {
            return Ok(dir);
        }
        let below = match path.as_bytes() {
            b"" => b".",
            path => path,
        };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = openat2(self.root.as_fd(), below, OPEN_DIR, Mode::empty(), within);
        let dir = Arc::new(dir.map_err(io::Error::from)?);
        self.must_be_here(dir.as_fd())?;
        self.dirs.add(path.as_bytes(), Arc::clone(&dir));
        Ok(dir)
    }

    fn must_be_here(&self, file: BorrowedFd<'_>) -> Result<(), TargetError> {
        match fstat(file).map_err(io::Error::from)?.st_dev == self.device {
            true => Ok(()),
            false => Err(TargetError::OtherSubvolume),
        }
    }

    /// The directory and the name in it.
    fn place<'p>(&mut self, path: TreePath<'p>) -> Result<(Arc<OwnedFd>, &'p [u8]), TargetError> {
        match path.split() {
            Some((dir, name)) => Ok((self.dir(dir)?, name)),
            None => Ok((self.dir(path)?, b".")),
        }
    }

    /// Refuses the name of a nested subvolume, which is none of the stream's.
    fn must_be_no_subvolume(&mut self, path: TreePath<'_>) -> Result<(), TargetError> {
        let (dir, name) = self.place(path)?;
        let found = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)?;
        let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        match is_dir && found.st_ino == InodeNr::FIRST_FREE.0 {
            true => Err(TargetError::OtherSubvolume),
            false => Ok(()),
        }
    }

    fn file(&mut self, path: TreePath<'_>) -> Result<&File, TargetError> {
        let bytes = path.as_bytes();
        if self.file.as_ref().is_none_or(|(known, _)| known != bytes) {
            self.file = None;
            let (dir, name) = self.place(path)?;
            let access = match self.files_are_written {
                true => OFlags::RDWR,
                false => OFlags::RDONLY,
            };
            let file = openat(&dir, name, OPEN_FILE | access, Mode::empty());
            let file = file.map_err(io::Error::from)?;
            self.must_be_here(file.as_fd())?;
            let kind = fstat(&file).map_err(io::Error::from)?.st_mode;
            if FileType::from_raw_mode(kind) != FileType::RegularFile {
                return Err(io::Error::from(Errno::INVAL).into());
            }
            self.file = Some((bytes.to_vec(), file.into()));
        }
        let (_, file) = self
            .file
            .as_ref()
            .ok_or(Errno::NOENT)
            .map_err(io::Error::from)?;
        Ok(file)
    }

    fn forget(&mut self, path: TreePath<'_>) {
        self.dirs.forget(path.as_bytes());
        // It may be below a directory that was moved.
        self.file = None;
    }
}

/// The way to a name in an open directory for calls that take a path alone. They must not follow its last name.
fn proc_path(dir: &OwnedFd, name: &[u8]) -> PathBuf {
    let dir = format!("/proc/self/fd/{}", dir.as_raw_fd());
    Path::new(&dir).join(OsStr::from_bytes(name))
}

fn done<T>(result: Result<T, Errno>) -> Result<(), TargetError> {
    result.map_err(io::Error::from)?;
    Ok(())
}

fn timespec(time: FileTime) -> Timespec {
    Timespec {
        tv_sec: time.sec,
        tv_nsec: i64::from(time.nsec),
    }
}

impl Target for KernelTarget {
    fn create_subvolume(&mut self, name: &[u8]) -> Result<(), TargetError> {
        done(self.dir.create_subvolume(name))?;
        self.begin(name)
    }

    fn create_snapshot(&mut self, name: &[u8], parent: &Sent) -> Result<(), TargetError> {
        self.subvolumes = None;
        let source = self
            .find(parent)?
            .ok_or(TargetError::NoParent(parent.uuid))?;
        done(self.dir.snapshot(&source, name, false))?;
        self.begin(name)
    }

    fn finish(&mut self, sent: &Sent) -> Result<(), TargetError> {
        let current = self.current()?;
        current.file = None;
        done(current.root.set_received(&sent.uuid, sent.ctransid))?;
        done(current.root.set_read_only(true))?;
        self.current = None;
        Ok(())
    }

    fn create(&mut self, path: TreePath<'_>, new: &NewFile<'_>) -> Result<(), TargetError> {
        let current = self.current()?;
        let (dir, name) = current.place(path)?;
        let node = |kind, device: Device| {
            let number = makedev(device.major, device.minor);
            mknodat(&dir, name, kind, Mode::RUSR | Mode::WUSR, number)
        };
        let none = Device { major: 0, minor: 0 };
        match *new {
            NewFile::File => {
                let flags = OPEN_FILE | OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
                let file = openat(&dir, name, flags, Mode::RUSR | Mode::WUSR);
                let file = file.map_err(io::Error::from)?;
                current.file = Some((path.as_bytes().to_vec(), file.into()));
                Ok(())
            }
            NewFile::Directory => done(mkdirat(&dir, name, Mode::RWXU)),
            NewFile::Fifo => done(node(FileType::Fifo, none)),
            NewFile::Socket => done(node(FileType::Socket, none)),
            NewFile::CharDevice(device) => done(node(FileType::CharacterDevice, device)),
            NewFile::BlockDevice(device) => done(node(FileType::BlockDevice, device)),
            NewFile::Symlink(target) => done(symlinkat(target, &dir, name)),
        }
    }

    fn rename(&mut self, path: TreePath<'_>, to: TreePath<'_>) -> Result<(), TargetError> {
        let current = self.current()?;
        current.must_be_no_subvolume(path)?;
        let ((dir, name), (to_dir, to_name)) = (current.place(path)?, current.place(to)?);
        done(renameat_with(
            &dir,
            name,
            &to_dir,
            to_name,
            RenameFlags::empty(),
        ))?;
        current.dirs.forget(path.as_bytes());
        match current.file.take() {
            Some((known, file)) if known == path.as_bytes() => {
                current.forget(to);
                current.file = Some((to.as_bytes().to_vec(), file));
            }
            _ => current.forget(to),
        }
        Ok(())
    }

    fn link(&mut self, path: TreePath<'_>, existing: TreePath<'_>) -> Result<(), TargetError> {
        let current = self.current()?;
        let ((dir, name), (from, from_name)) = (current.place(path)?, current.place(existing)?);
        done(linkat(&from, from_name, &dir, name, AtFlags::empty()))
    }

    fn unlink(&mut self, path: TreePath<'_>) -> Result<(), TargetError> {
        let current = self.current()?;
        let (dir, name) = current.place(path)?;
        done(unlinkat(&dir, name, AtFlags::empty()))?;
        current.forget(path);
        Ok(())
    }

    fn rmdir(&mut self, path: TreePath<'_>) -> Result<(), TargetError> {
        let current = self.current()?;
        current.must_be_no_subvolume(path)?;
        let (dir, name) = current.place(path)?;
        done(unlinkat(&dir, name, AtFlags::REMOVEDIR))?;
        current.forget(path);
        Ok(())
    }

    fn set_xattr(
        &mut self,
        path: TreePath<'_>,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), TargetError> {
        let (dir, last) = self.current()?.place(path)?;
        done(lsetxattr(
            proc_path(&dir, last),
            name,
            value,
            XattrFlags::empty(),
        ))
    }

    fn remove_xattr(&mut self, path: TreePath<'_>, name: &[u8]) -> Result<(), TargetError> {
        let (dir, last) = self.current()?.place(path)?;
        done(lremovexattr(proc_path(&dir, last), name))
    }

    fn chmod(&mut self, path: TreePath<'_>, mode: u32) -> Result<(), TargetError> {
        let current = self.current()?;
        let (dir, name) = current.place(path)?;
        // The call that takes a name would follow a link: this one has what is open, which may be a link itself.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&dir, name, flags, Mode::empty()).map_err(io::Error::from)?;
        let found = fstat(&file).map_err(io::Error::from)?;
        current.must_be_here(file.as_fd())?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            return Err(io::Error::from(Errno::OPNOTSUPP).into());
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        done(rustix::fs::chmod(path, Mode::from_raw_mode(mode)))
    }

    fn chown(&mut self, path: TreePath<'_>, uid: u32, gid: u32) -> Result<(), TargetError> {
        let (dir, name) = self.current()?.place(path)?;
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        done(chownat(&dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn set_times(
        &mut self,
        path: TreePath<'_>,
        atime: FileTime,
        mtime: FileTime,
    ) -> Result<(), TargetError> {
        let (dir, name) = self.current()?.place(path)?;
        let times = Timestamps {
            last_access: timespec(atime),
            last_modification: timespec(mtime),
        };
        done(utimensat(&dir, name, &times, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn write(&mut self, path: TreePath<'_>, offset: u64, data: &[u8]) -> Result<(), TargetError> {
        Ok(self.current()?.file(path)?.write_all_at(data, offset)?)
    }

    fn write_encoded(
        &mut self,
        path: TreePath<'_>,
        offset: u64,
        extent: &EncodedExtent<'_>,
    ) -> Result<bool, TargetError> {
        if extent.compression == Compression::None {
            return Ok(false);
        }
        let file = self.current()?.file(path)?;
        match write_encoded(file, offset, extent) {
            Ok(()) => Ok(true),
            // The kernel is too old, the file has no checksums, or there is no room in one piece.
            Err(Errno::NOSPC | Errno::NOTTY | Errno::INVAL) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn clone_range(
        &mut self,
        path: TreePath<'_>,
        offset: u64,
        len: u64,
        from: &CloneSource<'_>,
    ) -> Result<(), TargetError> {
        // To the ioctl a length of 0 means all of the source.
        if len == 0 {
            return Ok(());
        }
        let source = match &from.subvolume {
            Some(sent) => self.source(sent)?.file(from.path)?.try_clone()?,
            None => self.current()?.file(from.path)?.try_clone()?,
        };
        let file = self.current()?.file(path)?;
        done(clone_range(&source, from.offset, len, file, offset))
    }

    fn truncate(&mut self, path: TreePath<'_>, size: u64) -> Result<(), TargetError> {
        Ok(self.current()?.file(path)?.set_len(size)?)
    }

    fn fallocate(
        &mut self,
        path: TreePath<'_>,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Result<(), TargetError> {
        let flags = FallocateFlags::from_bits(mode).ok_or(TargetError::FallocateMode(mode))?;
        let file = self.current()?.file(path)?;
        done(fallocate(file, flags, offset, len))
    }
}
