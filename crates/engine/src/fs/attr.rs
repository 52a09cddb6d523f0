//! Inode attributes.

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::item::{FileKind, InodeFlags, InodeItem, Timespec};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::FromBytes;

use super::FileId;
use crate::error::{CorruptItem, Error, Result};
use crate::volume::Volume;

/// A time as users see it: seconds since 1970, negative before, and nanoseconds within the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    pub sec: i64,
    pub nsec: u32,
}

impl From<Timespec> for FileTime {
    fn from(time: Timespec) -> Self {
        FileTime {
            sec: time.sec.get(),
            nsec: time.nsec.get(),
        }
    }
}

/// What `stat` and `statx` show of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The number as shown to users: 2 for a stub directory.
    pub ino: InodeNr,
    pub kind: FileKind,
    /// Format and permission bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// As on disk: 12 bits of major number above 20 of minor number.
    pub rdev: u64,
    pub size: u64,
    /// Bytes of extents in use.
    pub nbytes: u64,
    pub generation: u64,
    /// The transaction that changed the inode last.
    pub transid: Transid,
    pub flags: InodeFlags,
    pub atime: FileTime,
    pub mtime: FileTime,
    pub ctime: FileTime,
    /// Birth.
    pub otime: FileTime,
}

impl Volume {
    pub fn attr(&self, id: FileId) -> Result<Attr> {
        if let Some(parent) = id.stub_parent() {
            let dir = self.attr(parent)?;
            return Ok(Attr {
                ino: InodeNr::EMPTY_SUBVOL_DIR,
                mode: 0o040_755,
                nlink: 1,
                rdev: 0,
                size: 0,
                nbytes: 0,
                flags: InodeFlags::empty(),
                ..dir
            });
        }
        let tree = self.subvolume_tree(id.root)?;
        let key = Key::new(id.ino.0, KeyType::INODE_ITEM, 0);
        let item = tree.view.get(&key)?.ok_or(Error::NoSuchInode(id))?;
        let corrupt = |what| Error::Corrupt {
            tree: id.root,
            key,
            what,
        };
        let (inode, _) =
            InodeItem::ref_from_prefix(&item).map_err(|_| corrupt(CorruptItem::Undecodable))?;
        let mode = inode.mode.get();
        Ok(Attr {
            ino: id.ino,
            kind: FileKind::from_mode(mode).ok_or_else(|| corrupt(CorruptItem::Mode(mode)))?,
            mode,
            nlink: inode.nlink.get(),
            uid: inode.uid.get(),
            gid: inode.gid.get(),
            rdev: inode.rdev.get(),
            size: inode.size.get(),
            nbytes: inode.nbytes.get(),
            generation: inode.generation.get(),
            transid: Transid(inode.transid.get()),
            flags: inode.flags(),
            atime: inode.atime.into(),
            mtime: inode.mtime.into(),
            ctime: inode.ctime.into(),
            otime: inode.otime.into(),
        })
    }
}
