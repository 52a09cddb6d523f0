//! A mount of the kernel's btrfs as the target of a stream, through system calls and ioctls.
//!
//! Directories are opened below the new subvolume with openat2, which follows no links and does not leave the
//! mount. The last name of a path is never followed. A directory of another subvolume is recognized by its
//! device number and refused.

mod kept;
mod open_subvolume;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
    Timestamps, Uid, XattrFlags, chownat, fallocate, fstat, linkat, lremovexattr, lsetxattr,
    makedev, mkdirat, mknodat, openat, renameat_with, seek, symlinkat, syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_fs::{DeviceNumber, FileTime, SubvolumeInfo};
use ubtrfs_stream::{
    CloneSource, EncodedExtent, NewFile, Sent, Target, TargetError, TreePath, find_sent,
};

use self::kept::Kept;
use self::open_subvolume::{HANDED_ON, HANDING_ON, OPEN_FILE, OpenSubvolume, proc_path};
use super::data::{clone_range, write_encoded};
use super::{Asked, Inherited, Subvolumes};

/// The most clone sources kept open.
const MAX_SOURCES: usize = 16;
/// The bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// A target that receives into a directory of a mount.
#[derive(Debug)]
pub(crate) struct KernelTarget {
    dir: Asked,
    /// The mount point of the volume.
    mountpoint: PathBuf,
    current: Option<OpenSubvolume>,
    /// Those that were there when one was first not found by its UUID, while one is received.
    subvolumes: Option<Subvolumes>,
    /// Clone sources that were found.
    sources: Vec<(Sent, OpenSubvolume)>,
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

    /// Looks up the subvolume that a stream names, and opens its root directory.
    ///
    /// Searches all subvolumes only if the UUID tree leads to none that can be used, or the caller may not search it.
    fn find(&mut self, sent: &Sent) -> Result<Option<Asked>, TargetError> {
        let of_uuid = self.dir.subvolumes_of_uuid(&sent.uuid);
        let of_uuid = of_uuid.and_then(|ids| Subvolumes::ask_some(&self.dir, ids));
        if let Ok(of_uuid) = of_uuid
            && let Ok(Some(root)) = self.find_among(&of_uuid, sent)
        {
            return Ok(Some(root));
        }
        let subvolumes = match self.subvolumes.take() {
            Some(subvolumes) => subvolumes,
            None => Subvolumes::ask(&self.dir, &self.mountpoint).map_err(io::Error::from)?,
        };
        let found = self.find_among(&subvolumes, sent);
        self.subvolumes = Some(subvolumes);
        found
    }

