//! The engine as a target of scripts, and all that it shows.
//!
//! What the kernel's VFS would do before a file system is asked (long names, opening what is no file) is done here.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_engine::{
    Error, Fallocate, FileId, FileKind, FileTime, NewInode, OpenFile, OpenOptions, RenameMode,
    Result as EngineResult, SetAttr, SetTime, Volume, XattrMode,
};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_sim::manifest::{Kind, Listed, Manifest, Source, Stat, Time, Xattr};
use ubtrfs_sim::script::{
    Allocate, At, Attr, Flags, FsPath, Node, Op, OpError, Outcome, RenameHow, Slot, Target,
    XattrHow,
};

use crate::devices::{Devices, open};

type OpResult<T = Outcome> = std::result::Result<T, OpError>;

/// A volume that scripts change. Dropping it commits, as dropping the volume does.
pub(crate) struct Engine {
    devices: Devices,
    options: OpenOptions,
    // Dropped before the volume, which they keep.
    slots: BTreeMap<Slot, OpenFile>,
    volume: Option<Arc<Volume>>,
    /// Syncs before whatever commits by itself, so that no commit leaves data behind.
    exact: bool,
}

impl Engine {
    pub(crate) fn open(devices: &Devices, options: &OpenOptions) -> Engine {
        let volume = open(devices, options).unwrap_or_else(|error| panic!("opening: {error}"));
        Engine {
            devices: devices.clone(),
            options: options.clone(),
            slots: BTreeMap::new(),
            volume: Some(volume),
            exact: false,
        }
    }

    pub(crate) fn exact(self) -> Engine {
        Engine {
            exact: true,
            ..self
        }
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        self.volume.as_ref().expect("there is one between remounts")
    }

    fn find(&self, path: &FsPath) -> OpResult<FileId> {
        let mut at = self.volume().root_dir(RootId::FS_TREE).map_err(op_error)?;
        for name in path.names() {
            at = self.find_in(at, name)?.ok_or(OpError::NotFound)?;
        }
        Ok(at)
    }

    fn find_in(&self, dir: FileId, name: &[u8]) -> OpResult<Option<FileId>> {
        if self.kind(dir)? != FileKind::Directory {
            return Err(OpError::NotADirectory);
        }
        if name.len() > 255 {
            return Err(OpError::NameTooLong);
        }
        self.volume().lookup(dir, name).map_err(op_error)
    }

