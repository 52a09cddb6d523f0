//! The engine as a target of scripts.
//!
//! It also does the work of a mount before it calls the engine. Paths are resolved, files are opened, and
//! attribute names are checked against the file type.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::{InodeNr, RootId, Transid};
use ubtrfs_format::item::InodeFlags;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{
    Attr, Error, Fallocate, FileId, FileKind, FileTime, NewInode, OpenFile, OpenOptions,
    ReceivedFrom, RenameMode, SetAttr, SetTime, Volume, XattrMode,
};
use ubtrfs_sim::manifest::{Manifest, Time};
use ubtrfs_sim::script::{
    self, Allocate, At, Flags, FsPath, Node, Op, OpError, Outcome, Received, RenameHow, Slot,
    Target, XattrHow,
};

use crate::shown::{self, kind, numbers};

type OpResult<T = Outcome> = Result<T, OpError>;

/// EUCLEAN.
const UNCLEAN: OpError = OpError::Other(117);
const NAME_BYTES: usize = 255;
const PATH_BYTES: usize = 4096;

/// Devices with their names.
pub(crate) type NamedDevices = Vec<(PathBuf, Arc<dyn BlockDevice>)>;

/// A writable volume.
pub(crate) struct EngineTarget {
    // Dropped first, while the volume exists.
    open: BTreeMap<Slot, OpenFile>,
    volume: Option<Arc<Volume>>,
    devices: NamedDevices,
    options: OpenOptions,
}

impl EngineTarget {
    pub(crate) fn open(
        devices: NamedDevices,
        options: &OpenOptions,
    ) -> Result<EngineTarget, Error> {
        let volume = Volume::from_devices(devices.clone(), options)?;
        Ok(EngineTarget {
            open: BTreeMap::new(),
            volume: Some(volume),
            devices,
            options: options.clone(),
        })
    }

    /// Returns another user of the same volume, for another thread.
    pub(crate) fn another(&self) -> EngineTarget {
        EngineTarget {
            open: BTreeMap::new(),
            volume: self.volume.clone(),
            devices: self.devices.clone(),
            options: self.options.clone(),
        }
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        self.volume.as_ref().expect("it is open between operations")
    }

    /// Unmounts, checks the device, and mounts again.
    fn remount(&mut self) -> OpResult {
        self.open.clear();
        if self.volume.is_none() {
            return Err(OpError::Io);
        }
        // Otherwise a thread of the volume may hold it for longer.
        self.volume().close().map_err(errno)?;
        self.volume = None;
        let report =
            check_devices(self.devices.clone(), &CheckOptions::default(), &mut ()).unwrap();
        if !report.is_spotless() {
            // As an error, so that the script can be shortened.
            eprintln!("{report}");
            return Err(UNCLEAN);
        }
        let volume = Volume::from_devices(self.devices.clone(), &self.options);
        self.volume = Some(volume.map_err(errno)?);
        Ok(Outcome::Done)
    }

    fn top(&self) -> FileId {
        FileId::new(RootId::FS_TREE, InodeNr(256))
    }

    fn find(&self, path: &FsPath) -> OpResult<FileId> {
        let mut at = self.top();
        for name in path.names() {
            at = self.lookup(at, name)?.ok_or(OpError::NotFound)?;
        }
        Ok(at)
    }

