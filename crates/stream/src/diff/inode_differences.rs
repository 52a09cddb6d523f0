//! All differences of one inode.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ubtrfs_format::item::{DirEntries, FileExtent, FileKind, InodeItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Difference;
use zerocopy::FromBytes;

use super::change::{XattrChange, XattrChangeKind};
use super::paths::{MAX_NAMES, Name, names_in};
use super::ranges::Ranges;

/// Maximum number of changed extended attributes that are listed for a file.
const MAX_XATTRS: usize = 1024;

/// An inode of one snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inode {
    pub(super) item: InodeItem,
    pub(super) file_type: FileKind,
}

impl Inode {
    /// Decodes an inode item. Returns None if the item is damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Inode> {
        let (item, _) = InodeItem::read_from_prefix(bytes).ok()?;
        let file_type = FileKind::from_mode(item.mode.get())?;
        Some(Inode { item, file_type })
    }

    /// Returns whether the inode has a name.
    pub(super) fn has_name(&self) -> bool {
        self.item.nlink.get() > 0
    }

    pub(super) fn is_same(&self, other: &Inode) -> bool {
        let identity = |of: &Inode| (of.item.generation, of.file_type, of.item.rdev);
        identity(self) == identity(other)
    }
}

/// The differences of an inode, collected from its items.
#[derive(Debug)]
pub(super) struct InodeDifferences {
    pub(super) inode: u64,
    /// Whether the inode item itself differs.
    pub(super) has_item: bool,
    pub(super) old: Option<Inode>,
    pub(super) new: Option<Inode>,
    pub(super) old_names: BTreeSet<Name>,
    pub(super) new_names: BTreeSet<Name>,
    pub(super) xattrs: Vec<XattrChange>,
    pub(super) more_xattrs: u64,
    pub(super) ranges: Ranges,
}

/// An undecodable item, or too many names.
#[derive(Debug)]
pub(super) enum Refused {
    Corrupt(Key),
    TooManyNames,
}

impl InodeDifferences {
    pub(super) fn new(inode: u64) -> InodeDifferences {
        InodeDifferences {
            inode,
            has_item: false,
            old: None,
            new: None,
            old_names: BTreeSet::new(),
            new_names: BTreeSet::new(),
            xattrs: Vec::new(),
            more_xattrs: 0,
            ranges: Ranges::default(),
        }
    }

    pub(super) fn add(&mut self, difference: &Difference) -> Result<(), Refused> {
        let key = difference.key();
        let old = difference.old_item().map(|item| &**item);
        let new = difference.new_item().map(|item| &**item);
        match key.item_type {
            KeyType::INODE_ITEM => {
                let decode = |bytes| Inode::decode(bytes).ok_or(Refused::Corrupt(key));
                self.has_item = true;
                self.old = old.map(decode).transpose()?;
                self.new = new.map(decode).transpose()?;
            }
            KeyType::INODE_REF | KeyType::INODE_EXTREF => {
                self.old_names.extend(names_in(key, old.unwrap_or(&[])));
                self.new_names.extend(names_in(key, new.unwrap_or(&[])));
                if self.old_names.len().max(self.new_names.len()) > MAX_NAMES {
                    return Err(Refused::TooManyNames);
                }
            }
            KeyType::XATTR_ITEM => self.add_xattrs(old.unwrap_or(&[]), new.unwrap_or(&[])),
            KeyType::EXTENT_DATA => {
                let decode = |bytes| FileExtent::decode(bytes).ok_or(Refused::Corrupt(key));
                if let Some(extent) = old.map(decode).transpose()? {
                    self.ranges.add_old(key.offset, &extent);
                }
                if let Some(extent) = new.map(decode).transpose()? {
                    self.ranges.add_new(key.offset, &extent);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds the attributes of one item. An item holds all attributes whose names have the same hash.
    fn add_xattrs(&mut self, old: &[u8], new: &[u8]) {
        let value = |item, name: &[u8]| {
            let mut entries = DirEntries::new(item);
            entries.find(|entry| entry.name == name).map(|e| e.data)
        };
        for entry in DirEntries::new(old) {
            match value(new, entry.name) {
                None => self.add_xattr(entry.name, XattrChangeKind::Removed),
                Some(data) if data != entry.data => {
                    self.add_xattr(entry.name, XattrChangeKind::Changed);
                }
                Some(_) => {}
            }
        }
        for entry in DirEntries::new(new) {
            if value(old, entry.name).is_none() {
                self.add_xattr(entry.name, XattrChangeKind::Added);
            }
        }
    }

    fn add_xattr(&mut self, name: &[u8], kind: XattrChangeKind) {
        if self.xattrs.len() >= MAX_XATTRS {
            self.more_xattrs += 1;
            return;
        }
        let name = OsStr::from_bytes(name).to_owned();
        self.xattrs.push(XattrChange { name, kind });
    }
}
