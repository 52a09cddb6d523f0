//! Attributes: as `stat` shows them, and changing them.
//!
//! Writing, cutting and giving a file away take set-id bits and capabilities from it. The kernel leaves that to
//! us (`FUSE_HANDLE_KILLPRIV_V2`): it says when a caller may not keep the bits, but for a change of owner,
//! which always takes them.
//!
//! A kernel that keeps written pages keeps size and times of regular files with them, and sends the times
//! when it likes: for a file that is open for writing, whatever flags it has got since.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ubtrfs_engine::{FileTime, SetAttr, SetTime, Volume};

use super::errno::errno;
use super::handles::OpenHandle;
use super::source::{FileId, Source};
use super::{Adapter, volume};
use crate::request::{
    Attr, AttrChange, Attributes, DeviceNr, Errno, FileKind, Handle, NodeId, Result, Time,
    TimeChange,
};

/// The rights that a program has though who runs it has not.
const CAPABILITY: &[u8] = b"security.capability";
const SETID: u32 = 0o6000;

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

impl<S: Source> Adapter<S> {
    pub(super) fn change_attributes(
        &self,
        node: NodeId,
        handle: Option<Handle>,
        change: &AttrChange,
    ) -> Result<Attributes> {
        let volume = self.writing()?;
        let node = self.node(node)?;
        let id = node.id;
        if let Some(size) = change.size_bytes {
            self.resize(volume, id, handle, size)?;
        }
        let takes_rights = takes_rights(change);
        if takes_rights || change.size_bytes.is_some() {
            self.take_capability(volume, id)?;
        }
        let mut set = set_attr(change);
        set.clear_setid = takes_rights && self.source.inode(id)?.attr.kind != FileKind::Directory;
        let nothing = SetAttr {
            ctime: set.ctime,
            ..SetAttr::default()
        };
        let attr = if set == nothing {
            volume.attr(id)
        } else {
            volume.set_attr_and_look(id, &set)
        };
        let attr = match attr.map_err(errno) {
            // The kernel has kept the time at which the last name went, for a file that went with it.
            Err(Errno::STALE) if set.of_writes => {
                let attr = of_kind(node.number, FileKind::Regular);
                let ttl = Duration::ZERO;
                return Ok(Attributes { attr, ttl });
            }
            attr => attr?,
        };
        let inode = volume::shown(volume, &attr);
        Ok(Self::attributes_of(node.number, &inode))
    }

    /// With a handle, the file's flags were asked when it was opened.
    fn resize(
        &self,
        volume: &Arc<Volume>,
        id: FileId,
        handle: Option<Handle>,
        size: u64,
    ) -> Result<()> {
        let open = handle.and_then(|handle| self.handles.get(handle));
        match open.filter(|open| open.access.writes()) {
            Some(open) => volume.truncate_open(&open.file, size),
            None => volume.truncate(id, size),
        }
        .map_err(errno)
    }

    /// Takes from a file that is written to what its contents gave it. `handle` is what it is written through.
    pub(super) fn take_rights(
        &self,
        volume: &Arc<Volume>,
        (node, id): (NodeId, FileId),
        open: Option<&OpenHandle>,
        kill_setid: bool,
    ) -> Result<()> {
        let count = self.capabilities.load(Ordering::Acquire);
        let has_none = match open {
            Some(open) => open.without_capability.load(Ordering::Relaxed) == count,
            None => self.known.is_without_capability(node.0, count),
        };
        if !has_none {
            self.take_capability(volume, id)?;
            match open {
                Some(open) => open.without_capability.store(count, Ordering::Relaxed),
                None => self.known.note_without_capability(node.0, count),
            }
        }
        // A kernel that writes through says so of every write by who has no privileges.
        if kill_setid && volume.stored_attr(id).map_err(errno)?.mode & SETID != 0 {
            let set = SetAttr {
                clear_setid: true,
                ..SetAttr::default()
            };
            volume.set_attr(id, &set).map_err(errno)?;
        }
        Ok(())
    }

    fn take_capability(&self, volume: &Arc<Volume>, id: FileId) -> Result<()> {
        if self.source.xattr(id, CAPABILITY)?.is_none() {
            return Ok(());
        }
        match volume.remove_xattr(id, CAPABILITY).map_err(errno) {
            // Somebody else was faster.
            Err(Errno::NODATA) => Ok(()),
            outcome => outcome,
        }
    }

    /// An attribute was set: files that had no capability may have one now.
    pub(super) fn note_xattr(&self, name: &[u8]) {
        if name == CAPABILITY {
            self.capabilities.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Whether a change takes set-id bits and capabilities from what is no directory. One that changes nothing is
/// of a kernel that wants just that: for a new owner that is the old one, or before it changes the file by other means.
fn takes_rights(change: &AttrChange) -> bool {
    let AttrChange {
        mode,
        uid,
        gid,
        size_bytes,
        atime,
        mtime,
        ctime: _,
        kill_setid,
    } = *change;
    let says_nothing = (mode, size_bytes, atime, mtime) == (None, None, None, None);
    kill_setid || uid.is_some() || gid.is_some() || says_nothing
}

fn set_attr(change: &AttrChange) -> SetAttr {
    let time = |time| match time {
        TimeChange::Now => SetTime::Now,
        TimeChange::At(time) => SetTime::At(file_time(time)),
    };
    let only_times = (change.mode, change.uid, change.gid, change.size_bytes)
        == (None, None, None, None)
        && change.atime.is_none();
    SetAttr {
        mode: change.mode,
        uid: change.uid,
        gid: change.gid,
        atime: change.atime.map(time),
        mtime: change.mtime.map(time),
        ctime: change.ctime.map(file_time),
        clear_setid: false,
        of_writes: only_times && change.mtime.is_some() && change.ctime.is_some(),
    }
}

fn file_time(time: Time) -> FileTime {
    FileTime {
        sec: time.secs,
        nsec: time.nanos,
    }
}