    /// The directory of a name, and the name.
    fn place<'p>(&self, path: &'p FsPath) -> OpResult<(FileId, &'p [u8])> {
        let (_, name) = path.split().ok_or(OpError::InvalidArgument)?;
        let dir = self.find(&path.split().unwrap_or_default().0)?;
        self.find_in(dir, name)?;
        Ok((dir, name))
    }

    fn kind(&self, id: FileId) -> OpResult<FileKind> {
        Ok(self.volume().attr(id).map_err(op_error)?.kind)
    }

    /// A file to be read or written.
    fn file(&self, at: &At) -> OpResult<FileId> {
        let id = match at {
            At::Path(path) => self.find(path)?,
            At::Slot(slot) => self.slots.get(slot).ok_or(OpError::InvalidArgument)?.id(),
        };
        match self.kind(id)? {
            FileKind::Directory => Err(OpError::IsADirectory),
            _ => Ok(id),
        }
    }

    fn subvolume(&self, path: &FsPath) -> OpResult<RootId> {
        let id = self.find(path)?;
        match id.ino.0 {
            256 => Ok(id.root),
            _ => Err(OpError::InvalidArgument),
        }
    }

    fn make(&self, path: &FsPath, new: &NewInode<'_>) -> OpResult {
        let (dir, name) = self.place(path)?;
        done(self.volume().create(dir, name, new))
    }

    fn rename(&self, from: &FsPath, to: &FsPath, how: RenameHow) -> OpResult {
        let is_above = self.find(from).is_ok() && below(to, from) && how != RenameHow::Exchange;
        let ((dir, name), to) = (self.place(from)?, self.place(to)?);
        if is_above {
            return Err(match how {
                RenameHow::NoReplace => OpError::Exists,
                _ => OpError::NotEmpty,
            });
        }
        let volume = self.volume();
        done(match how {
            RenameHow::Replace => volume.rename(dir, name, to, RenameMode::Replace),
            RenameHow::NoReplace => volume.rename(dir, name, to, RenameMode::NoReplace),
            RenameHow::Exchange => volume.rename(dir, name, to, RenameMode::Exchange),
            RenameHow::Whiteout => {
                let whiteout = NewInode::with_mode(0o020_000);
                volume.rename_leaving(dir, name, to, RenameMode::Replace, &whiteout)
            }
        })
    }

    fn stat(&self, path: &FsPath) -> OpResult {
        let stat = Shown(self.volume()).stat(&self.find(path)?).map_err(op_error)?;
        Ok(Outcome::Attr(Attr {
            kind: stat.kind,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            nlink: stat.nlink,
            rdev: stat.rdev,
            size: stat.size,
        }))
    }

    fn list(&self, path: &FsPath) -> OpResult {
        let dir = self.find(path)?;
        let names = Shown(self.volume()).list(&dir).map_err(op_error)?;
        let known = |(name, kind): Listed| Some((name, kind?));
        Ok(Outcome::Names(names.into_iter().filter_map(known).collect()))
    }

    fn read(&self, at: &At, offset: u64, len_bytes: usize) -> OpResult {
        let id = self.file(at)?;
        let mut bytes = vec![0; len_bytes];
        let len = self.volume().read(id, offset, &mut bytes).map_err(op_error)?;
        bytes.truncate(len);
        Ok(Outcome::Bytes(bytes))
    }

    fn set_flags(&self, path: &FsPath, flags: Flags) -> OpResult {
        let mut bits = InodeFlags::empty();
        for (flag, is_set) in flag_bits(flags) {
            bits.set(flag, is_set);
        }
        done(self.volume().set_inode_flags(self.find(path)?, bits))
    }

    fn flags(&self, path: &FsPath) -> OpResult {
        let flags = self.volume().attr(self.find(path)?).map_err(op_error)?.flags;
        Ok(Outcome::Flags(Flags {
            immutable: flags.contains(InodeFlags::IMMUTABLE),
            append: flags.contains(InodeFlags::APPEND),
            nocow: flags.contains(InodeFlags::NODATACOW),
            nodump: flags.contains(InodeFlags::NODUMP),
            noatime: flags.contains(InodeFlags::NOATIME),
        }))
    }

    fn open_slot(&mut self, path: &FsPath, slot: Slot) -> OpResult {
        let id = self.file(&At::Path(path.clone()))?;
        let held = self.volume().hold(id).map_err(op_error)?;
        self.slots.insert(slot, held);
        Ok(Outcome::Done)
    }

    fn remount(&mut self) -> OpResult {
        self.slots.clear();
        self.volume().sync().map_err(op_error)?;
        self.volume = None;
        self.volume = Some(open(&self.devices, &self.options).map_err(op_error)?);
        Ok(Outcome::Done)
    }

    fn do_op(&mut self, op: &Op) -> OpResult {
        if self.exact && commits_by_itself(op) {
            self.volume().sync().map_err(op_error)?;
        }
        let volume = self.volume();
        match op {
            Op::Create { path, mode } => self.make(path, &NewInode::file(*mode)),
            Op::Mkdir { path, mode } => self.make(path, &NewInode::directory(*mode)),
            Op::Symlink { path, target } => self.make(path, &NewInode::symlink(target)),
            Op::Mknod { path, node, mode } => {
                let (major, minor) = node.rdev();
                let new = NewInode {
                    rdev: u64::from(major) << 20 | u64::from(minor),
                    ..NewInode::with_mode(format_of(*node) | mode)
                };
                self.make(path, &new)
            }
            Op::Link { from, to } => {
                let (id, (dir, name)) = (self.find(from)?, self.place(to)?);
                done(volume.link(id, dir, name))
            }
            Op::Unlink { path } => {
                let (dir, name) = self.place(path)?;
                done(volume.unlink(dir, name))
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.place(path)?;
                done(volume.rmdir(dir, name))
            }
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Open { path, slot } => self.open_slot(path, *slot),
            Op::Close { slot } => {
                self.slots.remove(slot);
                Ok(Outcome::Done)
            }
            Op::Write { at, offset, data } => {
                done(volume.write(self.file(at)?, *offset, &data.bytes()))
            }
            Op::Append { at, data } => done(volume.append(self.file(at)?, &data.bytes())),
            Op::Truncate { at, size } => done(volume.truncate(self.file(at)?, *size)),
            Op::Fallocate {
                at,
                how,
                offset,
                len_bytes,
            } => done(volume.fallocate(self.file(at)?, allocate(*how), *offset, *len_bytes)),
            Op::Clone {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => {
                let (from, to) = (self.file(from)?, self.file(to)?);
                done(volume.clone_range(from, *from_offset, *len_bytes, to, *to_offset))
            }
            Op::SetXattr {
                path,
                name,
                value,
                how,
            } => {
                let mode = match how {
                    XattrHow::Any => XattrMode::Any,
                    XattrHow::Create => XattrMode::Create,
                    XattrHow::Replace => XattrMode::Replace,
                };
                done(volume.set_xattr(self.find(path)?, name, &value.bytes(), mode))
            }
            Op::RemoveXattr { path, name } => done(volume.remove_xattr(self.find(path)?, name)),
            Op::Chmod { path, mode } => {
                let set = SetAttr {
                    mode: Some(*mode),
                    ..SetAttr::default()
                };
                done(volume.set_attr(self.find(path)?, &set))
            }
            Op::Chown { path, uid, gid } => {
                let set = SetAttr {
                    uid: Some(*uid),
                    gid: Some(*gid),
                    clear_setid: true,
                    ..SetAttr::default()
                };
                done(volume.set_attr(self.find(path)?, &set))
            }
            Op::SetTimes { path, atime, mtime } => {
                let set = SetAttr {
                    atime: Some(SetTime::At(file_time(*atime))),
                    mtime: Some(SetTime::At(file_time(*mtime))),
                    ..SetAttr::default()
                };
                done(volume.set_attr(self.find(path)?, &set))
            }
            Op::SetFlags { path, flags } => self.set_flags(path, *flags),
            Op::CreateSubvolume { path } => {
                let (dir, name) = self.place(path)?;
                done(volume.create_subvolume(dir, name, &NewInode::directory(0o755)))
            }
            Op::Snapshot {
                from,
                to,
                read_only,
            } => {
                let (source, (dir, name)) = (self.subvolume(from)?, self.place(to)?);
                done(volume.snapshot(source, dir, name, *read_only))
            }
            Op::DeleteSubvolume { path } => {
                self.subvolume(path)?;
                let (dir, name) = self.place(path)?;
                done(volume.delete_subvolume(dir, name))
            }
            Op::SetReadOnly { path, read_only } => {
                done(volume.set_read_only(self.subvolume(path)?, *read_only))
            }
            Op::Read {
                at,
                offset,
                len_bytes,
            } => self.read(at, *offset, *len_bytes),
            Op::List { path } => self.list(path),
            Op::Stat { path } => self.stat(path),
            Op::GetXattr { path, name } => {
                let value = volume.xattr(self.find(path)?, name).map_err(op_error)?;
                value.map(Outcome::Bytes).ok_or(OpError::NoData)
            }
            Op::GetFlags { path } => self.flags(path),
            Op::Sync | Op::Commit | Op::DropCaches => done(volume.sync()),
            Op::Fsync { at } => {
                let id = match at {
                    At::Path(path) => self.find(path)?,
                    At::Slot(_) => self.file(at)?,
                };
                done(volume.fsync(id))
            }
            Op::Remount => self.remount(),
        }
    }
}

