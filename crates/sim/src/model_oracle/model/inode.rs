//! Inodes: files, directories, symlinks and special files.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Map;
use super::content::Content;
use crate::manifest::{Kind, Time};
use crate::vocabulary::{Flags, Node, OpError};

/// The root directory of each subvolume.
pub(super) const ROOT_INO: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SubvolumeId(pub(super) u64);

impl SubvolumeId {
    pub(super) fn root(self) -> InodeId {
        InodeId {
            subvolume: self,
            ino: ROOT_INO,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InodeId {
    pub(super) subvolume: SubvolumeId,
    pub(super) ino: u64,
}

impl InodeId {
    pub(super) fn is_subvolume(self) -> bool {
        self.ino == ROOT_INO
    }
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Number of names; always 1 for a directory.
    pub(super) nlink: u64,
    /// None if it is unknown: it was never set, or has changed since.
    pub(super) atime: Option<Time>,
    pub(super) mtime: Option<Time>,
    pub(super) xattrs: Arc<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(super) flags: Flags,
    /// Set if `nocow` was set while the inode was empty; extents can only be shared between inodes with the same
    /// value.
    pub(super) nodatasum: bool,
    /// Whether it was created without a name and can still get one.
    pub(super) is_linkable: bool,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Content),
    Dir(Directory),
    Symlink(Arc<[u8]>),
    Special(Node),
}

impl Inode {
    pub(super) fn new(mode: u32, body: Body) -> Inode {
        Inode {
            mode,
            uid: 0,
            gid: 0,
            nlink: 1,
            atime: None,
            mtime: None,
            xattrs: Arc::default(),
            flags: Flags::default(),
            nodatasum: false,
            is_linkable: false,
            body,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Dir(_) => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(node) => node.kind(),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    pub(super) fn rdev(&self) -> (u32, u32) {
        match &self.body {
            Body::Special(node) => node.rdev(),
            _ => (0, 0),
        }
    }

    pub(super) fn size(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.size(),
            Body::Dir(dir) => dir.size(),
            Body::Symlink(target) => target.len() as u64,
            Body::Special(_) => 0,
        }
    }

    pub(super) fn dir(&self) -> Result<&Directory, OpError> {
        match &self.body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(OpError::NotADirectory),
        }
    }

    pub(super) fn dir_mut(&mut self) -> &mut Directory {
        self.mtime = None;
        match &mut self.body {
            Body::Dir(dir) => dir,
            _ => unreachable!("looked up as a directory"),
        }
    }

    pub(super) fn content_mut(&mut self) -> &mut Content {
        self.mtime = None;
        match &mut self.body {
            Body::File(content) => content,
            _ => unreachable!("opened as a file"),
        }
    }
}

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Inode(u64),
    /// Only valid in the subvolume's own place; elsewhere it is an empty subvolume directory.
    Subvolume(SubvolumeId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DirEntry {
    pub(super) target: Target,
    /// Incremented for each new name in the directory; listings are in this order.
    pub(super) index: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) entries: Map<Vec<u8>, DirEntry>,
    next_index: u64,
}

impl Directory {
    pub(super) fn insert(&mut self, name: &[u8], target: Target) {
        let index = self.next_index;
        self.next_index += 1;
        let entry = DirEntry { target, index };
        self.entries.insert_mut(name.to_vec(), entry);
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        self.entries.remove_mut(name);
    }

    pub(super) fn size(&self) -> u64 {
        self.entries.keys().map(|name| 2 * name.len() as u64).sum()
    }
}
