//! Changing and reading modes, owners, times, xattrs and flags.

use std::sync::Arc;

use super::compression::{COMPRESSION, are_compatible};
use super::inode::{Body, InodeId};
use super::lookup::Found;
use super::{ModelFs, OpResult};
use crate::manifest::{Kind, Time};
use crate::vocabulary::{Attr, Data, Flags, FsPath, OpError, Outcome, XattrHow};

const XATTR_NAME_BYTES: usize = 255;
const XATTR_VALUE_BYTES: usize = 65_536;
const SET_ID: u32 = 0o6000;

impl ModelFs {
    pub(super) fn chmod(&mut self, path: &FsPath, mode: u32) -> OpResult {
        let id = self.find_inode(path)?;
        if self.inode(id).kind() == Kind::Symlink {
            return Err(OpError::OutOfScope);
        }
        self.may_change_attributes(id)?;
        self.inode_mut(id).mode = mode & 0o7777;
        Ok(Outcome::Done)
    }

    pub(super) fn chown(&mut self, path: &FsPath, uid: u32, gid: u32) -> OpResult {
        let id = self.find_inode(path)?;
        let inode = self.inode(id);
        if !inode.is_dir() && inode.mode & SET_ID != 0 {
            // It depends on the caller whether the system or the file system clears these bits.
            return Err(OpError::OutOfScope);
        }
        self.may_change_attributes(id)?;
        let inode = self.inode_mut(id);
        (inode.uid, inode.gid) = (uid, gid);
        Ok(Outcome::Done)
    }

    pub(super) fn set_times(&mut self, path: &FsPath, atime: Time, mtime: Time) -> OpResult {
        let id = self.find_inode(path)?;
        self.may_change_attributes(id)?;
        let inode = self.inode_mut(id);
        (inode.atime, inode.mtime) = (Some(atime), Some(mtime));
        Ok(Outcome::Done)
    }

    pub(super) fn set_flags(&mut self, path: &FsPath, flags: Flags) -> OpResult {
        let id = self.find_inode(path)?;
        let inode = self.inode(id);
        let is_empty_file = match &inode.body {
            Body::File(content) => content.size() == 0,
            Body::Dir(_) => false,
            Body::Symlink(_) | Body::Special(_) => return Err(OpError::OutOfScope),
        };
        self.may_change_flags(id)?;
        let algorithm = self.limits.algorithm;
        let inode = self.inode_mut(id);
        if !are_compatible(inode.flags, flags) {
            return Err(OpError::InvalidArgument);
        }
        if flags.compress {
            inode.set_algorithm(algorithm.as_bytes())
        } else {
            inode.forget_compression()
        }
        let is_file = matches!(inode.body, Body::File(_));
        let keeps_nocow = is_file && !is_empty_file;
        inode.flags = Flags {
            nocow: if keeps_nocow {
                inode.flags.nocow
            } else {
                flags.nocow
            },
            dirsync: flags.dirsync && !is_file,
            ..flags
        };
        if is_empty_file {
            inode.nodatasum = flags.nocow;
        }
        Ok(Outcome::Done)
    }

    pub(super) fn get_flags(&self, path: &FsPath) -> OpResult {
        let inode = self.inode(self.find_inode(path)?);
        match inode.body {
            Body::File(_) | Body::Dir(_) => Ok(Outcome::Flags(inode.flags)),
            _ => Err(OpError::OutOfScope),
        }
    }

    pub(super) fn set_xattr(
        &mut self,
        path: &FsPath,
        name: &[u8],
        value: &Data,
        how: XattrHow,
    ) -> OpResult {
        let id = self.find_inode(path)?;
        check_xattr_name(name)?;
        if value.len_bytes() > XATTR_VALUE_BYTES {
            return Err(OpError::XattrTooBig);
        }
        self.may_change_xattr(id, name)?;
        if name == COMPRESSION {
            return self.set_compression(id, &value.bytes(), how);
        }
        if name.len() + value.len_bytes() > self.limits.xattr_bytes {
            return Err(OpError::NoSpace);
        }
        let xattrs = &mut self.inode_mut(id).xattrs;
        match (how, xattrs.contains_key(name)) {
            (XattrHow::Create, true) => return Err(OpError::Exists),
            (XattrHow::Replace, false) => return Err(OpError::NoData),
            _ => {}
        }
        Arc::make_mut(xattrs).insert(name.to_vec(), value.bytes());
        Ok(Outcome::Done)
    }

    pub(super) fn remove_xattr(&mut self, path: &FsPath, name: &[u8]) -> OpResult {
        let id = self.find_inode(path)?;
        check_xattr_name(name)?;
        self.may_change_xattr(id, name)?;
        if name == COMPRESSION {
            return self.remove_compression(id);
        }
        let xattrs = &mut self.inode_mut(id).xattrs;
        if !xattrs.contains_key(name) {
            return Err(OpError::NoData);
        }
        Arc::make_mut(xattrs).remove(name);
        Ok(Outcome::Done)
    }

    fn may_change_xattr(&self, id: InodeId, name: &[u8]) -> Result<(), OpError> {
        self.check_mutable(id)?;
        let takes_user = matches!(self.inode(id).body, Body::File(_) | Body::Dir(_));
        if name.starts_with(b"user.") && !takes_user {
            return Err(OpError::NotPermitted);
        }
        self.may_change_attributes(id)
    }

    pub(super) fn get_xattr(&self, path: &FsPath, name: &[u8]) -> OpResult {
        let inode = self.inode(self.find_inode(path)?);
        check_xattr_name(name)?;
        match inode.xattrs.get(name) {
            Some(value) => Ok(Outcome::Bytes(value.clone())),
            None => Err(OpError::NoData),
        }
    }

    pub(super) fn stat(&self, path: &FsPath) -> OpResult {
        let inode = self.inode(self.find_inode(path)?);
        Ok(Outcome::Attr(Attr {
            kind: inode.kind(),
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
            rdev: inode.rdev(),
            size: inode.size(),
        }))
    }

    pub(super) fn list(&self, path: &FsPath) -> OpResult {
        let Found::Inode(id) = self.find(path)? else {
            return Ok(Outcome::Names(Vec::new()));
        };
        let dir = self.inode(id).dir()?;
        let mut entries: Vec<_> = dir.entries.iter().collect();
        entries.sort_by_key(|(_, entry)| entry.index);
        let names = entries.into_iter().map(|(name, entry)| {
            let kind = match self.follow(id, name, entry) {
                Found::Inode(id) => self.inode(id).kind(),
                Found::EmptySubvolumeDir => Kind::Dir,
            };
            (name.clone(), kind)
        });
        Ok(Outcome::Names(names.collect()))
    }
}

/// Checks the name of an extended attribute. Names with a meaning in other parts of the kernel are out of scope.
fn check_xattr_name(name: &[u8]) -> Result<(), OpError> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES {
        return Err(OpError::XattrName);
    }
    let has_prefix = |prefix: &&[u8]| name.starts_with(prefix) && name.len() > prefix.len();
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let has_meaning = [
        &b"security.capability"[..],
        b"security.ima",
        b"security.evm",
    ];
    if name == COMPRESSION {
        return Ok(());
    }
    if !prefixes.iter().any(has_prefix) || has_meaning.contains(&name) {
        return Err(OpError::OutOfScope);
    }
    Ok(())
}