impl Target for Engine {
    fn apply(&mut self, op: &Op) -> OpResult {
        self.do_op(op)
    }

    fn manifest(&mut self) -> Manifest {
        manifest(self.volume())
    }
}

/// Whether `path` lies below the directory `dir`.
fn below(dir: &FsPath, path: &FsPath) -> bool {
    let rest = path.as_bytes().strip_prefix(dir.as_bytes());
    rest.is_some_and(|rest| rest.starts_with(b"/"))
}

/// Whether an operation commits without writing back the data of all files.
fn commits_by_itself(op: &Op) -> bool {
    matches!(
        op,
        Op::Fsync { .. }
            | Op::CreateSubvolume { .. }
            | Op::Snapshot { .. }
            | Op::DeleteSubvolume { .. }
            | Op::Rmdir { .. }
            | Op::SetReadOnly { .. }
    )
}

fn done<T>(result: EngineResult<T>) -> OpResult {
    result.map(|_| Outcome::Done).map_err(op_error)
}

fn op_error(error: Error) -> OpError {
    match error {
        Error::NotFound | Error::NoSuchInode(_) | Error::NoSuchSubvolume(_) => OpError::NotFound,
        Error::Exists => OpError::Exists,
        Error::NotEmpty(_) => OpError::NotEmpty,
        Error::NotADirectory(_) => OpError::NotADirectory,
        Error::IsADirectory(_) => OpError::IsADirectory,
        Error::TooManyLinks => OpError::TooManyLinks,
        Error::NameTooLong => OpError::NameTooLong,
        Error::ReadOnlySubvolume(_) => OpError::ReadOnly,
        Error::CrossSubvolume => OpError::CrossSubvolume,
        Error::Invalid(_) | Error::Unaligned | Error::CsumsDiffer => OpError::InvalidArgument,
        Error::NotASubvolume | Error::NotAFile(_) | Error::NotASymlink(_) => {
            OpError::InvalidArgument
        }
        Error::NoXattr => OpError::NoData,
        Error::XattrNamespace => OpError::Unsupported,
        Error::XattrTooBig => OpError::NoSpace,
        Error::NotPermitted(_) | Error::DefaultSubvolume(_) => OpError::NotPermitted,
        Error::FileTooBig => OpError::FileTooBig,
        Error::NameHashFull => OpError::Other(75),
        error if error.is_no_space() => OpError::NoSpace,
        error => {
            eprintln!("{error}");
            OpError::Io
        }
    }
}

