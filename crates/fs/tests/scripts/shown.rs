//! The engine as a source of manifests.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Error, FileId, FileKind, FileTime, Volume};
use ubtrfs_sim::manifest::{Kind, Listed, Manifest, Source, Stat, Time, Xattr};

pub(crate) struct Shown(pub(crate) Arc<Volume>);

/// Returns the manifest of the engine's whole volume.
pub(crate) fn manifest(volume: &Arc<Volume>) -> Manifest {
    Manifest::of(&mut Shown(Arc::clone(volume)))
}

impl Source for Shown {
    type Node = FileId;
    type Error = Error;

    fn root(&mut self) -> Result<FileId, Error> {
        self.0.root_dir(RootId::FS_TREE)
    }

    fn list(&mut self, dir: &FileId) -> Result<Vec<Listed>, Error> {
        let mut entries = Vec::new();
        self.0.readdir(*dir, 0, &mut |entry| {
            entries.push((entry.name, Some(kind(entry.kind))));
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    fn lookup(&mut self, dir: &FileId, name: &[u8]) -> Result<Option<FileId>, Error> {
        self.0.lookup(*dir, name)
    }

    fn stat(&mut self, node: &FileId) -> Result<Stat, Error> {
        let attr = self.0.attr(*node)?;
        let time = |time: FileTime| Time {
            seconds: time.sec,
            nanoseconds: time.nsec,
        };
        Ok(Stat {
            kind: kind(attr.kind),
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            nlink: u64::from(attr.nlink),
            rdev: numbers(attr.rdev),
            size: attr.size,
            ino: attr.ino.0,
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            btime: Some(time(attr.otime)),
        })
    }

    fn readlink(&mut self, node: &FileId) -> Result<Vec<u8>, Error> {
        self.0.readlink(*node)
    }

    fn xattrs(&mut self, node: &FileId) -> Result<Vec<Xattr>, Error> {
        self.0.xattrs(*node)
    }

    fn read(&mut self, node: &FileId, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        self.0.read(*node, offset, buf)
    }

    fn next_data(&mut self, node: &FileId, offset: u64) -> Result<Option<u64>, Error> {
        self.0.seek_data(*node, offset)
    }
}

pub(crate) fn kind(kind: FileKind) -> Kind {
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

/// Returns the major and minor number of a device number as on disk: 12 bits of major number above 20 of
/// minor.
pub(crate) fn numbers(rdev: u64) -> (u32, u32) {
    ((rdev >> 20) as u32, (rdev & 0xf_ffff) as u32)
}
