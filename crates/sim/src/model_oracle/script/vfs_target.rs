//! A mount as a target, accessed by system calls.
//!
//! Paths are resolved name by name, so that they may exceed PATH_MAX and no symlink is followed. `Mounted` has the
//! operations that depend on the kind of mount: remounting and subvolumes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags, Timespec,
    Timestamps, XattrFlags, chmodat, copy_file_range, fallocate, fchmod, ioctl_getflags,
    ioctl_setflags, linkat, makedev, mkdirat, mknodat, openat, renameat_with, setxattr, statat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::{
    Allocate, At, Attr, Data, Flags, FsPath, Node, Op, OpError, Outcome, Received, RenameHow, Slot,
    Target, XattrHow, ioctl,
};
use crate::Result;
use crate::manifest::{Fault, Manifest, Time, kind_of};

type OpResult<T = Outcome> = std::result::Result<T, OpError>;

/// A mounted volume.
pub trait Mounted {
    /// Returns the path of its top-level subvolume.
    fn root(&self) -> &Path;

    fn sync(&mut self) -> Result<()>;

    /// Unmounts and mounts again. No file on it is open.
    fn remount(&mut self) -> Result<()>;

    /// Sets the inheritable properties of a directory again, if the file system may have missed them.
    fn reload_properties(&self, _dir: &OwnedFd) {}

    /// Executes an operation on a subvolume. Paths are short, regardless of the script's paths.
    fn subvolume(&mut self, verb: SubvolumeVerb<'_>) -> OpResult<()>;

    /// Returns whether the operation may be refused, like `Target::may_refuse`.
    fn may_refuse(&self, _op: &Op, _error: OpError) -> bool {
        false
    }
}

/// An operation on subvolumes. A new name does not exist; an existing one is a subvolume.
#[derive(Clone, Copy, Debug)]
pub enum SubvolumeVerb<'a> {
    Create {
        path: &'a Path,
    },
    Snapshot {
        from: &'a Path,
        to: &'a Path,
        read_only: bool,
    },
    Delete {
        path: &'a Path,
    },
    SetReadOnly {
        path: &'a Path,
        read_only: bool,
    },
}

/// Inode number of a subvolume's root.
const ROOT_INO: u64 = 256;
const NAME_BYTES: usize = 255;

#[derive(Debug)]
pub struct VfsTarget<M> {
    // Dropped first, because a mount with open files is busy.
    open: BTreeMap<Slot, File>,
    mounted: M,
}

/// A directory, and a name in it.
struct Place<'p> {
    dir: OwnedFd,
    name: &'p OsStr,
}

/// A file opened for one operation, or the file of a slot.
enum Opened<'t> {
    Here(File),
    Slot(&'t File),
}

impl std::ops::Deref for Opened<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Opened::Here(file) => file,
            Opened::Slot(file) => file,
        }
    }
}

impl<M: Mounted> VfsTarget<M> {
    pub fn new(mounted: M) -> VfsTarget<M> {
        VfsTarget {
            mounted,
            open: BTreeMap::new(),
        }
    }

    /// Closes all files.
    pub fn into_mounted(self) -> M {
        self.mounted
    }

    /// Opens a handle of the inode itself, even for a symlink.
    fn handle(&self, path: &FsPath) -> OpResult<OwnedFd> {
        let dir_flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let mut at = openat(CWD, self.mounted.root(), dir_flags, Mode::empty())?;
        let mut names = path.names().peekable();
        while let Some(name) = names.next() {
            let flags = match names.peek() {
                Some(_) => dir_flags,
                None => dir_flags - OFlags::DIRECTORY,
            };
            at = openat(at, name, flags, Mode::empty())?;
        }
        Ok(at)
    }

