//! A new inode: its number, its items, and its inheritance from the directory.
//!
//! Not here: its name (`create`), the orphan item of a file without a name (`tmpfile`).

use std::sync::Arc;

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{
    FileExtentHead, FileExtentKind, FileKind, FileTime, InodeFlags, InodeItem, Timespec, acl,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::limits;
use ubtrfs_storage::roots::Tree;
use zerocopy::{FromZeros, IntoBytes};

use super::inherit::{flags_in, group_and_mode};
use crate::error::{Error, Result};
use crate::inode::property::CompressionProperty;
use crate::inode::{Draft, Inherited, Stamps, XattrMode, property};
use crate::namespace::Namespace;

/// The attributes of an inode to create.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Format and permission bits.
    pub mode: u32,
    /// Permission bits to clear, unless the directory has a default ACL.
    pub umask: u32,
    pub uid: u32,
    /// Ignored in a setgid directory, which gives its own group.
    pub gid: u32,
    /// Device number, as on disk: 12 bits of major number above 20 of minor number.
    pub rdev: u64,
    /// The target of a symbolic link.
    pub target: &'a [u8],
    /// All of its times. None: now.
    pub time: Option<FileTime>,
}

impl<'a> NewInode<'a> {
    /// Creates attributes of any file type, given by the format bits of `mode`, owned by root.
    pub fn with_mode(mode: u32) -> NewInode<'a> {
        NewInode {
            mode,
            umask: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: b"",
            time: None,
        }
    }

    pub fn file(permissions: u32) -> NewInode<'a> {
        NewInode::with_mode(0o100_000 | permissions)
    }

    pub fn directory(permissions: u32) -> NewInode<'a> {
        NewInode::with_mode(0o040_000 | permissions)
    }

    pub fn symlink(target: &'a [u8]) -> NewInode<'a> {
        NewInode {
            target,
            ..NewInode::with_mode(0o120_777)
        }
    }

    pub(super) fn kind(&self) -> Result<FileKind> {
        FileKind::from_mode(self.mode).ok_or(Error::Invalid("mode"))
    }

    /// Returns the bytes of its items other than the INODE_ITEM: at most an extent, two ACLs and a property.
    pub(super) fn bytes(&self) -> u64 {
        512 + self.target.len() as u64
    }

    /// Checks that an inode can be created with these attributes. `nodesize` is in bytes.
    pub(crate) fn check(&self, nodesize: usize) -> Result<()> {
        if self.mode & !0o177_777 != 0 {
            return Err(Error::Invalid("mode"));
        }
        if self.kind()? != FileKind::Symlink {
            return Ok(());
        }
        Ok(limits::check_target(self.target, nodesize)?)
    }
}

/// The initial data and times of a new regular file.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewContents<'a> {
    /// The whole contents.
    pub data: &'a [u8],
    /// Access and modification time. None: [`NewInode::time`].
    pub times: Option<(FileTime, FileTime)>,
}

/// The directory of a new inode.
pub(super) struct Parent<'a> {
    pub(super) item: &'a InodeItem,
    pub(super) inherited: &'a Inherited,
}

