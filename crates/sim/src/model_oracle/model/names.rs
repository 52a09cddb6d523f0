//! Creation and removal of names.

use std::sync::Arc;

use super::content::Content;
use super::inode::{Body, Directory, Inode, InodeId, Target};
use super::lookup::Found;
use super::{ModelFs, OpResult};
use crate::vocabulary::{FsPath, Node, OpError, Outcome};

const MAX_LINKS: u64 = 65_535;
const MAX_TARGET_BYTES: usize = 4095;
const SET_GROUP_ID: u32 = 0o2000;

impl ModelFs {
    pub(super) fn create(&mut self, path: &FsPath, mode: u32) -> OpResult {
        self.add(path, Inode::new(mode, Body::File(Content::default())))
    }

    pub(super) fn mkdir(&mut self, path: &FsPath, mode: u32) -> OpResult {
        self.add(path, Inode::new(mode, Body::Dir(Directory::default())))
    }

    pub(super) fn symlink(&mut self, path: &FsPath, target: &[u8]) -> OpResult {
        if target.is_empty() {
            return Err(OpError::OutOfScope);
        }
        self.parent(path)?;
        if target.len() > MAX_TARGET_BYTES {
            return Err(OpError::NameTooLong);
        }
        self.add(path, Inode::new(0o777, Body::Symlink(Arc::from(target))))
    }

    pub(super) fn mknod(&mut self, path: &FsPath, node: Node, mode: u32) -> OpResult {
        self.add(path, Inode::new(mode, Body::Special(node)))
    }

    fn add(&mut self, path: &FsPath, mut inode: Inode) -> OpResult {
        let (dir, name) = self.new_name(path)?;
        self.refuse_set_group_id(dir)?;
        self.inode(dir).hand_on(&mut inode);
        self.add_inode(dir, name, inode);
        Ok(Outcome::Done)
    }

    pub(super) fn refuse_set_group_id(&self, dir: InodeId) -> Result<(), OpError> {
        match self.inode(dir).mode & SET_GROUP_ID {
            0 => Ok(()),
            _ => Err(OpError::OutOfScope),
        }
    }

    pub(super) fn add_inode(&mut self, dir: InodeId, name: &[u8], inode: Inode) {
        let ino = self.subvolume_mut(dir.subvolume).add(inode);
        let directory = self.inode_mut(dir).dir_mut();
        directory.insert(name, Target::Inode(ino));
    }

    pub(super) fn link(&mut self, from: &FsPath, to: &FsPath) -> OpResult {
        let id = self.find_inode(from)?;
        self.link_inode(id, to)
    }

    pub(super) fn link_inode(&mut self, id: InodeId, to: &FsPath) -> OpResult {
        let (dir, name) = self.new_name(to)?;
        self.check_mutable(id)?;
        let inode = self.inode(id);
        if inode.is_dir() {
            return Err(OpError::NotPermitted);
        }
        if inode.nlink == 0 && !inode.is_linkable {
            return Err(OpError::NotFound);
        }
        if id.subvolume != dir.subvolume {
            return Err(OpError::CrossSubvolume);
        }
        if inode.nlink >= MAX_LINKS {
            return Err(OpError::TooManyLinks);
        }
        let inode = self.inode_mut(id);
        inode.nlink += 1;
        inode.is_linkable = false;
        let directory = self.inode_mut(dir).dir_mut();
        directory.insert(name, Target::Inode(id.ino));
        Ok(Outcome::Done)
    }

    pub(super) fn unlink(&mut self, path: &FsPath) -> OpResult {
        let (dir, name) = self.parent(path)?;
        let victim = self.lookup(dir, name)?.ok_or(OpError::NotFound)?;
        self.may_delete(dir, victim, false)?;
        self.remove_name(dir, name, victim);
        Ok(Outcome::Done)
    }

    pub(super) fn rmdir(&mut self, path: &FsPath) -> OpResult {
        let (dir, name) = self.parent(path)?;
        let victim = self.lookup(dir, name)?.ok_or(OpError::NotFound)?;
        self.may_delete(dir, victim, true)?;
        self.refuse_filled(victim)?;
        match victim {
            Found::Inode(id) if id.is_subvolume() => {
                self.drop_subvolume(dir, name, id.subvolume)?;
            }
            victim => self.remove_name(dir, name, victim),
        }
        Ok(Outcome::Done)
    }

    pub(super) fn refuse_filled(&self, found: Found) -> Result<(), OpError> {
        let Found::Inode(id) = found else {
            return Ok(());
        };
        match self.inode(id).dir() {
            Ok(dir) if dir.entries.size() > 0 => Err(OpError::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Removes a name, and also the inode if it was the last name and it is not open. Not for subvolumes.
    pub(super) fn remove_name(&mut self, dir: InodeId, name: &[u8], victim: Found) {
        self.inode_mut(dir).dir_mut().remove(name);
        let Found::Inode(id) = victim else {
            return;
        };
        let inode = self.inode_mut(id);
        inode.nlink -= 1;
        if inode.nlink == 0 && !self.is_open(id) {
            self.forget(id);
        }
    }

    pub(super) fn forget(&mut self, id: InodeId) {
        let subvolume = self.subvolume_mut(id.subvolume);
        subvolume.inodes.remove_mut(&id.ino);
    }
}