    fn place<'p>(&self, path: &'p FsPath) -> OpResult<Place<'p>> {
        let (_, name) = path.split().ok_or(OpError::InvalidArgument)?;
        let (dir, _) = path.split().unwrap_or_default();
        let dir = self.handle(&dir)?;
        // A directory without search permission fails in the same way as in the middle of a path.
        match FileType::from_raw_mode(rustix::fs::fstat(&dir)?.st_mode) {
            FileType::Directory => Ok(Place {
                dir,
                name: OsStr::from_bytes(name),
            }),
            _ => Err(OpError::NotADirectory),
        }
    }

    /// Opens the directory for a new inode, which inherits properties from it.
    fn new_place<'p>(&self, path: &'p FsPath) -> OpResult<Place<'p>> {
        let place = self.place(path)?;
        self.mounted.reload_properties(&place.dir);
        Ok(place)
    }

    fn open_at(&self, path: &FsPath, flags: OFlags) -> OpResult<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        if path.is_root() {
            let opened = openat(CWD, self.mounted.root(), flags, Mode::empty())?;
            return Ok(File::from(opened));
        }
        let Place { dir, name } = self.place(path)?;
        Ok(File::from(openat(dir, name, flags, Mode::empty())?))
    }

    fn opened(&self, at: &At, flags: OFlags) -> OpResult<Opened<'_>> {
        match at {
            At::Path(path) => self.open_at(path, flags).map(Opened::Here),
            At::Slot(slot) => {
                let file = self.open.get(slot).ok_or(OpError::InvalidArgument)?;
                Ok(Opened::Slot(file))
            }
        }
    }

    fn made(&self, path: &FsPath, mode: u32) -> OpResult {
        // Ignores the process's umask.
        let handle = self.handle(path)?;
        chmodat(
            CWD,
            proc_path(&handle),
            Mode::from_raw_mode(mode),
            AtFlags::empty(),
        )?;
        Ok(Outcome::Done)
    }

    fn create(&self, path: &FsPath, mode: u32) -> OpResult {
        let Place { dir, name } = self.new_place(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
        self.made(path, mode)
    }

    fn mkdir(&self, path: &FsPath, mode: u32) -> OpResult {
        let Place { dir, name } = self.new_place(path)?;
        mkdirat(dir, name, Mode::from_raw_mode(0o700))?;
        self.made(path, mode)
    }

    fn mknod(&self, path: &FsPath, node: Node, mode: u32) -> OpResult {
        let Place { dir, name } = self.new_place(path)?;
        let kind = match node {
            Node::Fifo => FileType::Fifo,
            Node::Socket => FileType::Socket,
            Node::CharDevice(..) => FileType::CharacterDevice,
            Node::BlockDevice(..) => FileType::BlockDevice,
        };
        let (major, minor) = node.rdev();
        let mode_made = Mode::from_raw_mode(0o600);
        mknodat(dir, name, kind, mode_made, makedev(major, minor))?;
        self.made(path, mode)
    }

    fn rename(&self, from: &FsPath, to: &FsPath, how: RenameHow) -> OpResult {
        let (old, new) = (self.new_place(from)?, self.place(to)?);
        let flags = match how {
            RenameHow::Replace => RenameFlags::empty(),
            RenameHow::NoReplace => RenameFlags::NOREPLACE,
            RenameHow::Exchange => RenameFlags::EXCHANGE,
            RenameHow::Whiteout => RenameFlags::WHITEOUT,
        };
        renameat_with(old.dir, old.name, new.dir, new.name, flags)?;
        Ok(Outcome::Done)
    }

    fn write(&self, file: &File, offset: u64, data: &Data) -> OpResult {
        let bytes = data.bytes();
        let mut done = 0;
        while done < bytes.len() {
            match file.write_at(&bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(written) => done += written,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(if done == bytes.len() {
            Outcome::Done
        } else {
            Outcome::Written(done)
        })
    }

    fn append(&self, at: &At, data: &Data) -> OpResult {
        let file = self.opened(at, OFlags::WRONLY | OFlags::APPEND)?;
        let end = file.metadata()?.len();
        // With O_APPEND the offset is ignored; a slot's file is opened without it.
        self.write(&file, end, data)
    }

    fn fallocate(&self, at: &At, how: Allocate, offset: u64, len_bytes: u64) -> OpResult {
        let flags = match how {
            Allocate::Extend => FallocateFlags::empty(),
            Allocate::KeepSize => FallocateFlags::KEEP_SIZE,
            Allocate::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocate::Zero => FallocateFlags::ZERO_RANGE,
            Allocate::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        let file = self.opened(at, OFlags::WRONLY)?;
        fallocate(&*file, flags, offset, len_bytes)?;
        Ok(Outcome::Done)
    }

    fn tmpfile(&mut self, dir: &FsPath, mode: u32, slot: Slot) -> OpResult {
        self.mounted.reload_properties(&self.handle(dir)?);
        let file = self.open_at(dir, OFlags::TMPFILE | OFlags::RDWR)?;
        fchmod(&file, Mode::from_raw_mode(mode))?;
        self.open.insert(slot, file);
        Ok(Outcome::Done)
    }

    fn link_open(&self, slot: Slot, to: &FsPath) -> OpResult {
        let file = self.open.get(&slot).ok_or(OpError::InvalidArgument)?;
        let new = self.place(to)?;
        linkat(file, "", new.dir, new.name, AtFlags::EMPTY_PATH)?;
        Ok(Outcome::Done)
    }

    fn copy_range(
        &self,
        (from, from_offset): (&At, u64),
        len_bytes: u64,
        (to, to_offset): (&At, u64),
    ) -> OpResult {
        let source = self.opened(from, OFlags::RDONLY)?;
        let target = self.opened(to, OFlags::WRONLY)?;
        // A file that is copied into itself grows in the process.
        let left = source.metadata()?.len().saturating_sub(from_offset);
        let len = if source.metadata()?.is_file() {
            len_bytes.min(left)
        } else {
            len_bytes
        };
        let mut done = 0;
        loop {
            let (mut at, mut to) = (from_offset + done, to_offset + done);
            let part = (len - done) as usize;
            let copied = copy_file_range(&*source, Some(&mut at), &*target, Some(&mut to), part)?;
            done += copied as u64;
            if copied == 0 || done == len {
                return Ok(Outcome::Copied(done));
            }
        }
    }

    fn dedupe(
        &self,
        (from, from_offset): (&At, u64),
        len_bytes: u64,
        (to, to_offset): (&At, u64),
    ) -> OpResult {
        let source = self.opened(from, OFlags::RDONLY)?;
        let target = self.opened(to, OFlags::WRONLY)?;
        let ends = ((&*source, from_offset), (&*target, to_offset));
        Ok(Outcome::Shared(ioctl::dedupe(ends.0, len_bytes, ends.1)?))
    }

    fn clone_range(
        &self,
        (from, from_offset): (&At, u64),
        len_bytes: u64,
        (to, to_offset): (&At, u64),
    ) -> OpResult {
        let source = self.opened(from, OFlags::RDONLY)?;
        let target = self.opened(to, OFlags::WRONLY)?;
        let len = NonZeroU64::new(len_bytes).ok_or(OpError::InvalidArgument)?;
        reflink_copy::ReflinkBlockBuilder::new(&source, &target, len)
            .from_offset(from_offset)
            .to_offset(to_offset)
            .reflink_block()?;
        Ok(Outcome::Done)
    }

    fn set_xattr(&self, path: &FsPath, name: &[u8], value: &Data, how: XattrHow) -> OpResult {
        let flags = match how {
            XattrHow::Any => XattrFlags::empty(),
            XattrHow::Create => XattrFlags::CREATE,
            XattrHow::Replace => XattrFlags::REPLACE,
        };
        let handle = self.handle(path)?;
        setxattr(proc_path(&handle), name, &value.bytes(), flags)?;
        Ok(Outcome::Done)
    }

    fn remove_xattr(&self, path: &FsPath, name: &[u8]) -> OpResult {
        let handle = self.handle(path)?;
        rustix::fs::removexattr(proc_path(&handle), name)?;
        Ok(Outcome::Done)
    }

    fn get_xattr(&self, path: &FsPath, name: &[u8]) -> OpResult {
        let handle = self.handle(path)?;
        let value = xattr::get_deref(proc_path(&handle), OsStr::from_bytes(name))?;
        value.map(Outcome::Bytes).ok_or(OpError::NoData)
    }

    fn set_times(&self, path: &FsPath, atime: Time, mtime: Time) -> OpResult {
        let stamp = |time: Time| Timespec {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds.into(),
        };
        let times = Timestamps {
            last_access: stamp(atime),
            last_modification: stamp(mtime),
        };
        let handle = self.handle(path)?;
        utimensat(CWD, proc_path(&handle), &times, AtFlags::empty())?;
        Ok(Outcome::Done)
    }

    fn set_flags(&self, path: &FsPath, flags: Flags) -> OpResult {
        let file = self.open_at(path, OFlags::RDONLY)?;
        let mut raw = IFlags::empty();
        for (flag, is_set) in flag_bits(flags) {
            raw.set(flag, is_set);
        }
        ioctl_setflags(&file, raw)?;
        Ok(Outcome::Done)
    }

    fn get_flags(&self, path: &FsPath) -> OpResult {
        let raw = ioctl_getflags(self.open_at(path, OFlags::RDONLY)?)?;
        Ok(Outcome::Flags(Flags {
            immutable: raw.contains(IFlags::IMMUTABLE),
            append: raw.contains(IFlags::APPEND),
            nocow: raw.contains(IFlags::NOCOW),
            nodump: raw.contains(IFlags::NODUMP),
            noatime: raw.contains(IFlags::NOATIME),
            compress: raw.contains(IFlags::COMPRESSED),
            nocompress: raw.contains(NO_COMPRESSION),
            sync: raw.contains(IFlags::SYNC),
            dirsync: raw.contains(IFlags::DIRSYNC),
        }))
    }

    fn read(&self, at: &At, offset: u64, len_bytes: usize) -> OpResult {
        let file = self.opened(at, OFlags::RDONLY)?;
        let mut bytes = vec![0; len_bytes];
        let mut done = 0;
        while done < len_bytes {
            match file.read_at(&mut bytes[done..], offset + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        bytes.truncate(done);
        Ok(Outcome::Bytes(bytes))
    }

    fn list(&self, path: &FsPath) -> OpResult {
        let dir = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind = kind_of(entry.file_type()).ok_or(OpError::Io)?;
                names.push((name.to_vec(), kind));
            }
        }
        Ok(Outcome::Names(names))
    }

    fn stat(&self, path: &FsPath) -> OpResult {
        let stat = rustix::fs::fstat(self.handle(path)?)?;
        let rdev = (
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev),
        );
        Ok(Outcome::Attr(Attr {
            kind: kind_of(FileType::from_raw_mode(stat.st_mode)).ok_or(OpError::Io)?,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: stat.st_nlink,
            rdev,
            size: stat.st_size as u64,
        }))
    }

    fn fsync(&self, at: &At) -> OpResult {
        self.opened(at, OFlags::RDONLY)?.sync_all()?;
        Ok(Outcome::Done)
    }

    /// Finds the place for a name that is created by a command, which would otherwise create it inside of an existing
    /// directory.
    fn free_place<'p>(&self, path: &'p FsPath) -> OpResult<Place<'p>> {
        let place = self.place(path)?;
        if place.name.len() > NAME_BYTES {
            return Err(OpError::NameTooLong);
        }
        match statat(&place.dir, place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(place),
            Err(error) => Err(error.into()),
            Ok(_) => Err(OpError::Exists),
        }
    }

    /// Opens the root of a subvolume. Commands would accept other inodes, or return other errors.
    fn subvolume_at(&self, path: &FsPath) -> OpResult<OwnedFd> {
        let handle = self.handle(path)?;
        let stat = rustix::fs::fstat(&handle)?;
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_dir && stat.st_ino == ROOT_INO {
            Ok(handle)
        } else {
            Err(OpError::InvalidArgument)
        }
    }

    fn create_subvolume(&mut self, path: &FsPath) -> OpResult {
        let place = self.free_place(path)?;
        self.mounted.reload_properties(&place.dir);
        self.mounted.subvolume(SubvolumeVerb::Create {
            path: &place.outside_path(),
        })?;
        self.made(path, 0o755)
    }

    fn snapshot(&mut self, from: &FsPath, to: &FsPath, read_only: bool) -> OpResult {
        let source = self.subvolume_at(from)?;
        let place = self.free_place(to)?;
        self.mounted.subvolume(SubvolumeVerb::Snapshot {
            from: &outside_path(&source),
            to: &place.outside_path(),
            read_only,
        })?;
        Ok(Outcome::Done)
    }

    fn delete_subvolume(&mut self, path: &FsPath) -> OpResult {
        self.subvolume_at(path)?;
        let place = self.place(path)?;
        self.mounted.subvolume(SubvolumeVerb::Delete {
            path: &place.outside_path(),
        })?;
        Ok(Outcome::Done)
    }

    fn set_read_only(&mut self, path: &FsPath, read_only: bool) -> OpResult {
        let handle = self.subvolume_at(path)?;
        self.mounted.subvolume(SubvolumeVerb::SetReadOnly {
            path: &outside_path(&handle),
            read_only,
        })?;
        Ok(Outcome::Done)
    }

    fn opened_subvolume(&self, path: &FsPath) -> OpResult<File> {
        self.subvolume_at(path)?;
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn unlink(&self, path: &FsPath, flags: AtFlags) -> OpResult {
        let Place { dir, name } = self.place(path)?;
        unlinkat(dir, name, flags)?;
        Ok(Outcome::Done)
    }
}

impl Place<'_> {
    fn outside_path(&self) -> PathBuf {
        outside_path(&self.dir).join(self.name)
    }
}

