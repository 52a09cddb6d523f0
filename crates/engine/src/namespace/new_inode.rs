//! A new inode: its number, its items, and what it takes over from the directory it is made in.
//!
//! Not here: its name (`create`), the orphan item of one without a name (`tmpfile`).

use std::sync::Arc;

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{
    FileExtentHead, FileExtentKind, FileKind, FileTime, InodeFlags, InodeItem, Timespec, acl,
};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::limits;
use ubtrfs_transaction::roots::Tree;
use zerocopy::{FromZeros, IntoBytes};

use super::inherit::{flags_in, group_and_mode};
use crate::error::{Error, Result};
use crate::inode::property::CompressionProperty;
use crate::inode::{Draft, Inherited, Stamps, XattrMode, property};
use crate::namespace::Namespace;

/// An inode to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Format and permission bits.
    pub mode: u32,
    /// Permission bits to take away, unless the directory has a default ACL.
    pub umask: u32,
    pub uid: u32,
    /// The directory's group takes its place if the directory is setgid.
    pub gid: u32,
    /// Number of a device, as on disk: 12 bits of major number above 20 of minor number.
    pub rdev: u64,
    /// Where a symbolic link leads.
    pub target: &'a [u8],
    /// All its times; None: now.
    pub time: Option<FileTime>,
}

impl<'a> NewInode<'a> {
    /// Describes an inode of any kind, by the format bits of `mode`, owned by root.
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

    /// Returns the bytes that its items take beside an INODE_ITEM: at most an extent, two ACLs and a property.
    pub(super) fn bytes(&self) -> u64 {
        512 + self.target.len() as u64
    }

    /// Refuses what no inode can be made of. `nodesize` in bytes.
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

/// The data and attributes that a new regular file has from the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewContents<'a> {
    /// All of its data.
    pub data: &'a [u8],
    /// The times of access and of modification; None: as [`NewInode::time`] says.
    pub times: Option<(FileTime, FileTime)>,
}

/// The directory that an inode is made in.
pub(super) struct Parent<'a> {
    pub(super) item: &'a InodeItem,
    pub(super) inherited: &'a Inherited,
}

impl Draft<'_> {
    /// Inserts all items of a new inode but those of its name. Returns the INODE_ITEM, which lacks only the
    /// transaction's number.
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

    /// Inserts all items of a new inode but those of its name, with the items of a regular file's contents. Returns the
    /// INODE_ITEM as `insert_new` does.
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

    /// Inserts the items of an empty subvolume. As in the kernel, its root directory gets neither an ACL nor the group
    /// of the directory where it stands. Both the umask and that directory's default ACL take bits of its mode.
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

    /// Inserts the ACLs that a new inode gets. Returns its mode.
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

    /// Inserts the compression property that a new inode takes over. Returns its flags.
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

    /// Inserts all data of an inode in its item.
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
    /// Returns a number that no inode of the tree has, nor ever had since the volume was opened.
    pub(super) fn new_ino(&self, tree: &Arc<Tree>) -> Result<InodeNr> {
        Ok(InodeNr(tree.next_objectid()?))
    }
}
