//! `Volume` as a source, and which errno each of its errors is.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_engine::{Error, FileTime, SpaceError, Volume};

use super::source::{Child, FileId, Inode, Source};
use crate::request::{Attr, DeviceNr, Errno, Result, StatFs, Time};

/// The kernel's btrfs allows no longer name.
const NAME_MAX: u32 = 255;

impl Source for Arc<Volume> {
    fn lookup(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        Volume::lookup(self, dir, name).map_err(errno)
    }

    fn inode(&self, id: FileId) -> Result<Inode> {
        let attr = self.attr(id).map_err(errno)?;
        let sector_bytes = self.superblock().sectorsize.get();
        Ok(Inode {
            attr: Attr {
                ino: attr.ino.0,
                kind: attr.kind,
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
        })
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
                kind: entry.kind,
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

/// On disk a device number is the kernel's own: 12 bits of major above 20 of minor.
fn device(rdev: u64) -> DeviceNr {
    DeviceNr {
        major: (rdev >> 20 & 0xfff) as u32,
        minor: (rdev & 0xf_ffff) as u32,
    }
}

/// `st_blocks`: whole sectors are taken, even by what is stored within an inode.
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

/// What the caller is told. What is wrong on disk only the log says.
fn errno(error: Error) -> Errno {
    let errno = match &error {
        error if error.is_would_wait() => Errno::WOULD_WAIT,
        Error::WouldWait(_) => Errno::WOULD_WAIT,
        Error::NotFound => Errno::NOENT,
        Error::NotADirectory(_) => Errno::NOTDIR,
        Error::IsADirectory(_) => Errno::ISDIR,
        Error::NotASymlink(_)
        | Error::NotAFile(_)
        | Error::NotASubvolume
        | Error::Invalid(_)
        | Error::Unaligned
        | Error::CsumsDiffer => Errno::INVAL,
        Error::Exists => Errno::EXIST,
        Error::NotEmpty(_) => Errno::NOTEMPTY,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::NameHashFull => Errno::OVERFLOW,
        Error::TooManyLinks => Errno::MLINK,
        Error::CrossSubvolume => Errno::XDEV,
        Error::DefaultSubvolume(_) | Error::NotPermitted(_) => Errno::PERM,
        Error::NoXattr => Errno::NODATA,
        Error::XattrNamespace => Errno::OPNOTSUPP,
        Error::FileTooBig => Errno::FBIG,
        Error::TooManySymlinks => Errno::LOOP,
        // On a volume that does not change, only a name that leads nowhere gets here.
        Error::Corrupt { .. }
        | Error::NoSuchInode(_)
        | Error::NoSuchSubvolume(_)
        | Error::NoSuchTree(_)
        | Error::Ref(_) => Errno::UCLEAN,
        Error::ReadOnly
        | Error::ReadOnlySubvolume(_)
        | Error::Aborted(_)
        | Error::Seed
        | Error::Unwritable(_) => Errno::ROFS,
        Error::NoSpace | Error::XattrTooBig => Errno::NOSPC,
        Error::Space(SpaceError::Device(_)) => Errno::IO,
        Error::Space(_) => Errno::NOSPC,
        Error::Device(_)
        | Error::Build(_)
        | Error::NoConvergence(_)
        | Error::Thread(_)
        | Error::Tree(_)
        | Error::DataRead { .. }
        | Error::DataLost { .. }
        | Error::CsumMissing { .. }
        | Error::Decompress { .. } => Errno::IO,
    };
    if matches!(errno, Errno::IO | Errno::UCLEAN) {
        tracing::error!("{error}");
    }
    errno
}