/// Returns a path to the inode of a handle, even for a symlink, because the kernel does not follow the result.
pub(super) fn proc_path(handle: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", handle.as_raw_fd()).into()
}

/// Returns the path of an open file for another process.
fn outside_path(handle: &OwnedFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), handle.as_raw_fd()).into()
}

/// FS_NOCOMP_FL
const NO_COMPRESSION: IFlags = IFlags::from_bits_retain(0x400);

fn flag_bits(flags: Flags) -> [(IFlags, bool); 9] {
    [
        (IFlags::IMMUTABLE, flags.immutable),
        (IFlags::APPEND, flags.append),
        (IFlags::NOCOW, flags.nocow),
        (IFlags::NODUMP, flags.nodump),
        (IFlags::NOATIME, flags.noatime),
        (IFlags::COMPRESSED, flags.compress),
        (NO_COMPRESSION, flags.nocompress),
        (IFlags::SYNC, flags.sync),
        (IFlags::DIRSYNC, flags.dirsync),
    ]
}

impl<M: Mounted> Target for VfsTarget<M> {
    fn apply(&mut self, op: &Op) -> OpResult {
        match op {
            Op::Create { path, mode } => self.create(path, *mode),
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Symlink { path, target } => {
                let Place { dir, name } = self.new_place(path)?;
                symlinkat(&target[..], dir, name)?;
                Ok(Outcome::Done)
            }
            Op::Mknod { path, node, mode } => self.mknod(path, *node, *mode),
            Op::Link { from, to } => {
                let (old, new) = (self.handle(from)?, self.place(to)?);
                linkat(old, "", new.dir, new.name, AtFlags::EMPTY_PATH)?;
                Ok(Outcome::Done)
            }
            Op::Unlink { path } => self.unlink(path, AtFlags::empty()),
            Op::Rmdir { path } => self.unlink(path, AtFlags::REMOVEDIR),
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Open { path, slot } => {
                let file = self.open_at(path, OFlags::RDWR)?;
                self.open.insert(*slot, file);
                Ok(Outcome::Done)
            }
            Op::Close { slot } => {
                self.open.remove(slot);
                Ok(Outcome::Done)
            }
            Op::Tmpfile { dir, mode, slot } => self.tmpfile(dir, *mode, *slot),
            Op::LinkOpen { slot, to } => self.link_open(*slot, to),
            Op::Write { at, offset, data } => {
                let file = self.opened(at, OFlags::WRONLY)?;
                self.write(&file, *offset, data)
            }
            Op::Append { at, data } => self.append(at, data),
            Op::Truncate { at, size } => {
                self.opened(at, OFlags::WRONLY)?.set_len(*size)?;
                Ok(Outcome::Done)
            }
            Op::Fallocate {
                at,
                how,
                offset,
                len_bytes,
            } => self.fallocate(at, *how, *offset, *len_bytes),
            Op::Clone {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => self.clone_range((from, *from_offset), *len_bytes, (to, *to_offset)),
            Op::CopyRange {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => self.copy_range((from, *from_offset), *len_bytes, (to, *to_offset)),
            Op::Dedupe {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => self.dedupe((from, *from_offset), *len_bytes, (to, *to_offset)),
            Op::SetXattr {
                path,
                name,
                value,
                how,
            } => self.set_xattr(path, name, value, *how),
            Op::RemoveXattr { path, name } => self.remove_xattr(path, name),
            Op::Chmod { path, mode } => self.made(path, *mode),
            Op::Chown { path, uid, gid } => {
                let handle = self.handle(path)?;
                std::os::unix::fs::chown(proc_path(&handle), Some(*uid), Some(*gid))?;
                Ok(Outcome::Done)
            }
            Op::SetTimes { path, atime, mtime } => self.set_times(path, *atime, *mtime),
            Op::SetFlags { path, flags } => self.set_flags(path, *flags),
            Op::CreateSubvolume { path } => self.create_subvolume(path),
            Op::Snapshot {
                from,
                to,
                read_only,
            } => self.snapshot(from, to, *read_only),
            Op::DeleteSubvolume { path } => self.delete_subvolume(path),
            Op::SetReadOnly { path, read_only } => self.set_read_only(path, *read_only),
            Op::SetDefault { path } => {
                ioctl::set_default(&self.opened_subvolume(path)?)?;
                Ok(Outcome::Done)
            }
            Op::SetReceived { path, number } => {
                let dir = self.opened_subvolume(path)?;
                ioctl::set_received(&dir, &Received::of_number(*number))?;
                Ok(Outcome::Done)
            }
            Op::GetReceived { path } => {
                let dir = self.opened_subvolume(path)?;
                Ok(Outcome::Received(ioctl::received(&dir)?))
            }
            Op::Read {
                at,
                offset,
                len_bytes,
            } => self.read(at, *offset, *len_bytes),
            Op::List { path } => self.list(path),
            Op::Stat { path } => self.stat(path),
            Op::GetXattr { path, name } => self.get_xattr(path, name),
            Op::GetFlags { path } => self.get_flags(path),
            Op::Sync | Op::Commit => done(self.mounted.sync()),
            Op::Fsync { at } => self.fsync(at),
            Op::Remount => {
                self.open.clear();
                done(self.mounted.remount())
            }
            Op::DropCaches => {
                done(self.mounted.sync())?;
                // Drops unused inodes and their pages; other pages of the machine stay cached.
                std::fs::write("/proc/sys/vm/drop_caches", "2")?;
                Ok(Outcome::Done)
            }
        }
    }

    fn manifest(&mut self) -> Manifest {
        Manifest::of_dir(self.mounted.root()).unwrap_or_else(|error| Manifest {
            entries: Vec::new(),
            faults: vec![Fault {
                path: Vec::new(),
                doing: "walk",
                reason: error.to_string(),
            }],
        })
    }

    fn may_refuse(&self, op: &Op, error: OpError) -> bool {
        self.mounted.may_refuse(op, error)
    }
}

fn done(result: Result<()>) -> OpResult {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => {
            eprintln!("{error}");
            Err(OpError::Io)
        }
    }
}
