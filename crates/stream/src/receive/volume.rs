//! A volume as a target, accessed through the engine by inode.
//!
//! Paths are resolved name by name, with look-ups in directories, so that symlinks are never followed. A name that
//! leads into another subvolume is rejected.

mod files;
mod sources;

use std::fmt::Debug;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::rights::Caller;
use ubtrfs_fs::{
    DeviceNumber, EncodedData, Error, Fallocate, FileId, FileTime, NewContents, NewInode,
    ReceivedFrom, RenameMode, SetAttr, SetTime, Volume, XattrMode,
};

use super::path::TreePath;
use super::target::{
    CloneSource, EncodedExtent, NewFile, Sent, SetAttributes, Target, TargetError,
};
use files::{Files, HANDING_ON, KnownDir, child};
use sources::{All, Reader};

/// Attributes that a new file inherits from its directory, but which the sender's file may not have.
const HANDED_ON: [&[u8]; 3] = [
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"btrfs.compression",
];
/// Flags of fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

/// Receives notifications of changes, for caches outside of the engine.
pub trait Watcher: Debug + Send {
    /// Runs when a name was added, removed, or given to another file.
    fn entry(&self, dir: FileId, name: &[u8]);
    /// Runs when the contents or attributes of a file have changed.
    fn file(&self, id: FileId);
}

/// A target that receives into a directory of a volume.
#[derive(Debug)]
pub struct VolumeTarget {
    volume: Arc<Volume>,
    dir: FileId,
    watcher: Option<Box<dyn Watcher>>,
    reader: Reader,
    current: Option<Files>,
    /// The subvolumes as they were when one was not found by its UUID, while one is received.
    subvolumes: All,
    /// Clone sources that were found.
    sources: Vec<(Sent, Files)>,
}

/// Maximum number of cached clone sources.
const MAX_SOURCES: usize = 16;

impl VolumeTarget {
    /// Creates a target that creates subvolumes in `dir`.
    pub fn new(volume: &Arc<Volume>, dir: FileId) -> VolumeTarget {
        VolumeTarget {
            volume: Arc::clone(volume),
            dir,
            watcher: None,
            reader: Reader::Anything,
            current: None,
            subvolumes: All::default(),
            sources: Vec::new(),
        }
    }

    pub fn watched_by(self, watcher: Box<dyn Watcher>) -> VolumeTarget {
        VolumeTarget {
            watcher: Some(watcher),
            ..self
        }
    }

    /// Restricts parents and clone sources to the subvolumes and files that the caller could use itself. All others
    /// appear to be missing. Paths of the caller begin at `top`.
    ///
    /// An administrator may use everything.
    pub fn for_caller(self, caller: &Caller, top: FileId) -> VolumeTarget {
        let reader = Reader::new(caller, top);
        VolumeTarget { reader, ..self }
    }

    fn begin(&mut self, id: RootId, name: &[u8]) {
        self.current = Some(Files::of(id));
        self.subvolumes = All::default();
        self.sources.clear();
        self.reader.forget();
        self.entry_changed(self.dir, name);
    }

    fn current(&mut self) -> Result<&mut Files, TargetError> {
        Ok(self.current.as_mut().ok_or(Error::NotFound)?)
    }

    fn entry_changed(&self, dir: FileId, name: &[u8]) {
        if let Some(watcher) = &self.watcher {
            watcher.entry(dir, name);
        }
    }

    fn file_changed(&self, id: FileId) {
        if let Some(watcher) = &self.watcher {
            watcher.file(id);
        }
    }

    fn dir(&mut self, path: TreePath<'_>) -> Result<KnownDir, TargetError> {
        let volume = Arc::clone(&self.volume);
        self.current()?.dir(&volume, path)
    }

