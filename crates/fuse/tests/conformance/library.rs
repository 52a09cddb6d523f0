//! Reading a volume into a manifest with the library.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_fs::{Error, FileId, FileKind, FileTime, OpenOptions, Volume};
use ubtrfs_sim::manifest::{Kind, Listed, Manifest, Source, Stat, Time, Xattr};

pub(crate) struct Library {
    volume: Arc<Volume>,
}

/// Opens a volume.
pub(crate) fn open(devices: &[PathBuf], degraded: bool) -> Result<Arc<Volume>, Error> {
    Volume::open(devices, &OpenOptions::new().degraded(degraded))
}

/// Returns everything below the default subvolume's root, as read by the library.
pub(crate) fn manifest(volume: &Arc<Volume>) -> Manifest {
    Manifest::of(&mut Library {
        volume: Arc::clone(volume),
    })
}

impl Source for Library {
    type Node = FileId;
    type Error = Error;

    fn root(&mut self) -> Result<FileId, Error> {
        self.volume.root_dir(self.volume.default_subvolume()?)
    }

    fn list(&mut self, dir: &FileId) -> Result<Vec<Listed>, Error> {
        let mut entries = Vec::new();
        self.volume.readdir(*dir, 0, &mut |entry| {
            entries.push((entry.name, Some(kind(entry.kind))));
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    fn lookup(&mut self, dir: &FileId, name: &[u8]) -> Result<Option<FileId>, Error> {
        self.volume.lookup(*dir, name)
    }

    fn stat(&mut self, node: &FileId) -> Result<Stat, Error> {
        let attr = self.volume.attr(*node)?;
        let is_device = matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice);
        Ok(Stat {
            kind: kind(attr.kind),
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            nlink: u64::from(attr.nlink),
            rdev: if is_device {
                numbers(attr.rdev)
            } else {
                (0, 0)
            },
            size: attr.size,
            ino: attr.ino.0,
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            btime: Some(time(attr.otime)),
        })
    }

    fn readlink(&mut self, node: &FileId) -> Result<Vec<u8>, Error> {
        self.volume.readlink(*node)
    }

    fn xattrs(&mut self, node: &FileId) -> Result<Vec<Xattr>, Error> {
        self.volume.xattrs(*node)
    }

    fn read(&mut self, node: &FileId, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        self.volume.read(*node, offset, buf)
    }

    fn next_data(&mut self, node: &FileId, offset: u64) -> Result<Option<u64>, Error> {
        self.volume.seek_data(*node, offset)
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

/// Splits an on-disk device number: 12 bits of major number above 20 of minor.
fn numbers(rdev: u64) -> (u32, u32) {
    ((rdev >> 20) as u32, (rdev & 0xf_ffff) as u32)
}