    fn find_among(
        &self,
        subvolumes: &Subvolumes,
        sent: &Sent,
    ) -> Result<Option<Asked>, TargetError> {
        let top = Asked::at(&self.mountpoint).map_err(io::Error::from)?;
        let top_id = match top.inode().map_err(io::Error::from)? {
            InodeNr::FIRST_FREE => Some(top.root_id().map_err(io::Error::from)?),
            // Only a part of a subvolume is mounted, so paths from its top are unknown.
            _ => None,
        };
        let path = |info: &SubvolumeInfo| path_below(subvolumes, info.id, top_id?);
        let found = find_sent(&subvolumes.infos, sent, |info| path(info).is_some())?;
        let Some(info) = subvolumes.infos.iter().find(|info| Some(info.id) == found) else {
            return Ok(None);
        };
        let path = path(info).ok_or(TargetError::Unreachable(info.id))?;
        let root = top.below(&path).map_err(io::Error::from)?;
        if root.root_id().map_err(io::Error::from)? == info.id {
            Ok(Some(root))
        } else {
            // Another file system is mounted or another subvolume was moved there.
            Err(TargetError::Unreachable(info.id))
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

/// Returns the path of a subvolume from the root of another.
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

/// Returns whether the ranges are of the same file and overlap.
fn is_overlap(from: (&File, u64), to: (&File, u64), len: u64) -> io::Result<bool> {
    let (source, file) = (from.0.metadata()?, to.0.metadata()?);
    let is_same = (source.dev(), source.ino()) == (file.dev(), file.ino());
    Ok(is_same && from.1.abs_diff(to.1) < len)
}

/// Copies data that cannot be shared. As for a clone, the source must contain the whole range.
fn copy(from: (&File, u64), to: (&File, u64), len: u64) -> io::Result<()> {
    if from.0.metadata()?.len() < from.1.saturating_add(len) {
        return Err(Errno::INVAL.into());
    }
    let mut buf = vec![0; COPY_BYTES.min(len as usize)];
    let (start, end) = (from.1, from.1 + len);
    let mut at = start;
    while at < end {
        let data = match seek(from.0, SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            // The rest is a hole.
            Err(Errno::NXIO) => end,
            Err(error) => return Err(error.into()),
        };
        if data > at {
            make_hole(to.0, to.1 + (at - start), data - at)?;
        }
        at = data;
        let hole = if at < end {
            seek(from.0, SeekFrom::Hole(at))?.min(end)
        } else {
            end
        };
        while at < hole {
            let part = (hole - at).min(buf.len() as u64) as usize;
            from.0.read_exact_at(&mut buf[..part], at)?;
            to.0.write_all_at(&buf[..part], to.1 + (at - start))?;
            at += part as u64;
        }
    }
    Ok(())
}

/// Makes a range read as zeros, even if it is larger than the volume's free space.
fn make_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let (size, end) = (file.metadata()?.len(), offset + len);
    if offset < size {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, flags, offset, len.min(size - offset))?;
    }
    if end > size {
        file.set_len(end)
    } else {
        Ok(())
    }
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
    fn sectorsize(&self) -> Result<u64, TargetError> {
        let current = self.current.as_ref().ok_or(Errno::NOENT);
        Ok(current.map_err(io::Error::from)?.sectorsize)
    }

    fn create_subvolume(&mut self, name: &[u8]) -> Result<(), TargetError> {
        done(self.dir.create_subvolume(name, &Inherited::default()))?;
        self.begin(name)
    }

    fn create_snapshot(&mut self, name: &[u8], parent: &Sent) -> Result<(), TargetError> {
        self.subvolumes = None;
        let source = self
            .find(parent)?
            .ok_or(TargetError::NoParent(parent.uuid))?;
        done(
            self.dir
                .snapshot(&source, name, false, &Inherited::default()),
        )?;
        self.begin(name)
    }

    fn finish(&mut self, sent: &Sent) -> Result<(), TargetError> {
        let current = self.current()?;
        current.file = None;
        // Sync first: the received UUID is committed at once, and must not survive data that a crash or a
        // failing device loses.
        done(syncfs(current.root.as_fd()))?;
        done(current.root.set_received(&sent.uuid, sent.ctransid))?;
        if let Err(error) = current.root.set_read_only(true) {
            // An unfinished subvolume must not look finished.
            let _ = current.root.forget_received();
            return Err(io::Error::from(error).into());
        }
        self.current = None;
        Ok(())
    }

    fn create(&mut self, path: TreePath<'_>, new: &NewFile<'_>) -> Result<(), TargetError> {
        let current = self.current()?;
        let (dir, name) = current.place(path)?;
        let node = |kind, device: DeviceNumber| {
            let number = makedev(device.major, device.minor);
            mknodat(&dir, name, kind, Mode::RUSR | Mode::WUSR, number)
        };
        let none = DeviceNumber::default();
        match *new {
            NewFile::File => {
                let flags = OPEN_FILE | OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
                let file = openat(&dir, name, flags, Mode::RUSR | Mode::WUSR);
                let file = file.map_err(io::Error::from)?;
                current.know_new_file(path, file.into());
            }
            NewFile::Directory => done(mkdirat(&dir, name, Mode::RWXU))?,
            NewFile::Fifo => done(node(FileType::Fifo, none))?,
            NewFile::Socket => done(node(FileType::Socket, none))?,
            NewFile::CharDevice(device) => done(node(FileType::CharacterDevice, device))?,
            NewFile::BlockDevice(device) => done(node(FileType::BlockDevice, device))?,
            NewFile::Symlink(target) => done(symlinkat(target, &dir, name))?,
        }
        if dir.hands_on {
            let place = proc_path(&dir, name);
            for name in HANDED_ON {
                match lremovexattr(&place, name) {
                    Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => {}
                    Err(error) => return Err(io::Error::from(error).into()),
                }
            }
        }
        Ok(())
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
        let current = self.current()?;
        let (dir, last) = current.place(path)?;
        let place = proc_path(&dir, last);
        done(lsetxattr(place, name, value, XattrFlags::empty()))?;
        if HANDING_ON.contains(&name) {
            current.forget(path);
        }
        Ok(())
    }

    fn remove_xattr(&mut self, path: TreePath<'_>, name: &[u8]) -> Result<(), TargetError> {
        let current = self.current()?;
        let (dir, last) = current.place(path)?;
        done(lremovexattr(proc_path(&dir, last), name))?;
        if HANDING_ON.contains(&name) {
            current.forget(path);
        }
        Ok(())
    }

    fn chmod(&mut self, path: TreePath<'_>, mode: u32) -> Result<(), TargetError> {
        let current = self.current()?;
        let (dir, name) = current.place(path)?;
        // fchmodat would follow a link. This opens the file itself, which may be a link.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&dir, name, flags, Mode::empty()).map_err(io::Error::from)?;
        let found = fstat(&file).map_err(io::Error::from)?;
        current.must_be_here(file.as_fd())?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            return Err(io::Error::from(Errno::OPNOTSUPP).into());
        }
        // The cached file has the old mode.
        current.file = None;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        done(rustix::fs::chmod(path, Mode::from_raw_mode(mode)))
    }

