//! Reading attributes for `stat`, and changing them.
//!
//! Writes, truncations and changes of owner remove set-id bits and capabilities from a file. The kernel leaves that to
//! this module (`FUSE_HANDLE_KILLPRIV_V2`). It flags callers that may not keep the bits, except for a change of owner,
//! which always removes them.
//!
//! A kernel with a writeback cache also keeps size and times of regular files. It may send the times at any moment
//! while a file is open for writing, even if flags that forbid writes were set since.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ubtrfs_device::nonblocking;
use ubtrfs_fs::{FileTime, SetAttr, SetTime, Volume};
use ubtrfs_fuse_server::request::{
    Attr, AttrChange, Attributes, Context, DeviceNr, Errno, FileKind, Handle, NodeId, Result, Time,
    TimeChange,
};

use super::errno::errno;
use super::handles::OpenHandle;
use super::source::{FileId, Source};
use super::{Adapter, volume};
use crate::caller::{SystemCall, WRITE};

/// File capabilities: rights that a program has and the user who runs it lacks.
const CAPABILITY: &[u8] = b"security.capability";
const SETID: u32 = 0o6000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// Creates attributes of a file whose kind alone is known.
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
    pub(super) fn getattr(&self, node: NodeId) -> Result<Attributes> {
        let node = self.node(node)?;
        let inode = self.source.inode(node.id)?;
        Ok(Self::attributes_of(node.number, &inode))
    }

    pub(super) fn setattr(
        &self,
        context: &Context,
        node: NodeId,
        handle: Option<Handle>,
        change: &AttrChange,
    ) -> Result<Attributes> {
        let volume = self.writing()?;
        let node = self.node(node)?;
        let id = node.id;
        if let Some(size) = change.size_bytes {
            // truncate(2) to the current size changes no time. ftruncate(2) does, and so does O_TRUNC, which looks like
            // truncate(2) to 0.
            let is_taken_back = self.appends.take_back(id, size)?;
            if is_taken_back {
                volume.take_back_to(id, size).map_err(errno)?;
            } else if size != 0
                && handle.is_none()
                && self.source.inode(id)?.attr.size_bytes == size
            {
                self.may_write(id)?;
            } else {
                self.resize(volume, id, handle, size)?;
            }
        }
        let bearer = if takes_rights(change) {
            Some(volume.stored_attr(id).map_err(errno)?)
        } else {
            None
        };
        if let Some(attr) = &bearer
            && says_nothing(change)
            && has_setid(attr)
        {
            self.must_bear_writes(context, volume, (id, attr))?;
        }
        if bearer.is_some() || change.size_bytes.is_some() {
            self.take_capability(volume, id)?;
        }
        let mut set = set_attr(change);
        if let Some(attr) = &bearer {
            set = self.without_setid(context, attr, set);
        }
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
            // The kernel kept the time of the unlink for a file that is gone with its last name.
            Err(Errno::STALE) if set.of_writes => {
                let attr = of_kind(node.number, FileKind::Regular);
                let ttl = Duration::ZERO;
                return Ok(Attributes { attr, ttl });
            }
            attr => attr?,
        };
        let inode = volume::shown(volume, &attr);
        // FUSE-1
        Ok(Self::attributes_of(node.number, &inode))
    }

    /// Sets the size of a file. With a handle, the file's flags were checked when it was opened.
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

    /// Removes the capabilities and set-id bits of a file that is written to. The handle `open` is used for the write.
    /// `by` is the caller if it may not keep set-id bits.
    pub(super) fn remove_privs(
        &self,
        volume: &Arc<Volume>,
        (node, id): (NodeId, FileId),
        open: Option<&OpenHandle>,
        by: Option<&Context>,
    ) -> Result<()> {
        // Read before the capability is removed: one that is set in between raises the counter, so the file is checked
        // again.
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
        // A write-through kernel flags every write by a user without privileges.
        if let Some(context) = by {
            let attr = volume.stored_attr(id).map_err(errno)?;
            if attr.mode & SETID != 0 {
                let set = self.without_setid(context, &attr, SetAttr::default());
                volume.set_attr(id, &set).map_err(errno)?;
            }
        }
        Ok(())
    }

    /// Removes set-id bits in addition to another change. A member of the group keeps setgid without group execution.
    fn without_setid(&self, context: &Context, attr: &ubtrfs_fs::Attr, set: SetAttr) -> SetAttr {
        let is_file = attr.kind != ubtrfs_fs::FileKind::Directory;
        let mode = set.mode.unwrap_or(attr.mode);
        let is_lock = is_file && mode & SETGID != 0 && mode & GROUP_EXECUTE == 0;
        let loses_it = is_lock && !self.caller(context).keeps_setgid(attr.gid);
        SetAttr {
            mode: if loses_it {
                Some(mode & !SETID)
            } else {
                set.mode
            },
            clear_setid: is_file,
            ..set
        }
    }

    /// Checks that the caller may clear the set-id bits of a file by an empty change. The owner may, and other users by
    /// a write, which follows this request. Only the caller's system call shows whether that is a write or a chown.
    fn must_bear_writes(
        &self,
        context: &Context,
        volume: &Volume,
        (id, attr): (FileId, &ubtrfs_fs::Attr),
    ) -> Result<()> {
        let caller = self.caller(context);
        if caller.uid == 0 || caller.owns(attr) {
            return Ok(());
        }
        if !changes_owner(context)? && caller.may(volume, id, WRITE).map_err(errno)? {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }

    /// Checks that the caller may remove the capability of a file. The kernel removes it before it sends an empty
    /// chown, without checking the owner.
    pub(super) fn must_bear_removal(
        &self,
        context: &Context,
        volume: &Volume,
        (id, name): (FileId, &[u8]),
    ) -> Result<()> {
        if name != CAPABILITY {
            return Ok(());
        }
        let attr = volume.stored_attr(id).map_err(errno)?;
        let caller = self.caller(context);
        if has_setid(&attr) && caller.uid != 0 && !caller.owns(&attr) && changes_owner(context)? {
            Err(Errno::PERM)
        } else {
            Ok(())
        }
    }

    fn take_capability(&self, volume: &Arc<Volume>, id: FileId) -> Result<()> {
        if self.source.xattr(id, CAPABILITY)?.is_none() {
            return Ok(());
        }
        match volume.remove_xattr(id, CAPABILITY).map_err(errno) {
            // Another thread has removed it.
            Err(Errno::NODATA) => Ok(()),
            outcome => outcome,
        }
    }

    /// Counts a newly set capability: files that had no capability may have one now.
    pub(super) fn note_xattr(&self, name: &[u8]) {
        if name == CAPABILITY {
            self.capabilities.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Returns whether a file loses set-id bits when it is written to or given away.
fn has_setid(attr: &ubtrfs_fs::Attr) -> bool {
    attr.mode & SETID != 0 && attr.kind != ubtrfs_fs::FileKind::Directory
}

/// Returns whether the caller is in chown(2) or a system call of its family.
fn changes_owner(context: &Context) -> Result<bool> {
    // The caller may not be asleep in its system call yet.
    nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
    Ok(SystemCall::of(context.pid) == Some(SystemCall::ChangeOwner))
}

/// Returns whether a change removes set-id bits and capabilities of a file other than a directory. The kernel sends an
/// empty change for exactly that: for a chown to the same owner, or before it changes the file by other means.
fn takes_rights(change: &AttrChange) -> bool {
    let AttrChange {
        uid,
        gid,
        kill_setid,
        ..
    } = *change;
    kill_setid || uid.is_some() || gid.is_some() || says_nothing(change)
}

fn says_nothing(change: &AttrChange) -> bool {
    let owner = (change.uid, change.gid);
    let rest = (change.mode, change.size_bytes, change.atime, change.mtime);
    (owner, rest) == ((None, None), (None, None, None, None))
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
