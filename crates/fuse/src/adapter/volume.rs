//! The `Source` of a mounted `Volume`.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_fs::{DeviceNumber, Error, FileTime, Volume};
use ubtrfs_fuse_server::request::{Attr, DeviceNr, Errno, FileKind, Result, StatFs, Time};

use super::errno::errno;
use super::source::{Child, FileId, Inode, Source};

/// The kernel's btrfs allows no longer name.
const NAME_MAX: u32 = 255;

impl Source for Arc<Volume> {
    fn volume(&self) -> Option<&Arc<Volume>> {
        Some(self)
    }

    fn lookup(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        Volume::lookup(self, dir, name).map_err(errno)
    }

    fn inode(&self, id: FileId) -> Result<Inode> {
        match self.attr(id) {
            Ok(attr) => Ok(shown(self, &attr)),
            // In a read-only volume no inode disappears, so the name is dangling.
            Err(error @ (Error::NoSuchInode(_) | Error::NoSuchSubvolume(_)))
                if !self.is_writable() =>
            {
                tracing::error!("{error}");
                Err(Errno::UCLEAN)
            }
            Err(error) => Err(errno(error)),
        }
    }

    fn readdir(
        &self,
        dir: FileId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        Volume::readdir(self, dir, from, &mut |entry| {
            each(Child {
                index: entry.index,
                name: &entry.name,
                kind: file_kind(entry.kind),
                id: entry.id,
            })
        })
        .map_err(errno)
    }

    fn parent(&self, dir: FileId) -> Result<FileId> {
        Volume::parent(self, dir).map_err(errno)
    }

    fn readlink(&self, id: FileId) -> Result<Vec<u8>> {
        Volume::readlink(self, id).map_err(errno)
    }

    fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Volume::xattr(self, id, name).map_err(errno)
    }

    fn xattr_names(&self, id: FileId) -> Result<Vec<Vec<u8>>> {
        let xattrs = self.xattrs(id).map_err(errno)?;
        Ok(xattrs.into_iter().map(|(name, _)| name).collect())
    }

    fn read(&self, id: FileId, offset: u64, out: &mut [u8]) -> Result<usize> {
        Volume::read(self, id, offset, out).map_err(errno)
    }

    fn seek_data(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        Volume::seek_data(self, id, offset).map_err(errno)
    }

    fn seek_hole(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        Volume::seek_hole(self, id, offset).map_err(errno)
    }

    fn dir_end(&self, dir: FileId) -> Result<u64> {
        if self.is_writable() {
            Volume::dir_end(self, dir).map_err(errno)
        } else {
            Ok(u64::MAX)
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        let sizes = Volume::statfs(self).map_err(errno)?;
        let blocks = |bytes: u64| bytes / u64::from(sizes.block_size.max(1));
        Ok(StatFs {
            block_bytes: sizes.block_size,
            blocks: blocks(sizes.total_bytes),
            blocks_free: blocks(sizes.free_bytes),
            blocks_available: blocks(sizes.available_bytes),
            name_max: NAME_MAX,
        })
    }
}

/// Converts the kind of a file for replies.
pub(super) fn file_kind(kind: ubtrfs_fs::FileKind) -> FileKind {
    use ubtrfs_fs::FileKind as Stored;
    match kind {
        Stored::Regular => FileKind::Regular,
        Stored::Directory => FileKind::Directory,
        Stored::CharDevice => FileKind::CharDevice,
        Stored::BlockDevice => FileKind::BlockDevice,
        Stored::Fifo => FileKind::Fifo,
        Stored::Socket => FileKind::Socket,
        Stored::Symlink => FileKind::Symlink,
    }
}

/// Returns attributes as a mount displays them.
pub(super) fn shown(volume: &Volume, attr: &ubtrfs_fs::Attr) -> Inode {
    let sector_bytes = volume.superblock().sectorsize.get();
    Inode {
        attr: Attr {
            ino: attr.ino.0,
            kind: file_kind(attr.kind),
            permissions: (attr.mode & 0o7777) as u16,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: device(attr.rdev),
            size_bytes: attr.size,
            blocks: blocks(attr.nbytes, sector_bytes),
            block_bytes: sector_bytes,
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            btime: time(attr.otime),
        },
        generation: attr.generation,
        flags: attr.flags,
    }
}

fn device(rdev: u64) -> DeviceNr {
    let DeviceNumber { major, minor } = DeviceNumber::from_inode(rdev);
    DeviceNr { major, minor }
}

pub(super) fn device_on_disk(DeviceNr { major, minor }: DeviceNr) -> u64 {
    DeviceNumber { major, minor }.to_inode()
}

/// Returns `st_blocks`: in whole sectors, even for inline data.
fn blocks(nbytes: u64, sector_bytes: u32) -> u64 {
    let sector_bytes = u64::from(sector_bytes.max(512));
    nbytes
        .div_ceil(sector_bytes)
        .saturating_mul(sector_bytes / 512)
}

fn time(time: FileTime) -> Time {
    Time {
        secs: time.sec,
        nanos: time.nsec.min(999_999_999),
    }
}
