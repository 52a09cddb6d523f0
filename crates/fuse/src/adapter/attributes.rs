//! Attributes as `stat` shows them.

use crate::request::{Attr, DeviceNr, FileKind, Time};

/// Attributes for a file of which only the kind is known.
pub(super) fn of_kind(ino: u64, kind: FileKind) -> Attr {
    Attr {
        ino,
        kind,
        permissions: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: DeviceNr::default(),
        size_bytes: 0,
        blocks: 0,
        block_bytes: 4096,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        btime: Time::default(),
    }
}