    /// Returns the parent directory and the name.
    fn place<'p>(&mut self, path: TreePath<'p>) -> Result<(FileId, &'p [u8]), TargetError> {
        let volume = Arc::clone(&self.volume);
        self.current()?.place(&volume, path)
    }

    fn file(&mut self, path: TreePath<'_>) -> Result<FileId, TargetError> {
        let volume = Arc::clone(&self.volume);
        self.current()?.file(&volume, path)
    }

    /// Returns whether a file could be created at `path`, and would be equal to one created in `dir`.
    fn could_pass_through(
        &mut self,
        path: TreePath<'_>,
        dir: &KnownDir,
    ) -> Result<bool, TargetError> {
        let (first_dir, first) = path.split().ok_or(Error::Exists)?;
        let first_dir = self.dir(first_dir)?;
        let is_taken = self.volume.lookup(first_dir.id, first)?.is_some();
        Ok(!is_taken && dir.makes_files_of(&first_dir))
    }

    fn set_attr(&mut self, path: TreePath<'_>, set: &SetAttr) -> Result<(), TargetError> {
        let id = self.file(path)?;
        self.volume.set_attr(id, set)?;
        self.current()?.attributes_changed(path);
        self.file_changed(id);
        Ok(())
    }

    /// Looks up a clone source, and returns its index in the cache.
    fn source(&mut self, sent: &Sent) -> Result<usize, TargetError> {
        let known = self.sources.iter().position(|(known, _)| known == sent);
        if let Some(at) = known {
            return Ok(at);
        }
        let files = self.find_source(sent)?;
        if self.sources.len() == MAX_SOURCES {
            self.sources.remove(0);
        }
        self.sources.push((*sent, files));
        Ok(self.sources.len() - 1)
    }

    fn find_source(&mut self, sent: &Sent) -> Result<Files, TargetError> {
        let subvolumes = &mut self.subvolumes;
        let found = self.reader.find_source(&self.volume, subvolumes, sent)?;
        let id = found.ok_or(TargetError::NoCloneSource(sent.uuid))?;
        Ok(Files::of(id))
    }

    /// Removes the origin of a subvolume that could not be finished, so that it is not mistaken for a complete one.
    fn unmark(&self, id: RootId) {
        // This fails if another thread has opened it as a snapshot; it stays read-only then.
        let writable = self.volume.set_read_only(id, false);
        let unmarked = self.volume.forget_received(id);
        // The caller returns a more important error.
        drop(writable.and(unmarked));
    }

    /// Copies data that cannot be shared, and keeps holes. As for a clone, the whole source range must exist.
    fn copy(&self, from: (FileId, u64), to: (FileId, u64), len: u64) -> Result<(), TargetError> {
        let volume = &self.volume;
        let behind_end = || Error::Invalid("range behind the end of the file");
        let (start, end) = (from.1, from.1.checked_add(len).ok_or_else(behind_end)?);
        if volume.attr(from.0)?.size < end {
            return Err(behind_end().into());
        }
        if from.0 == to.0 && start.abs_diff(to.1) < len {
            return Err(Error::Invalid("ranges overlap").into());
        }
        let mut at = start;
        while at < end {
            let data = volume.seek_data(from.0, at)?.unwrap_or(end).min(end);
            if data > at {
                self.make_hole(to.0, to.1 + (at - start), data - at)?;
            }
            at = data;
            let hole = if at < end {
                volume.seek_hole(from.0, at)?.unwrap_or(end).min(end)
            } else {
                end
            };
            while at < hole {
                let to_at = to.1 + (at - start);
                match volume.copy_range(from.0, at, hole - at, to.0, to_at)? {
                    0 => return Err(behind_end().into()),
                    more => at += more,
                }
            }
        }
        Ok(())
    }

    /// Makes a range read as zeros. The range may be larger than the volume.
    fn make_hole(&self, id: FileId, offset: u64, len: u64) -> Result<(), TargetError> {
        let (size, end) = (self.volume.attr(id)?.size, offset + len);
        if offset < size {
            let len = len.min(size - offset);
            self.volume
                .fallocate(id, Fallocate::PunchHole, offset, len)?;
        }
        if end > size {
            self.volume.truncate(id, end)?;
        }
        Ok(())
    }

    fn source_file(&mut self, from: &CloneSource<'_>) -> Result<FileId, TargetError> {
        let volume = Arc::clone(&self.volume);
        match &from.subvolume {
            Some(sent) => {
                let at = self.source(sent)?;
                let files = &mut self.sources[at].1;
                self.reader.file(&volume, files, from.path)
            }
            None => self.file(from.path),
        }
    }
}

fn new_inode<'a>(new: &NewFile<'a>) -> NewInode<'a> {
    let device = |mode, device: DeviceNumber| NewInode {
        rdev: device.to_inode(),
        ..NewInode::with_mode(mode)
    };
    match *new {
        NewFile::File => NewInode::file(0o600),
        NewFile::Directory => NewInode::directory(0o700),
        NewFile::Fifo => NewInode::with_mode(0o010_600),
        NewFile::Socket => NewInode::with_mode(0o140_600),
        NewFile::CharDevice(number) => device(0o020_600, number),
        NewFile::BlockDevice(number) => device(0o060_600, number),
        NewFile::Symlink(target) => NewInode::symlink(target),
    }
}

impl Target for VolumeTarget {
    fn sectorsize(&self) -> Result<u64, TargetError> {
        Ok(self.volume.superblock().sectorsize.get().into())
    }

    fn create_subvolume(&mut self, name: &[u8]) -> Result<(), TargetError> {
        let root = NewInode::directory(0o755);
        let id = self.volume.create_subvolume(self.dir, name, &root)?;
        self.begin(id, name);
        Ok(())
    }

