//! Times and file attributes as C structures.

use std::time::SystemTime;

use ubtrfs::{FileKind, FileTime, Metadata};

use crate::failure::{Failure, Result};

/// A time: seconds since 1970 in UTC, and nanoseconds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ubtrfs_timespec {
    pub sec: i64,
    pub nsec: u32,
}

impl From<SystemTime> for ubtrfs_timespec {
    fn from(time: SystemTime) -> ubtrfs_timespec {
        let FileTime { sec, nsec } = time.into();
        ubtrfs_timespec { sec, nsec }
    }
}

impl ubtrfs_timespec {
    pub(crate) fn to_time(self) -> Result<SystemTime> {
        let ubtrfs_timespec { sec, nsec } = self;
        let time = FileTime { sec, nsec }.to_system_time();
        time.ok_or_else(|| Failure::invalid("no such time"))
    }
}

/// A requested time of a file.
pub(crate) enum NewTime {
    Kept,
    /// The current time.
    Now,
    At(SystemTime),
}

impl NewTime {
    /// Reads a time of utimensat(2), with its two special values.
    pub(crate) fn of(time: Option<&ubtrfs_timespec>) -> Result<NewTime> {
        match time {
            None => Ok(NewTime::Kept),
            Some(time) if i64::from(time.nsec) == libc::UTIME_OMIT => Ok(NewTime::Kept),
            Some(time) if i64::from(time.nsec) == libc::UTIME_NOW => Ok(NewTime::Now),
            Some(time) => Ok(NewTime::At(time.to_time()?)),
        }
    }
}

/// Attributes of a file.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_stat {
    /// The subvolume of the file. Together with `ino` it identifies the file in the volume.
    pub subvolume_id: u64,
    pub ino: u64,
    pub size: u64,
    /// The allocated space, in units of 512 bytes.
    pub blocks: u64,
    pub nlink: u64,
    /// The device number of a device file.
    pub rdev: u64,
    /// File type and permissions: use S_ISDIR(mode) and similar macros of sys/stat.h.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: ubtrfs_timespec,
    pub mtime: ubtrfs_timespec,
    pub ctime: ubtrfs_timespec,
    /// The time of creation.
    pub btime: ubtrfs_timespec,
}

impl From<Metadata> for ubtrfs_stat {
    fn from(of: Metadata) -> ubtrfs_stat {
        ubtrfs_stat {
            subvolume_id: of.subvolume_id(),
            ino: of.ino(),
            size: of.len(),
            blocks: of.blocks(),
            nlink: of.nlink(),
            rdev: of.rdev(),
            mode: of.mode(),
            uid: of.uid(),
            gid: of.gid(),
            atime: of.accessed().into(),
            mtime: of.modified().into(),
            ctime: of.changed().into(),
            btime: of.created().into(),
        }
    }
}

/// Returns the file type bits of a mode.
pub(crate) fn mode_of(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::Symlink => libc::S_IFLNK,
    }
}