    fn must_be_dir(&self, id: FileId) -> OpResult<()> {
        match self.attr(id)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(OpError::NotADirectory),
        }
    }

    fn lookup(&self, dir: FileId, name: &[u8]) -> OpResult<Option<FileId>> {
        self.must_be_dir(dir)?;
        if name.len() > NAME_BYTES {
            return Err(OpError::NameTooLong);
        }
        self.volume().lookup(dir, name).map_err(errno)
    }

    fn attr(&self, id: FileId) -> OpResult<Attr> {
        self.volume().attr(id).map_err(errno)
    }

    /// Returns the directory of a path, and the name in it.
    fn place<'p>(&self, path: &'p FsPath) -> OpResult<(FileId, &'p [u8])> {
        let (dir, name) = path.split().ok_or(OpError::InvalidArgument)?;
        let dir = self.find(&dir)?;
        self.must_be_dir(dir)?;
        Ok((dir, name))
    }

    /// Returns the directory and the name of an existing path.
    fn named<'p>(&self, path: &'p FsPath) -> OpResult<(FileId, &'p [u8])> {
        let (dir, name) = self.place(path)?;
        self.lookup(dir, name)?.ok_or(OpError::NotFound)?;
        Ok((dir, name))
    }

    /// Returns the directory and the name of a path that does not exist.
    fn free<'p>(&self, path: &'p FsPath) -> OpResult<(FileId, &'p [u8])> {
        let (dir, name) = self.place(path)?;
        match self.lookup(dir, name)? {
            Some(_) => Err(OpError::Exists),
            None => Ok((dir, name)),
        }
    }

    fn make(&self, path: &FsPath, new: &NewInode<'_>) -> OpResult {
        let (dir, name) = self.free(path)?;
        done(self.volume().create(dir, name, new).map(drop))
    }

    /// Opens a file for reading and writing.
    fn open_slot(&mut self, path: &FsPath, slot: Slot) -> OpResult {
        let id = self.find(path)?;
        let file = self.volume().open_file_for_writing(id, false);
        self.open.insert(slot, file.map_err(errno)?);
        Ok(Outcome::Done)
    }

    /// Returns the file to read or sync.
    fn file(&self, at: &At) -> OpResult<FileId> {
        match at {
            At::Path(path) => self.find(path),
            At::Slot(slot) => match self.open.get(slot) {
                Some(file) => Ok(file.id()),
                None => Err(OpError::InvalidArgument),
            },
        }
    }

    /// Returns the file to write, opened now or before.
    fn file_to_write(&self, at: &At, appends: bool) -> OpResult<FileId> {
        let id = self.file(at)?;
        if let At::Path(_) = at {
            self.volume()
                .open_file_for_writing(id, appends)
                .map_err(errno)?;
        }
        Ok(id)
    }

    fn rename(&self, from: &FsPath, to: &FsPath, how: RenameHow) -> OpResult {
        let (dir, name) = self.place(from)?;
        let (new_dir, new_name) = self.place(to)?;
        self.lookup(dir, name)?.ok_or(OpError::NotFound)?;
        self.lookup(new_dir, new_name)?;
        let to = (new_dir, new_name);
        let volume = self.volume();
        let mode = match how {
            RenameHow::Replace => RenameMode::Replace,
            RenameHow::NoReplace => RenameMode::NoReplace,
            RenameHow::Exchange => RenameMode::Exchange,
            RenameHow::Whiteout => {
                let whiteout = NewInode::with_mode(0o020_000);
                let mode = RenameMode::Replace;
                return done(volume.rename_leaving(dir, name, to, mode, &whiteout));
            }
        };
        done(volume.rename(dir, name, to, mode))
    }

    fn check_xattr(&self, id: FileId, name: &[u8]) -> OpResult<()> {
        let kind = self.attr(id)?.kind;
        let takes_user = matches!(kind, FileKind::Regular | FileKind::Directory);
        if name.starts_with(b"user.") && !takes_user {
            Err(OpError::NotPermitted)
        } else {
            Ok(())
        }
    }

    fn set_attr(&self, path: &FsPath, set: &SetAttr) -> OpResult {
        done(self.volume().set_attr(self.find(path)?, set))
    }

    fn list(&self, path: &FsPath) -> OpResult {
        let id = self.find(path)?;
        let mut names = Vec::new();
        let listed = self.volume().readdir(id, 0, &mut |entry| {
            names.push((entry.name, kind(entry.kind)));
            std::ops::ControlFlow::Continue(())
        });
        listed.map_err(errno)?;
        Ok(Outcome::Names(names))
    }

    fn stat(&self, path: &FsPath) -> OpResult {
        let attr = self.attr(self.find(path)?)?;
        Ok(Outcome::Attr(script::Attr {
            kind: kind(attr.kind),
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            nlink: u64::from(attr.nlink),
            rdev: numbers(attr.rdev),
            size: attr.size,
        }))
    }

    fn get_flags(&self, path: &FsPath) -> OpResult {
        let flags = self.attr(self.find(path)?)?.flags;
        let compression = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS;
        Ok(Outcome::Flags(Flags {
            immutable: flags.contains(InodeFlags::IMMUTABLE),
            append: flags.contains(InodeFlags::APPEND),
            nocow: flags.contains(InodeFlags::NODATACOW),
            nodump: flags.contains(InodeFlags::NODUMP),
            noatime: flags.contains(InodeFlags::NOATIME),
            // Both may be set; show the one with priority.
            compress: flags & compression == InodeFlags::COMPRESS,
            nocompress: flags.contains(InodeFlags::NOCOMPRESS),
            sync: flags.contains(InodeFlags::SYNC),
            dirsync: flags.contains(InodeFlags::DIRSYNC),
        }))
    }

    fn set_flags(&self, path: &FsPath, flags: Flags) -> OpResult {
        let id = self.find(path)?;
        let is_file = self.attr(id)?.kind == FileKind::Regular;
        let mut wanted = InodeFlags::empty();
        for (flag, is_set) in [
            (InodeFlags::IMMUTABLE, flags.immutable),
            (InodeFlags::APPEND, flags.append),
            (InodeFlags::NODATACOW, flags.nocow),
            (InodeFlags::NODUMP, flags.nodump),
            (InodeFlags::NOATIME, flags.noatime),
            (InodeFlags::COMPRESS, flags.compress),
            (InodeFlags::NOCOMPRESS, flags.nocompress),
            (InodeFlags::SYNC, flags.sync),
            (InodeFlags::DIRSYNC, flags.dirsync && !is_file),
        ] {
            wanted.set(flag, is_set);
        }
        done(self.volume().set_inode_flags(id, wanted))
    }

    fn tmpfile(&mut self, dir: &FsPath, mode: u32, slot: Slot) -> OpResult {
        let dir = self.find(dir)?;
        let file = self.volume().tmpfile(dir, &NewInode::file(mode), true);
        self.open.insert(slot, file.map_err(errno)?);
        Ok(Outcome::Done)
    }

    /// Returns the files of an operation that reads one and writes the other, or the same.
    fn pair(&self, from: &At, to: &At) -> OpResult<(FileId, FileId)> {
        let source = self.file(from)?;
        let target = self.file_to_write(to, false)?;
        match self.attr(source)?.kind {
            FileKind::Directory => Err(OpError::IsADirectory),
            _ => Ok((source, target)),
        }
    }

    fn set_received(&self, path: &FsPath, number: u64) -> OpResult {
        let id = self.subvolume_at(path)?;
        let received = Received::of_number(number);
        let from = ReceivedFrom {
            uuid: Uuid(received.uuid),
            transid: Transid(received.transid),
            time: FileTime {
                sec: received.time.seconds,
                nsec: received.time.nanoseconds,
            },
        };
        done(self.volume().set_received(id, &from).map(drop))
    }

    fn get_received(&self, path: &FsPath) -> OpResult {
        let id = self.subvolume_at(path)?;
        let subvolumes = self.volume().subvolumes().map_err(errno)?;
        let found = subvolumes.iter().find(|subvolume| subvolume.id == id);
        let item = &found.ok_or(OpError::NotFound)?.item;
        Ok(Outcome::Received(Received {
            uuid: item.received_uuid.0,
            transid: item.stransid.get(),
            time: Time {
                seconds: item.stime.sec.get(),
                nanoseconds: item.stime.nsec.get(),
            },
        }))
    }

    /// Returns the subvolume whose root directory is at a path.
    fn subvolume_at(&self, path: &FsPath) -> OpResult<RootId> {
        let id = self.find(path)?;
        if id.ino == InodeNr::FIRST_FREE && !id.is_empty_subvolume_dir() {
            Ok(id.root)
        } else {
            Err(OpError::InvalidArgument)
        }
    }
}