impl Draft<'_> {
    /// Inserts all items of a new inode except its names. Returns the INODE_ITEM, which still lacks the
    /// transid.
    pub(super) fn insert_new(
        &mut self,
        ino: InodeNr,
        new: &NewInode<'_>,
        nlink: u32,
        parent: &Parent<'_>,
        now: FileTime,
    ) -> Result<InodeItem> {
        self.insert_filled(ino, new, &NewContents::default(), nlink, parent, now)
    }

    /// Inserts all items of a new inode except its names, including the contents of a regular file. Returns
    /// the INODE_ITEM like `insert_new`.
    pub(super) fn insert_filled(
        &mut self,
        ino: InodeNr,
        new: &NewInode<'_>,
        contents: &NewContents<'_>,
        nlink: u32,
        parent: &Parent<'_>,
        now: FileTime,
    ) -> Result<InodeItem> {
        let kind = new.kind()?;
        let (gid, mode) = group_and_mode(parent.item, kind, new.gid, new.mode);
        let mut item = InodeItem::new_zeroed();
        item.nlink = nlink.into();
        item.uid = new.uid.into();
        item.gid = gid.into();
        if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
            item.rdev = new.rdev.into();
        }
        item.sequence = 1.into();
        let time = Timespec::from(new.time.unwrap_or(now));
        (item.atime, item.ctime, item.mtime, item.otime) = (time, time, time, time);
        if let Some((atime, mtime)) = contents.times {
            (item.atime, item.mtime) = (atime.into(), mtime.into());
        }
        let mode = self.insert_acls(ino, kind, mode, new.umask, parent.inherited)?;
        item.mode = mode.into();
        let flags = flags_in(parent.item.flags(), kind) | self.tree().new_inode_flags(kind);
        let flags = self.insert_property(ino, kind, flags, parent.inherited)?;
        item.flags = flags.bits().into();
        let data = match kind {
            FileKind::Symlink => new.target,
            FileKind::Regular => contents.data,
            _ => b"",
        };
        if !data.is_empty() {
            let len = data.len() as u64;
            (item.size, item.nbytes) = (len.into(), len.into());
            self.insert_data(ino, data);
        }
        self.insert_inode(ino, &item);
        Ok(item)
    }

    /// Inserts the items of an empty subvolume. As in the kernel, its root directory inherits neither an ACL
    /// nor the group from its parent directory. The umask and the default ACL of that directory both limit
    /// its mode.
    pub(crate) fn insert_root_dir(
        &mut self,
        new: &NewInode<'_>,
        inherited: &Inherited,
        now: FileTime,
    ) -> Result<()> {
        let ino = InodeNr::FIRST_FREE;
        self.insert_ref(ino, ino, 0, b"..");
        let mode = new.mode & !(new.umask & 0o777);
        let mode = match &inherited.default_acl {
            Some(default) => default.inherited_with(mode).mode,
            None => mode,
        };
        let root = NewInode {
            mode,
            umask: 0,
            ..*new
        };
        let nowhere = Parent {
            item: &InodeItem::new_zeroed(),
            inherited: &Inherited {
                default_acl: None,
                compression: inherited.compression,
            },
        };
        self.insert_new(ino, &root, 1, &nowhere, now).map(drop)
    }

    /// Inserts the ACLs of a new inode. Returns its mode.
    fn insert_acls(
        &mut self,
        ino: InodeNr,
        kind: FileKind,
        mode: u32,
        umask: u32,
        inherited: &Inherited,
    ) -> Result<u32> {
        if kind == FileKind::Symlink {
            return Ok(mode);
        }
        let Some(default) = &inherited.default_acl else {
            return Ok(mode & !(umask & 0o777));
        };
        if kind == FileKind::Directory {
            self.set_xattr(ino, acl::DEFAULT, &default.to_bytes(), XattrMode::Any)?;
        }
        let given = default.inherited_with(mode);
        if let Some(access) = given.access {
            self.set_xattr(ino, acl::ACCESS, &access.to_bytes(), XattrMode::Any)?;
        }
        Ok(given.mode)
    }

    /// Inserts the inherited compression property. Returns the inode's flags.
    fn insert_property(
        &mut self,
        ino: InodeNr,
        kind: FileKind,
        flags: InodeFlags,
        inherited: &Inherited,
    ) -> Result<InodeFlags> {
        match inherited.compression {
            Some(algorithm) if property::is_of_use(kind) && property::can_compress(flags) => {
                let name = algorithm.name().as_bytes();
                self.set_xattr(ino, property::COMPRESSION, name, XattrMode::Any)?;
                Ok(CompressionProperty::With(algorithm).apply(flags))
            }
            _ => Ok(flags),
        }
    }

    /// Inserts the whole data of an inode as an inline extent.
    fn insert_data(&mut self, ino: InodeNr, data: &[u8]) {
        let mut head = FileExtentHead::new_zeroed();
        head.ram_bytes = (data.len() as u64).into();
        head.type_ = FileExtentKind::Inline as u8;
        let key = Key::new(ino.0, KeyType::EXTENT_DATA, 0);
        let value = [head.as_bytes(), data].concat();
        let generation = std::mem::offset_of!(FileExtentHead, generation) as u16;
        self.insert(key, value, Stamps::at(generation));
    }
}

impl Namespace {
    /// Returns an inode number that the tree has not used since the volume was opened.
    pub(super) fn new_ino(&self, tree: &Arc<Tree>) -> Result<InodeNr> {
        Ok(InodeNr(tree.next_objectid()?))
    }
}