    fn create_snapshot(&mut self, name: &[u8], parent: &Sent) -> Result<(), TargetError> {
        // An earlier subvolume of the stream may be meant.
        let subvolumes = &mut All::default();
        let source = self.reader.find_parent(&self.volume, subvolumes, parent)?;
        let source = source.ok_or(TargetError::NoParent(parent.uuid))?;
        let id = self.volume.snapshot(source, self.dir, name, false)?;
        self.begin(id, name);
        Ok(())
    }

    /// Marks the subvolume as received. After a crash it is either complete and marked, or not marked, because its
    /// data is made durable first. When this returns, the mark is durable, too.
    fn finish(&mut self, sent: &Sent) -> Result<(), TargetError> {
        let id = self.current()?.subvolume;
        self.volume.sync()?;
        self.volume.check_data_stored(id)?;
        let from = ReceivedFrom {
            uuid: sent.uuid,
            transid: sent.ctransid,
            time: FileTime::default(),
        };
        self.volume.set_received(id, &from)?;
        if let Err(error) = self.volume.set_read_only(id, true) {
            self.unmark(id);
            return Err(error.into());
        }
        self.volume.sync()?;
        self.current = None;
        Ok(())
    }

    fn create(&mut self, path: TreePath<'_>, new: &NewFile<'_>) -> Result<(), TargetError> {
        let (dir_path, name) = path.split().ok_or(Error::Exists)?;
        let dir = self.dir(dir_path)?;
        let id = self.volume.create(dir.id, name, &new_inode(new))?;
        if dir.hands_on {
            for (name, _) in self.volume.xattrs(id)? {
                if HANDED_ON.contains(&&*name) {
                    self.volume.remove_xattr(id, &name)?;
                }
            }
        }
        self.current()?.know_file(path, id);
        self.entry_changed(dir.id, name);
        Ok(())
    }

    fn rename(&mut self, path: TreePath<'_>, to: TreePath<'_>) -> Result<(), TargetError> {
        let (dir, name) = self.place(path)?;
        let (to_dir, to_name) = self.place(to)?;
        let id = child(&self.volume, dir, name)?;
        let mode = RenameMode::Replace;
        self.volume.rename(dir, name, (to_dir, to_name), mode)?;
        let current = self.current()?;
        current.forget(path);
        current.forget(to);
        current.know_file(to, id);
        self.entry_changed(dir, name);
        self.entry_changed(to_dir, to_name);
        Ok(())
    }

    fn create_renamed(
        &mut self,
        path: TreePath<'_>,
        to: TreePath<'_>,
        new: &NewFile<'_>,
    ) -> Result<bool, TargetError> {
        let (dir, name) = to.split().ok_or(Error::Exists)?;
        let dir = self.dir(dir)?;
        if !self.could_pass_through(path, &dir)? {
            return Ok(false);
        }
        // This also fails if it would replace an existing file.
        let id = self.volume.create(dir.id, name, &new_inode(new))?;
        self.current()?.know_file(to, id);
        self.entry_changed(dir.id, name);
        Ok(true)
    }

    fn create_filled(
        &mut self,
        path: TreePath<'_>,
        to: TreePath<'_>,
        data: &[u8],
        set: &SetAttributes,
    ) -> Result<bool, TargetError> {
        let (dir_path, name) = to.split().ok_or(Error::Exists)?;
        let dir = self.dir(dir_path)?;
        if dir.hands_anything() || path != to && !self.could_pass_through(path, &dir)? {
            return Ok(false);
        }
        let new = new_inode(&NewFile::File);
        let (uid, gid) = set.owner.unwrap_or((new.uid, new.gid));
        let new = NewInode {
            mode: set.mode.map_or(new.mode, |mode| new.mode & !0o7777 | mode),
            uid,
            gid,
            ..new
        };
        let contents = NewContents {
            data,
            times: set.times,
        };
        let Some(id) = self.volume.create_filled(dir.id, name, &new, &contents)? else {
            return Ok(false);
        };
        self.current()?.know_file(to, id);
        self.entry_changed(dir.id, name);
        Ok(true)
    }

    fn link(&mut self, path: TreePath<'_>, existing: TreePath<'_>) -> Result<(), TargetError> {
        let file = self.file(existing)?;
        let (dir, name) = self.place(path)?;
        self.volume.link(file, dir, name)?;
        self.entry_changed(dir, name);
        self.file_changed(file);
        Ok(())
    }

    fn unlink(&mut self, path: TreePath<'_>) -> Result<(), TargetError> {
        let (dir, name) = self.place(path)?;
        self.volume.unlink(dir, name)?;
        self.current()?.forget(path);
        self.entry_changed(dir, name);
        Ok(())
    }

    fn rmdir(&mut self, path: TreePath<'_>) -> Result<(), TargetError> {
        let (dir, name) = self.place(path)?;
        // In a snapshot, the entry of a nested subvolume is an empty directory.
        child(&self.volume, dir, name)?;
        self.volume.rmdir(dir, name)?;
        self.current()?.forget(path);
        self.entry_changed(dir, name);
        Ok(())
    }

