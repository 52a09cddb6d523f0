//! Conversion of values of `request` to the structs of answers.

use std::time::Duration;

use zerocopy::{FromZeros, IntoBytes};

use crate::abi::output;
use crate::abi::{Dirent, RECORD_ALIGN};
use crate::request::{
    AnswerBuffer, Attr, Attributes, DeviceNr, DirEntry, DirPlusSink, DirSink, Entry, FileKind,
    Opened, Room, StatFs, Time,
};

/// The mask `STATX_BASIC_STATS | STATX_BTIME` of statx(2).
const STATX_MASK: u32 = 0x0fff;

fn mode(attr: &Attr) -> u32 {
    (file_type(attr.kind) << 12) | u32::from(attr.permissions)
}

/// Returns `d_type`, which is also the upper bits of a mode.
fn file_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 1,
        FileKind::CharDevice => 2,
        FileKind::Directory => 4,
        FileKind::BlockDevice => 6,
        FileKind::Regular => 8,
        FileKind::Symlink => 10,
        FileKind::Socket => 12,
    }
}

/// Encodes a device number in the 32-bit form of the protocol: 12 bits of major within 20 of minor.
fn device(nr: DeviceNr) -> u32 {
    (nr.minor & 0xff) | ((nr.major & 0xfff) << 8) | ((nr.minor & 0xf_ff00) << 12)
}

#[inline]
pub(crate) fn attr(attr: &Attr) -> output::Attr {
    output::Attr {
        ino: attr.ino,
        size: attr.size_bytes,
        blocks: attr.blocks,
        atime: attr.atime.secs.cast_unsigned(),
        mtime: attr.mtime.secs.cast_unsigned(),
        ctime: attr.ctime.secs.cast_unsigned(),
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: mode(attr),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device(attr.rdev),
        blksize: attr.block_bytes,
        flags: 0,
    }
}

#[inline]
pub(crate) fn attr_out(attributes: &Attributes) -> output::AttrOut {
    output::AttrOut {
        attr_valid: attributes.ttl.as_secs(),
        attr_valid_nsec: attributes.ttl.subsec_nanos(),
        dummy: 0,
        attr: attr(&attributes.attr),
    }
}

#[inline]
pub(crate) fn entry_out(entry: &Entry) -> output::EntryOut {
    output::EntryOut {
        nodeid: entry.node.0,
        generation: entry.generation,
        entry_valid: entry.ttl.as_secs(),
        attr_valid: entry.attributes.ttl.as_secs(),
        entry_valid_nsec: entry.ttl.subsec_nanos(),
        attr_valid_nsec: entry.attributes.ttl.subsec_nanos(),
        attr: attr(&entry.attributes.attr),
    }
}

/// Encodes the absence of a name, valid for `ttl`.
#[inline]
pub(crate) fn absent(ttl: Duration) -> output::EntryOut {
    output::EntryOut {
        entry_valid: ttl.as_secs(),
        entry_valid_nsec: ttl.subsec_nanos(),
        ..output::EntryOut::new_zeroed()
    }
}

fn sx_time(time: Time) -> output::SxTime {
    output::SxTime {
        tv_sec: time.secs,
        tv_nsec: time.nanos,
        reserved: 0,
    }
}

#[inline]
pub(crate) fn statx_out(attributes: &Attributes) -> output::StatxOut {
    let attr = &attributes.attr;
    output::StatxOut {
        attr_valid: attributes.ttl.as_secs(),
        attr_valid_nsec: attributes.ttl.subsec_nanos(),
        flags: 0,
        spare: [0; 2],
        stat: output::Statx {
            mask: STATX_MASK,
            blksize: attr.block_bytes,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            // The upper half of a mode is always empty.
            mode: mode(attr) as u16,
            ino: attr.ino,
            size: attr.size_bytes,
            blocks: attr.blocks,
            atime: sx_time(attr.atime),
            btime: sx_time(attr.btime),
            ctime: sx_time(attr.ctime),
            mtime: sx_time(attr.mtime),
            rdev_major: attr.rdev.major,
            rdev_minor: attr.rdev.minor,
            ..output::Statx::new_zeroed()
        },
    }
}

/// Encodes the answer to an open. `cache` has the flags that keep earlier cached contents valid.
#[inline]
pub(crate) fn open_out(opened: Opened, cache: u32) -> output::OpenOut {
    let (fh, open_flags) = match opened {
        Opened::Elided => (0, cache),
        Opened::Handle {
            handle,
            keep_cache,
            direct,
        } => {
            let mut flags = if keep_cache { cache } else { 0 };
            if direct {
                flags |= output::FOPEN_DIRECT_IO | output::FOPEN_PARALLEL_DIRECT_WRITES;
            }
            (handle.0, flags)
        }
    };
    output::OpenOut {
        fh,
        open_flags,
        backing_id: 0,
    }
}

#[inline]
pub(crate) fn kstatfs(stat: &StatFs) -> output::Kstatfs {
    output::Kstatfs {
        blocks: stat.blocks,
        bfree: stat.blocks_free,
        bavail: stat.blocks_available,
        // btrfs has no inode table that could fill up.
        files: 0,
        ffree: 0,
        bsize: stat.block_bytes,
        namelen: stat.name_max,
        frsize: stat.block_bytes,
        padding: 0,
        spare: [0; 6],
    }
}

/// The part of a buffer that a file system fills with an answer of variable length.
pub(crate) struct Buffer<'a> {
    out: &'a mut [u8],
    /// The length of the directory entries.
    listed: usize,
}

impl<'a> Buffer<'a> {
    /// Uses at most this many bytes of `out`.
    #[inline]
    pub(crate) fn new(out: &'a mut [u8], most: usize) -> Self {
        let most = most.min(out.len());
        Self {
            out: &mut out[..most],
            listed: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    #[inline]
    pub(crate) fn listed(&self) -> usize {
        self.listed
    }

    #[inline]
    fn take(&mut self, before: &[u8], entry: &DirEntry<'_>) -> Room {
        let Ok(namelen) = u32::try_from(entry.name.len()) else {
            return Room::Full;
        };
        let dirent = Dirent {
            ino: entry.ino,
            off: entry.next_offset,
            namelen,
            kind: file_type(entry.kind),
        };
        let parts = [before, dirent.as_bytes(), entry.name];
        let plain_len: usize = parts.iter().map(|part| part.len()).sum();
        let len = plain_len.next_multiple_of(RECORD_ALIGN);
        let Some(mut record) = self.out.get_mut(self.listed..self.listed + len) else {
            return Room::Full;
        };
        for part in parts {
            let (head, tail) = record.split_at_mut(part.len());
            head.copy_from_slice(part);
            record = tail;
        }
        record.fill(0);
        self.listed += len;
        Room::Taken
    }
}

impl AnswerBuffer for Buffer<'_> {
    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        self.out
    }
}

impl DirSink for Buffer<'_> {
    #[inline]
    fn push(&mut self, entry: &DirEntry<'_>) -> Room {
        self.take(&[], entry)
    }
}

impl DirPlusSink for Buffer<'_> {
    #[inline]
    fn push(&mut self, entry: &DirEntry<'_>, found: Option<&Entry>) -> Room {
        // Node 0 means that no lookup was done.
        let found = found.map_or_else(output::EntryOut::new_zeroed, entry_out);
        self.take(found.as_bytes(), entry)
    }
}

#[cfg(test)]
mod tests;
