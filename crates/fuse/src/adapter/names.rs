//! Directory entries: lookup, creation, removal and renames; targets of symbolic links.
//!
//! The engine sets owners, set-id bits, ACLs and flags of new files, from the caller's ids in the request. The kernel
//! has already checked that the caller may do it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ubtrfs_device::nonblocking;
use ubtrfs_format::item::FileKind;
use ubtrfs_fs::{FileId, NewInode, RenameMode, Volume};
use ubtrfs_fuse_server::request::{
    Answer, Context, Entry, Errno, NewNode, NodeId, RenameFlags, Result,
};

use super::errno::errno;
use super::source::Source;
use super::{Adapter, FOREVER, NAME_MAX, Node, volume};

const DIRECTORY: u32 = 0o040_000;
/// A character device with number 0:0 and no permissions.
const WHITEOUT: u32 = 0o020_000;

impl<S: Source> Adapter<S> {
    pub(super) fn lookup(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<Answer> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let dir = self.node(dir)?;
        match name {
            b"." => return self.lookup_dot(context, &dir),
            b".." => return self.lookup_dot_dot(&dir),
            _ => {}
        }
        let child = if dir.is_empty_subvolume_dir() {
            None
        } else {
            self.source.lookup(dir.id, name)?
        };
        let absent = Ok(Answer::Absent { ttl: FOREVER });
        let Some(child) = child else {
            return absent;
        };
        self.reachable(child)?;
        let inode = match self.source.inode(child) {
            // Its name was removed in between.
            Err(Errno::STALE) => return absent,
            inode => inode?,
        };
        let number = self.look_up_number(&dir, name, child, inode.attr.kind);
        Ok(Answer::Entry(self.entry_of(number, &inode)))
    }

    /// Returns the directory of a change.
    fn dir_to_change(&self, dir: NodeId) -> Result<(&Arc<Volume>, Node)> {
        let volume = self.writing()?;
        self.prepare_names()?;
        let dir = self.node(dir)?;
        if dir.is_empty_subvolume_dir() {
            Err(Errno::PERM)
        } else {
            Ok((volume, dir))
        }
    }

    /// Checks, before names change, that this thread can make the change durable. If it cannot, the change is not
    /// started.
    pub(super) fn prepare_names(&self) -> Result<()> {
        if self.syncs_names {
            nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)
        } else {
            Ok(())
        }
    }

    /// Makes changed names in a directory durable, if the mount is set to do so.
    pub(super) fn sync_names(&self, volume: &Volume, dir: FileId) -> Result<()> {
        if self.syncs_names {
            volume.fsync(dir).map_err(errno)
        } else {
            Ok(())
        }
    }

    pub(super) fn mknod(
        &self,
        context: &Context,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
    ) -> Result<Entry> {
        let (volume, dir) = self.dir_to_change(dir)?;
        let new = new_inode(context, new);
        self.make_inode(volume, &dir, name, &new)
    }

    pub(super) fn mkdir(
        &self,
        context: &Context,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
    ) -> Result<Entry> {
        let new = NewNode {
            mode: new.mode & !FileKind::MODE_BITS | DIRECTORY,
            ..*new
        };
        self.mknod(context, dir, name, &new)
    }

    pub(super) fn symlink(
        &self,
        context: &Context,
        dir: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry> {
        let (volume, dir) = self.dir_to_change(dir)?;
        let new = NewInode {
            uid: context.uid,
            gid: context.gid,
            ..NewInode::symlink(target)
        };
        self.make_inode(volume, &dir, name, &new)
    }

    /// Writes the target of a symbolic link to `out`, and returns its length.
    pub(super) fn readlink(&self, node: NodeId, out: &mut [u8]) -> Result<usize> {
        let id = self.node(node)?.id;
        let target = self.source.readlink(id)?;
        out.get_mut(..target.len())
            .ok_or(Errno::NAMETOOLONG)?
            .copy_from_slice(&target);
        self.note_read(id, self.live.atime());
        Ok(target.len())
    }

    fn make_inode(
        &self,
        volume: &Arc<Volume>,
        dir: &Node,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Entry> {
        let made = volume.create_and_look(dir.id, name, new);
        let (id, attr) = made.map_err(errno)?;
        self.sync_names(volume, dir.id)?;
        let entry = self.entry_made(volume, dir, name, id, &attr);
        let count = self.capabilities.load(Ordering::Acquire);
        self.known.note_without_capability(entry.node.0, count);
        Ok(entry)
    }

    /// Returns the answer for a name that has just been created.
    pub(super) fn entry_made(
        &self,
        volume: &Volume,
        dir: &Node,
        name: &[u8],
        id: FileId,
        attr: &ubtrfs_fs::Attr,
    ) -> Entry {
        let number = self.look_up_number(dir, name, id, volume::file_kind(attr.kind));
        self.entry_of(number, &volume::shown(volume, attr))
    }

    /// Creates another name for `node`.
    pub(super) fn link(&self, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        let (volume, dir) = self.dir_to_change(dir)?;
        let id = self.node(node)?.id;
        let attr = volume.link_and_look(id, dir.id, name).map_err(errno)?;
        self.sync_names(volume, dir.id)?;
        Ok(self.entry_made(volume, &dir, name, id, &attr))
    }

    pub(super) fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        let (volume, dir) = self.dir_to_change(dir)?;
        volume.unlink(dir.id, name).map_err(errno)?;
        self.sync_names(volume, dir.id)
    }

    pub(super) fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        let (volume, dir) = self.dir_to_change(dir)?;
        volume.rmdir(dir.id, name).map_err(errno)?;
        self.sync_names(volume, dir.id)
    }

    pub(super) fn rename(
        &self,
        context: &Context,
        (from, name): (NodeId, &[u8]),
        (to, new_name): (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let (volume, from) = self.dir_to_change(from)?;
        let (_, to) = self.dir_to_change(to)?;
        let mode = match flags {
            RenameFlags {
                exchange: true,
                no_replace: false,
                whiteout: false,
            } => RenameMode::Exchange,
            RenameFlags { exchange: true, .. } => return Err(Errno::INVAL),
            RenameFlags {
                no_replace: true, ..
            } => RenameMode::NoReplace,
            _ => RenameMode::Replace,
        };
        let to = (to.id, new_name);
        if !self.changes.has_room_for_rename((from.id, name), to) {
            return Err(Errno::BUSY);
        }
        let moved = if flags.whiteout {
            let whiteout = NewInode {
                uid: context.uid,
                gid: context.gid,
                ..NewInode::with_mode(WHITEOUT)
            };
            volume.rename_leaving(from.id, name, to, mode, &whiteout)
        } else {
            volume.rename(from.id, name, to, mode)
        };
        moved.map_err(errno)?;
        self.changes.renamed((from.id, name), to);
        self.sync_names(volume, from.id)?;
        self.sync_names(volume, to.0)
    }
}

/// Returns the attributes of the requested inode.
pub(super) fn new_inode(context: &Context, new: &NewNode) -> NewInode<'static> {
    NewInode {
        umask: new.umask,
        uid: context.uid,
        gid: context.gid,
        rdev: volume::device_on_disk(new.rdev),
        ..NewInode::with_mode(new.mode)
    }
}