fn allocate(how: Allocate) -> Fallocate {
    match how {
        Allocate::Extend => Fallocate::Reserve { keep_size: false },
        Allocate::KeepSize => Fallocate::Reserve { keep_size: true },
        Allocate::Punch => Fallocate::PunchHole,
        Allocate::Zero => Fallocate::ZeroRange { keep_size: false },
        Allocate::ZeroKeepSize => Fallocate::ZeroRange { keep_size: true },
    }
}

fn format_of(node: Node) -> u32 {
    match node {
        Node::Fifo => 0o010_000,
        Node::Socket => 0o140_000,
        Node::CharDevice(..) => 0o020_000,
        Node::BlockDevice(..) => 0o060_000,
    }
}

fn flag_bits(flags: Flags) -> [(InodeFlags, bool); 5] {
    [
        (InodeFlags::IMMUTABLE, flags.immutable),
        (InodeFlags::APPEND, flags.append),
        (InodeFlags::NODATACOW, flags.nocow),
        (InodeFlags::NODUMP, flags.nodump),
        (InodeFlags::NOATIME, flags.noatime),
    ]
}

/// All that a volume shows from its top subvolume.
pub(crate) fn manifest(volume: &Volume) -> Manifest {
    Manifest::of(&mut Shown(volume))
}

struct Shown<'v>(&'v Volume);

impl Source for Shown<'_> {
    type Node = FileId;
    type Error = Error;

    fn root(&mut self) -> EngineResult<FileId> {
        self.0.root_dir(RootId::FS_TREE)
    }

    fn list(&mut self, dir: &FileId) -> EngineResult<Vec<Listed>> {
        let mut entries = Vec::new();
        self.0.readdir(*dir, 0, &mut |entry| {
            entries.push((entry.name, Some(kind(entry.kind))));
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    fn lookup(&mut self, dir: &FileId, name: &[u8]) -> EngineResult<Option<FileId>> {
        self.0.lookup(*dir, name)
    }

    fn stat(&mut self, node: &FileId) -> EngineResult<Stat> {
        let attr = self.0.attr(*node)?;
        let is_device = matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice);
        let numbers = ((attr.rdev >> 20) as u32, (attr.rdev & 0xf_ffff) as u32);
        Ok(Stat {
            kind: kind(attr.kind),
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            nlink: u64::from(attr.nlink),
            rdev: if is_device { numbers } else { (0, 0) },
            size: attr.size,
            ino: attr.ino.0,
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            btime: Some(time(attr.otime)),
        })
    }

    fn readlink(&mut self, node: &FileId) -> EngineResult<Vec<u8>> {
        self.0.readlink(*node)
    }

    fn xattrs(&mut self, node: &FileId) -> EngineResult<Vec<Xattr>> {
        self.0.xattrs(*node)
    }

    fn read(&mut self, node: &FileId, offset: u64, buf: &mut [u8]) -> EngineResult<usize> {
        self.0.read(*node, offset, buf)
    }

    fn next_data(&mut self, node: &FileId, offset: u64) -> EngineResult<Option<u64>> {
        self.0.seek_data(*node, offset)
    }
}

fn kind(kind: FileKind) -> Kind {
    match kind {
        FileKind::Regular => Kind::File,
        FileKind::Directory => Kind::Dir,
        FileKind::CharDevice => Kind::CharDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::Symlink => Kind::Symlink,
    }
}

fn time(time: FileTime) -> Time {
    Time {
        seconds: time.sec,
        nanoseconds: time.nsec,
    }
}

fn file_time(time: Time) -> FileTime {
    FileTime {
        sec: time.seconds,
        nsec: time.nanoseconds,
    }
}