fn done(result: Result<(), Error>) -> OpResult {
    result.map(|()| Outcome::Done).map_err(errno)
}

/// Returns the errno that a mount returns.
fn errno(error: Error) -> OpError {
    match error {
        Error::NotFound | Error::NoSuchInode(_) | Error::NoSuchSubvolume(_) => OpError::NotFound,
        Error::Exists => OpError::Exists,
        Error::NotEmpty(_) => OpError::NotEmpty,
        Error::NotADirectory(_) => OpError::NotADirectory,
        Error::IsADirectory(_) => OpError::IsADirectory,
        Error::TooManyLinks => OpError::TooManyLinks,
        Error::NameTooLong => OpError::NameTooLong,
        Error::ReadOnlySubvolume(_) | Error::ReadOnly => OpError::ReadOnly,
        Error::CrossSubvolume => OpError::CrossSubvolume,
        Error::Invalid(_) | Error::NotASubvolume => OpError::InvalidArgument,
        Error::NotPermitted(_) | Error::DefaultSubvolume(_) => OpError::NotPermitted,
        Error::NoXattr => OpError::NoData,
        Error::XattrNamespace => OpError::Unsupported,
        Error::XattrTooBig => OpError::NoSpace,
        error if error.is_no_space() => OpError::NoSpace,
        Error::FileTooBig => OpError::FileTooBig,
        Error::Unaligned | Error::CsumsDiffer => OpError::InvalidArgument,
        error => {
            eprintln!("{error}");
            OpError::Io
        }
    }
}