    fn chown(&mut self, path: TreePath<'_>, uid: u32, gid: u32) -> Result<(), TargetError> {
        let (dir, name) = self.current()?.place(path)?;
        let kept = Kept::of(&dir, name)?;
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        done(chownat(&dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
        if let Some(mode) = kept.mode() {
            self.chmod(path, mode)?;
        }
        kept.restore_capability(&proc_path(&dir, name))
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
        let current = self.current()?;
        current.file(path)?.write_all_at(data, offset)?;
        current.keep_set_ids()
    }

    fn write_encoded(
        &mut self,
        path: TreePath<'_>,
        offset: u64,
        extent: &EncodedExtent<'_>,
    ) -> Result<bool, TargetError> {
        let current = self.current()?;
        match write_encoded(current.file(path)?, offset, extent) {
            Ok(()) => current.keep_set_ids().map(|()| true),
            // The kernel is too old, the file has no checksums, or there is no contiguous space.
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
        // For the ioctl a length of 0 means the whole source.
        if len == 0 {
            return Ok(());
        }
        let source = match &from.subvolume {
            Some(sent) => self.source(sent)?.file(from.path)?.try_clone()?,
            None => self.current()?.file(from.path)?.try_clone()?,
        };
        let current = self.current()?;
        let file = current.file(path)?;
        match clone_range(&source, from.offset, len, file, offset) {
            // The sender has smaller sectors, or only one of the files has checksums.
            Err(Errno::INVAL | Errno::OPNOTSUPP)
                if !is_overlap((&source, from.offset), (file, offset), len)? =>
            {
                copy((&source, from.offset), (file, offset), len)?;
            }
            cloned => done(cloned)?,
        }
        current.keep_set_ids()
    }

    fn truncate(&mut self, path: TreePath<'_>, size: u64) -> Result<(), TargetError> {
        let current = self.current()?;
        current.file(path)?.set_len(size)?;
        current.keep_set_ids()
    }

    fn fallocate(
        &mut self,
        path: TreePath<'_>,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Result<(), TargetError> {
        let flags = FallocateFlags::from_bits(mode).ok_or(TargetError::FallocateMode(mode))?;
        let current = self.current()?;
        done(fallocate(current.file(path)?, flags, offset, len))?;
        current.keep_set_ids()
    }
}

#[cfg(test)]
mod tests {
    use ubtrfs::{Access, Volume};
    use ubtrfs_format::ids::Transid;
    use ubtrfs_sim::Scratch;
    use ubtrfs_sim::kernel::{self, KernelMount};

    use super::*;
    use crate::volume_access::ioctls::calls_of;

    #[test]
    fn parent_of_a_stream_is_asked_for_without_all_other_subvolumes() {
        if !kernel::or_skip("the ioctls of receive") {
            return;
        }
        let scratch = Scratch::new().unwrap();
        let calls = [0, 100].map(|others| {
            let image = scratch.path().join(others.to_string());
            let volume = Volume::create(&image, 256 << 20).unwrap();
            let root = volume.root();
            let parent = root.snapshot("/", "/parent", Access::ReadOnly).unwrap();
            for number in 0..others {
                root.create_dir(format!("/dir{number}")).unwrap();
                let to = format!("/dir{number}/other");
                root.snapshot("/", to, Access::ReadOnly).unwrap();
            }
            let info = volume.subvolume_info(parent.id()).unwrap().unwrap();
            let sent = Sent {
                uuid: info.uuid,
                ctransid: Transid(1),
            };
            drop(parent);
            volume.close().unwrap();
            let mount = KernelMount::new(&[image], "").unwrap();
            let dir = Asked::at(mount.path()).unwrap();
            let mut target = KernelTarget::new(dir, mount.path().to_owned());
            calls_of(|| {
                let found = target.find(&sent).unwrap().expect("the parent");
                assert_eq!(found.root_id().unwrap(), RootId(info.id));
            })
        });
        assert_eq!(calls[0], calls[1]);
    }
}
