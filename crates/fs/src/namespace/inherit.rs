//! Inheritance of a new inode from its directory: default ACL, compression, flags, group.
//!
//! The directory's attributes are read once, and cached in its state until one of them is set.

use std::sync::Arc;

use ubtrfs_format::item::acl::{self, Parsed};
use ubtrfs_format::item::{FileKind, InodeFlags, InodeItem};
use ubtrfs_storage::FileId;
use ubtrfs_storage::roots::Tree;

use crate::error::Result;
use crate::inode::property::CompressionProperty;
use crate::inode::{Inherited, Inode, InodeState, SETGID, find_xattr, property};
use crate::namespace::Namespace;

/// Returns the attributes that inodes inherit from `dir`, whose state is `state`.
pub(super) fn inherited(
    tree: &Tree,
    dir: FileId,
    state: &mut InodeState,
) -> Result<Arc<Inherited>> {
    if let Some(known) = &state.inherited {
        return Ok(Arc::clone(known));
    }
    let read = Arc::new(read(tree, dir)?);
    state.inherited = Some(Arc::clone(&read));
    Ok(read)
}

fn read(tree: &Tree, dir: FileId) -> Result<Inherited> {
    let find = |name| find_xattr(&tree.view, dir.ino, name);
    let default_acl = if tree.acls { find(acl::DEFAULT)? } else { None };
    let default_acl = match default_acl.as_deref().map(acl::parse) {
        Some(Parsed::Acl(acl)) => Some(acl),
        _ => None,
    };
    Ok(Inherited {
        default_acl,
        compression: CompressionProperty::algorithm(find(property::COMPRESSION)?.as_deref()),
    })
}

impl Namespace {
    /// Returns the attributes that the root directory of a subvolume in `dir` inherits. `state` is the state
    /// of `dir`.
    pub(crate) fn inherited_by_root(
        &self,
        dir: &Inode,
        state: &mut InodeState,
    ) -> Result<Inherited> {
        let of_dir = inherited(&dir.tree, dir.id, state)?;
        let top = self.roots.root_dir(dir.id.root)?;
        Ok(Inherited {
            default_acl: of_dir.default_acl.clone(),
            compression: read(&dir.tree, top)?.compression,
        })
    }
}

/// Returns the inherited flags of an inode of `kind` in a directory with the flags `dir`.
pub(super) fn flags_in(dir: InodeFlags, kind: FileKind) -> InodeFlags {
    let mut flags = InodeFlags::empty();
    if dir.contains(InodeFlags::NOCOMPRESS) {
        flags |= InodeFlags::NOCOMPRESS;
    } else if dir.contains(InodeFlags::COMPRESS) {
        flags |= InodeFlags::COMPRESS;
    }
    if dir.contains(InodeFlags::NODATACOW) {
        flags |= InodeFlags::NODATACOW;
        if kind == FileKind::Regular {
            flags |= InodeFlags::NODATASUM;
        }
    }
    flags
}

/// Returns the group and mode of an inode created in `dir` with `gid` and `mode`.
pub(super) fn group_and_mode(dir: &InodeItem, kind: FileKind, gid: u32, mode: u32) -> (u32, u32) {
    if dir.mode.get() & SETGID == 0 {
        return (gid, mode);
    }
    let mode = match kind {
        FileKind::Directory => mode | SETGID,
        _ => mode,
    };
    (dir.gid.get(), mode)
}