fn time(time: Time) -> SetTime {
    SetTime::At(FileTime {
        sec: time.seconds,
        nsec: time.nanoseconds,
    })
}

impl Target for EngineTarget {
    fn apply(&mut self, op: &Op) -> OpResult {
        match op {
            Op::Create { path, mode } => self.make(path, &NewInode::file(*mode)),
            Op::Mkdir { path, mode } => self.make(path, &NewInode::directory(*mode)),
            Op::Symlink { path, target } => {
                self.place(path)?;
                if target.len() >= PATH_BYTES {
                    return Err(OpError::NameTooLong);
                }
                self.make(path, &NewInode::symlink(target))
            }
            Op::Mknod { path, node, mode } => {
                let format = match node {
                    Node::Fifo => 0o010_000,
                    Node::Socket => 0o140_000,
                    Node::CharDevice(..) => 0o020_000,
                    Node::BlockDevice(..) => 0o060_000,
                };
                let (major, minor) = node.rdev();
                let new = NewInode {
                    rdev: u64::from(major) << 20 | u64::from(minor),
                    ..NewInode::with_mode(format | mode)
                };
                self.make(path, &new)
            }
            Op::Link { from, to } => {
                let file = self.find(from)?;
                let (dir, name) = self.free(to)?;
                done(self.volume().link(file, dir, name))
            }
            Op::Unlink { path } => {
                let (dir, name) = self.named(path)?;
                done(self.volume().unlink(dir, name))
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.named(path)?;
                done(self.volume().rmdir(dir, name))
            }
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Open { path, slot } => self.open_slot(path, *slot),
            Op::Close { slot } => {
                self.open.remove(slot);
                Ok(Outcome::Done)
            }
            Op::Tmpfile { dir, mode, slot } => self.tmpfile(dir, *mode, *slot),
            Op::LinkOpen { slot, to } => {
                let file = self.file(&At::Slot(*slot))?;
                let (dir, name) = self.free(to)?;
                done(self.volume().link(file, dir, name))
            }
            Op::SetXattr {
                path,
                name,
                value,
                how,
            } => {
                let id = self.find(path)?;
                if name.is_empty() || name.len() > NAME_BYTES {
                    return Err(OpError::XattrName);
                }
                if value.len_bytes() > 65_536 {
                    return Err(OpError::XattrTooBig);
                }
                self.check_xattr(id, name)?;
                let mode = match how {
                    XattrHow::Any => XattrMode::Any,
                    XattrHow::Create => XattrMode::Create,
                    XattrHow::Replace => XattrMode::Replace,
                };
                done(self.volume().set_xattr(id, name, &value.bytes(), mode))
            }
            Op::RemoveXattr { path, name } => {
                let id = self.find(path)?;
                if name.is_empty() || name.len() > NAME_BYTES {
                    return Err(OpError::XattrName);
                }
                self.check_xattr(id, name)?;
                done(self.volume().remove_xattr(id, name))
            }
            Op::GetXattr { path, name } => {
                let id = self.find(path)?;
                if name.is_empty() || name.len() > NAME_BYTES {
                    return Err(OpError::XattrName);
                }
                let value = self.volume().xattr(id, name).map_err(errno)?;
                value.map(Outcome::Bytes).ok_or(OpError::NoData)
            }
            Op::Chmod { path, mode } => {
                let set = SetAttr {
                    mode: Some(*mode),
                    ..SetAttr::default()
                };
                self.set_attr(path, &set)
            }
            Op::Chown { path, uid, gid } => {
                let set = SetAttr {
                    uid: Some(*uid),
                    gid: Some(*gid),
                    ..SetAttr::default()
                };
                self.set_attr(path, &set)
            }
            Op::SetTimes { path, atime, mtime } => {
                let set = SetAttr {
                    atime: Some(time(*atime)),
                    mtime: Some(time(*mtime)),
                    ..SetAttr::default()
                };
                self.set_attr(path, &set)
            }
            Op::SetFlags { path, flags } => self.set_flags(path, *flags),
            Op::GetFlags { path } => self.get_flags(path),
            Op::CreateSubvolume { path } => {
                let (dir, name) = self.free(path)?;
                let root = NewInode::directory(0o755);
                done(self.volume().create_subvolume(dir, name, &root).map(drop))
            }
            Op::Snapshot {
                from,
                to,
                read_only,
            } => {
                let source = self.subvolume_at(from)?;
                let (dir, name) = self.free(to)?;
                let made = self.volume().snapshot(source, dir, name, *read_only);
                done(made.map(drop))
            }
            Op::DeleteSubvolume { path } => {
                self.subvolume_at(path)?;
                let (dir, name) = self.place(path)?;
                done(self.volume().delete_subvolume(dir, name))
            }
            Op::SetReadOnly { path, read_only } => {
                let id = self.subvolume_at(path)?;
                done(self.volume().set_read_only(id, *read_only))
            }
            Op::SetDefault { path } => done(self.volume().set_default(self.subvolume_at(path)?)),
            Op::SetReceived { path, number } => self.set_received(path, *number),
            Op::GetReceived { path } => self.get_received(path),
            Op::List { path } => self.list(path),
            Op::Stat { path } => self.stat(path),
            Op::Sync | Op::Commit => done(self.volume().sync()),
            Op::Remount => self.remount(),
            Op::DropCaches => Ok(Outcome::Done),
            Op::Read {
                at,
                offset,
                len_bytes,
            } => {
                let id = self.file(at)?;
                let mut bytes = vec![0; *len_bytes];
                let read = self.volume().read(id, *offset, &mut bytes);
                bytes.truncate(read.map_err(errno)?);
                Ok(Outcome::Bytes(bytes))
            }
            Op::Write { at, offset, data } => {
                let id = self.file_to_write(at, false)?;
                done(self.volume().write(id, *offset, &data.bytes()))
            }
            Op::Append { at, data } => {
                let id = self.file_to_write(at, true)?;
                done(self.volume().append(id, &data.bytes()).map(drop))
            }
            Op::Truncate { at, size } => {
                let id = self.file_to_write(at, false)?;
                done(self.volume().truncate(id, *size))
            }
            Op::Fallocate {
                at,
                how,
                offset,
                len_bytes,
            } => {
                let id = self.file_to_write(at, false)?;
                let mode = match how {
                    Allocate::Extend => Fallocate::Reserve { keep_size: false },
                    Allocate::KeepSize => Fallocate::Reserve { keep_size: true },
                    Allocate::Punch => Fallocate::PunchHole,
                    Allocate::Zero => Fallocate::ZeroRange { keep_size: false },
                    Allocate::ZeroKeepSize => Fallocate::ZeroRange { keep_size: true },
                };
                if *len_bytes == 0 {
                    return Err(OpError::InvalidArgument);
                }
                done(self.volume().fallocate(id, mode, *offset, *len_bytes))
            }
            Op::Clone {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => {
                let (source, target) = self.pair(from, to)?;
                let (from, to) = (*from_offset, *to_offset);
                let volume = self.volume();
                let shared = volume.clone_range(source, from, *len_bytes, target, to);
                done(shared.map(drop))
            }
            Op::CopyRange {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => {
                let (source, target) = self.pair(from, to)?;
                let (from, to) = (*from_offset, *to_offset);
                let volume = self.volume();
                let copied = volume.copy_range(source, from, *len_bytes, target, to);
                copied.map(Outcome::Copied).map_err(errno)
            }
            Op::Dedupe {
                from,
                from_offset,
                len_bytes,
                to,
                to_offset,
            } => {
                let (source, target) = self.pair(from, to)?;
                let (from, to) = (*from_offset, *to_offset);
                let volume = self.volume();
                let shared = volume.dedupe_range(source, from, *len_bytes, target, to);
                shared.map(Outcome::Shared).map_err(errno)
            }
            Op::Fsync { at } => done(self.volume().fsync(self.file(at)?)),
        }
    }

    fn manifest(&mut self) -> Manifest {
        shown::manifest(self.volume())
    }

    /// Returns whether the engine may refuse an operation that the model allows. The model knows the size
    /// limit of one attribute, but not the common limit of attributes with the same hash.
    fn may_refuse(&self, op: &Op, error: OpError) -> bool {
        matches!(op, Op::SetXattr { .. }) && error == OpError::NoSpace
    }
}