    fn set_xattr(
        &mut self,
        path: TreePath<'_>,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), TargetError> {
        let id = self.file(path)?;
        self.volume.set_xattr(id, name, value, XattrMode::Any)?;
        if HANDING_ON.contains(&name) {
            self.current()?.forget(path);
        }
        self.file_changed(id);
        Ok(())
    }

    fn remove_xattr(&mut self, path: TreePath<'_>, name: &[u8]) -> Result<(), TargetError> {
        let id = self.file(path)?;
        self.volume.remove_xattr(id, name)?;
        if HANDING_ON.contains(&name) {
            self.current()?.forget(path);
        }
        self.file_changed(id);
        Ok(())
    }

    fn chmod(&mut self, path: TreePath<'_>, mode: u32) -> Result<(), TargetError> {
        let mode = Some(mode);
        self.set_attr(
            path,
            &SetAttr {
                mode,
                ..SetAttr::default()
            },
        )
    }

    fn chown(&mut self, path: TreePath<'_>, uid: u32, gid: u32) -> Result<(), TargetError> {
        let set = SetAttr {
            uid: Some(uid),
            gid: Some(gid),
            ..SetAttr::default()
        };
        self.set_attr(path, &set)
    }

    fn set_times(
        &mut self,
        path: TreePath<'_>,
        atime: FileTime,
        mtime: FileTime,
    ) -> Result<(), TargetError> {
        let set = SetAttr {
            atime: Some(SetTime::At(atime)),
            mtime: Some(SetTime::At(mtime)),
            ..SetAttr::default()
        };
        self.set_attr(path, &set)
    }

    fn set_attributes(
        &mut self,
        path: TreePath<'_>,
        set: &SetAttributes,
    ) -> Result<(), TargetError> {
        let set = SetAttr {
            uid: set.owner.map(|(uid, _)| uid),
            gid: set.owner.map(|(_, gid)| gid),
            mode: set.mode,
            atime: set.times.map(|(atime, _)| SetTime::At(atime)),
            mtime: set.times.map(|(_, mtime)| SetTime::At(mtime)),
            ..SetAttr::default()
        };
        self.set_attr(path, &set)
    }

    fn write(&mut self, path: TreePath<'_>, offset: u64, data: &[u8]) -> Result<(), TargetError> {
        let id = self.file(path)?;
        self.volume.write(id, offset, data)?;
        self.file_changed(id);
        Ok(())
    }

    fn write_encoded(
        &mut self,
        path: TreePath<'_>,
        offset: u64,
        extent: &EncodedExtent<'_>,
    ) -> Result<bool, TargetError> {
        let id = self.file(path)?;
        let data = EncodedData {
            compression: extent.compression,
            bytes: extent.bytes,
            ram_bytes: extent.unencoded_len(),
            part: extent.unencoded_offset..extent.unencoded_offset + extent.file_len,
        };
        let is_stored = self.volume.write_encoded(id, offset, &data)?;
        if is_stored {
            self.file_changed(id);
        }
        Ok(is_stored)
    }

    fn clone_range(
        &mut self,
        path: TreePath<'_>,
        offset: u64,
        len: u64,
        from: &CloneSource<'_>,
    ) -> Result<(), TargetError> {
        let source = self.source_file(from)?;
        let id = self.file(path)?;
        // The engine takes a length of 0 as "up to the end of the source".
        if len == 0 {
            return Ok(());
        }
        let cloned = self
            .volume
            .clone_range(source, from.offset, len, id, offset);
        match cloned {
            // The sender has smaller sectors, or only one of the files has checksums.
            Err(Error::Unaligned | Error::CsumsDiffer) => {
                self.copy((source, from.offset), (id, offset), len)?;
            }
            cloned => drop(cloned?),
        }
        self.file_changed(id);
        Ok(())
    }

    fn truncate(&mut self, path: TreePath<'_>, size: u64) -> Result<(), TargetError> {
        let id = self.file(path)?;
        self.volume.truncate(id, size)?;
        self.file_changed(id);
        Ok(())
    }

    fn fallocate(
        &mut self,
        path: TreePath<'_>,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Result<(), TargetError> {
        let keep_size = mode & KEEP_SIZE != 0;
        let wanted = match mode & !KEEP_SIZE {
            0 => Fallocate::Reserve { keep_size },
            PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            _ => return Err(TargetError::FallocateMode(mode)),
        };
        if len == 0 {
            return Err(Error::Invalid("length").into());
        }
        let id = self.file(path)?;
        self.volume.fallocate(id, wanted, offset, len)?;
        self.file_changed(id);
        Ok(())
    }
}
