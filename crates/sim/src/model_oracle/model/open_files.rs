//! Open files, which survive without a name until they are closed.

use super::content::Content;
use super::inode::SubvolumeId;
use super::inode::{Body, Inode, InodeId};
use super::{ModelFs, OpResult};
use crate::vocabulary::{FsPath, OpError, Outcome, Slot};

impl ModelFs {
    pub(super) fn open(&mut self, path: &FsPath, slot: Slot) -> OpResult {
        let id = self.find_inode(path)?;
        self.may_open_for_writing(id, false)?;
        self.release(slot);
        self.open.insert(slot, id);
        Ok(Outcome::Done)
    }

    /// Creates a file without a name. It is deleted on close, unless it gets a name.
    pub(super) fn tmpfile(&mut self, dir: &FsPath, mode: u32, slot: Slot) -> OpResult {
        let dir = self.find_inode(dir)?;
        self.inode(dir).dir()?;
        self.may_change_names(dir)?;
        self.refuse_set_group_id(dir)?;
        let mut inode = Inode::new(mode, Body::File(Content::default()));
        inode.nlink = 0;
        inode.is_linkable = true;
        self.inode(dir).hand_on(&mut inode);
        let ino = self.subvolume_mut(dir.subvolume).add(inode);
        self.release(slot);
        self.open.insert(slot, InodeId { ino, ..dir });
        Ok(Outcome::Done)
    }

    pub(super) fn link_open(&mut self, slot: Slot, to: &FsPath) -> OpResult {
        let id = self.open.get(&slot).copied();
        self.link_inode(id.ok_or(OpError::OutOfScope)?, to)
    }

    pub(super) fn close(&mut self, slot: Slot) -> OpResult {
        if !self.open.contains_key(&slot) {
            return Err(OpError::OutOfScope);
        }
        self.release(slot);
        Ok(Outcome::Done)
    }

    pub(super) fn close_all(&mut self) -> OpResult {
        let slots: Vec<Slot> = self.open.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.release(slot));
        Ok(Outcome::Done)
    }

    fn release(&mut self, slot: Slot) {
        let Some(id) = self.open.remove(&slot) else {
            return;
        };
        if self.inode(id).nlink == 0 && !self.is_open(id) {
            self.forget(id);
        }
    }

    pub(super) fn is_open(&self, id: InodeId) -> bool {
        self.open.values().any(|open| *open == id)
    }

    pub(super) fn has_open_files(&self, subvolume: SubvolumeId) -> bool {
        self.open.values().any(|open| open.subvolume == subvolume)
    }

    /// Lists the slots in use, for script generators.
    pub fn open_slots(&self) -> impl Iterator<Item = Slot> {
        self.open.keys().copied()
    }
}
