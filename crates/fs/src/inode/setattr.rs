//! Changing mode, owner and times.
//!
//! Not here: a file's size (`Volume::truncate`).

use ubtrfs_format::item::acl::{self, Parsed};
use ubtrfs_format::item::{FileKind, FileTime, InodeFlags, InodeItem};
use ubtrfs_storage::{EditEstimate, FileId, lock};

use super::attr::SETGID;
use super::draft::Draft;
use super::inode_item::{kind_of, note_change};
use super::xattr::{XattrMode, find_xattr};
use super::{Attr, Inodes, note_times};
use crate::error::{Error, Result};

const SETUID: u32 = 0o4000;
const GROUP_EXECUTE: u32 = 0o010;
const PERMISSIONS: u32 = 0o7777;

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(FileTime),
}

/// The attributes to change. None keeps an attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits; format bits are ignored.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Defaults to now.
    pub ctime: Option<FileTime>,
    /// Clears the bits that a write or a chown clears: setuid, and setgid of a group-executable file.
    pub clear_setid: bool,
    /// Only times are set, for writes that were allowed when the file was opened. The inode's flags are then
    /// not checked.
    pub of_writes: bool,
}

impl Inodes {
    /// Changes attributes. A new mode is also stored in the access ACL, if ACLs are enabled.
    pub(crate) fn set_attr(&self, id: FileId, set: &SetAttr) -> Result<()> {
        self.set_attr_and_look(id, set).map(drop)
    }

    /// Changes attributes, and returns all attributes afterwards.
    pub(crate) fn set_attr_and_look(&self, id: FileId, set: &SetAttr) -> Result<Attr> {
        let reservation =
            self.reserve_metadata(id.root, EditEstimate::items(1).and(self.cost_of_times()))?;
        let inode = self.inode_in_use(id)?;
        let state = lock::write(&inode.lock)?;
        let mut draft = Draft::new(&inode.tree);
        let mut item = draft.inode(id)?;
        check_settable(id, &item, set)?;
        inode.tree.check_writable()?;
        let now = FileTime::now();
        let old_mode = item.mode.get();
        let mode = new_mode(&item, set);
        if mode != old_mode {
            item.mode = mode.into();
            if set.mode.is_some() {
                draft.chmod_acl(id, &item)?;
            }
        }
        let or_now = |time| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        if let Some(uid) = set.uid {
            item.uid = uid.into();
        }
        if let Some(gid) = set.gid {
            item.gid = gid.into();
        }
        if let Some(time) = set.atime {
            item.atime = or_now(time).into();
        }
        if let Some(time) = set.mtime {
            item.mtime = or_now(time).into();
        }
        note_change(&mut item, set.ctime.unwrap_or(now));
        draft.put_inode(id.ino, &item);
        let attr = self.with_delalloc(&inode, &state, Attr::of(id, &item)?)?;
        let txn = self.join_to_change(reservation, &inode.tree)?;
        if set.of_writes && mode == old_mode {
            note_times(&txn, &inode, &mut item)
        } else {
            draft.enter(&txn)
        }
        drop((txn, state));
        self.flush_lazy_times();
        Ok(attr)
    }
}

fn check_settable(id: FileId, item: &InodeItem, set: &SetAttr) -> Result<()> {
    if set.of_writes {
        return Ok(());
    }
    let flags = item.flags();
    // Only a ctime that equals the set time marks a touch: the time of the change is "now".
    let touches = |time: Option<SetTime>| match time {
        None | Some(SetTime::Now) => true,
        Some(SetTime::At(time)) => set.ctime == Some(time),
    };
    let only_touches = touches(set.atime)
        && touches(set.mtime)
        && (set.mode, set.uid, set.gid) == (None, None, None);
    if flags.contains(InodeFlags::IMMUTABLE) || flags.contains(InodeFlags::APPEND) && !only_touches
    {
        return Err(Error::NotPermitted(id));
    }
    Ok(())
}

fn new_mode(item: &InodeItem, set: &SetAttr) -> u32 {
    let old = item.mode.get();
    let mut mode = match set.mode {
        Some(mode) => old & !PERMISSIONS | mode & PERMISSIONS,
        None => old,
    };
    if set.clear_setid {
        mode &= !SETUID;
        if mode & GROUP_EXECUTE != 0 {
            mode &= !SETGID;
        }
    }
    mode
}

impl Draft<'_> {
    /// Updates the access ACL with the new mode of `item`, if ACLs are enabled.
    fn chmod_acl(&mut self, id: FileId, item: &InodeItem) -> Result<()> {
        if !self.tree().acls || kind_of(id, item)? == FileKind::Symlink {
            return Ok(());
        }
        let value = find_xattr(&self.tree().view, id.ino, acl::ACCESS)?;
        let Some(Parsed::Acl(mut acl)) = value.as_deref().map(acl::parse) else {
            return Ok(());
        };
        acl.chmod(item.mode.get());
        match acl.applied_to(item.mode.get()).access {
            Some(acl) => self.set_xattr(id.ino, acl::ACCESS, &acl.to_bytes(), XattrMode::Any),
            None => self.remove_xattr(id.ino, acl::ACCESS).map(drop),
        }
    }
}
