//! Extended attributes, including POSIX ACLs and properties.
//!
//! Names with the same hash share an XATTR_ITEM.

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::acl::{self, Parsed};
use ubtrfs_format::item::{DirEntries, DirHead, FileKind, FileTime, InodeItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::limits;
use ubtrfs_format::name_hash::name_hash;
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_storage::{EditEstimate, FileId, lock};
use ubtrfs_tree::View;
use zerocopy::IntoBytes;

use super::attr::SETGID;
use super::draft::Draft;
use super::inode_flag_checks::may_change;
use super::inode_item::{kind_of, note_change};
use super::{InodeState, Inodes, property};
use crate::error::{Error, Result};
use crate::inode::{TRANSID_AT, has_room};

const HEAD_BYTES: usize = size_of::<DirHead>();

/// The required existence of an attribute before it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum XattrMode {
    /// It may exist or not.
    #[default]
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

fn xattr_key(ino: InodeNr, name: &[u8]) -> Key {
    Key::new(ino.0, KeyType::XATTR_ITEM, u64::from(name_hash(name)))
}

/// Returns the value of an attribute in a tree.
pub(crate) fn find_xattr(view: &View, ino: InodeNr, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(item) = view.get(&xattr_key(ino, name))? else {
        return Ok(None);
    };
    let found = DirEntries::new(&item).find(|entry| entry.name == name);
    Ok(found.map(|entry| entry.data.to_vec()))
}

impl Inodes {
    /// Returns the value of the attribute `name`, or None.
    pub(crate) fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if id.is_empty_subvolume_dir() {
            return Ok(None);
        }
        let tree = self.roots.tree_of(id)?;
        find_xattr(&tree.view, id.ino, name)
    }

    /// Returns all attributes as (name, value), in the order of their items.
    pub(crate) fn xattrs(&self, id: FileId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        if id.is_empty_subvolume_dir() {
            return Ok(all);
        }
        let tree = self.roots.tree_of(id)?;
        let mut cursor = tree.view.cursor();
        let mut more = cursor.seek(&Key::new(id.ino.0, KeyType::XATTR_ITEM, 0))?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            if (key.objectid, key.item_type) != (id.ino.0, KeyType::XATTR_ITEM) {
                break;
            }
            all.extend(DirEntries::new(bytes).map(|e| (e.name.to_vec(), e.data.to_vec())));
            more = cursor.advance()?;
        }
        Ok(all)
    }

    /// Sets an attribute. An access ACL also changes the mode, and is not stored if the mode expresses it
    /// completely. An ACL without entries is removed. `btrfs.compression` also changes flags.
    pub(crate) fn set_xattr(
        &self,
        id: FileId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        check_xattr_name(name)?;
        let cost = EditEstimate::items(3).bytes(value.len() as u64);
        self.change_xattr(id, cost, |draft, item, state| {
            if let acl::ACCESS | acl::DEFAULT = name {
                return set_acl(draft, id, item, state, name, value, false);
            }
            if name.starts_with(property::NAMESPACE) {
                return set_property(draft, id, item, state, value, name, mode);
            }
            draft.set_xattr(id.ino, name, value, mode)
        })
    }

    /// Sets the access ACL for a user. `clears_setgid`: the user is neither in the file's group nor
    /// privileged, so the file loses its setgid bit. Removing the ACL does not change that bit.
    pub(crate) fn set_access_acl(
        &self,
        id: FileId,
        value: &[u8],
        clears_setgid: bool,
    ) -> Result<()> {
        let cost = EditEstimate::items(3).bytes(value.len() as u64);
        self.change_xattr(id, cost, |draft, item, state| {
            set_acl(draft, id, item, state, acl::ACCESS, value, clears_setgid)
        })
    }

    /// Removes an attribute.
    pub(crate) fn remove_xattr(&self, id: FileId, name: &[u8]) -> Result<()> {
        check_xattr_name(name)?;
        let cost = EditEstimate::items(3).with_global_reserve();
        self.change_xattr(id, cost, |draft, item, state| {
            if let acl::ACCESS | acl::DEFAULT = name {
                return set_acl(draft, id, item, state, name, b"", false);
            }
            let is_property = name.starts_with(property::NAMESPACE);
            if is_property && name != property::COMPRESSION {
                return Err(Error::Invalid("property"));
            }
            if is_property && !property::is_of_use(kind_of(id, item)?) {
                return Ok(());
            }
            if !draft.remove_xattr(id.ino, name)? {
                return Err(Error::NoXattr);
            }
            if is_property {
                item.flags = property::CompressionProperty::Unset
                    .apply(item.flags())
                    .bits()
                    .into();
                state.inherited = None;
            }
            Ok(())
        })
    }

    fn change_xattr(
        &self,
        id: FileId,
        cost: EditEstimate,
        change: impl FnOnce(&mut Draft<'_>, &mut InodeItem, &mut InodeState) -> Result<()>,
    ) -> Result<()> {
        let reservation = self.reserve_metadata(id.root, cost)?;
        let inode = self.inode_in_use(id)?;
        let mut state = lock::write(&inode.lock)?;
        let mut draft = Draft::new(&inode.tree);
        let mut item = draft.inode(id)?;
        may_change(&inode.tree, id, &item)?;
        change(&mut draft, &mut item, &mut state)?;
        note_change(&mut item, FileTime::now());
        draft.put_inode(id.ino, &item);
        let txn = self.join_to_change(reservation, &inode.tree)?;
        draft.enter(&txn);
        Ok(())
    }
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    const NAMESPACES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", property::NAMESPACE];
    limits::check_xattr_name(name)?;
    let known = |space: &&[u8]| name.len() > space.len() && name.starts_with(space);
    match name {
        acl::ACCESS | acl::DEFAULT => Ok(()),
        _ if NAMESPACES.iter().any(known) => Ok(()),
        _ => Err(Error::XattrNamespace),
    }
}

/// Sets an ACL, or removes it if it has no entries.
fn set_acl(
    draft: &mut Draft<'_>,
    id: FileId,
    item: &mut InodeItem,
    state: &mut InodeState,
    name: &[u8],
    value: &[u8],
    clears_setgid: bool,
) -> Result<()> {
    let kind = kind_of(id, item)?;
    if kind == FileKind::Symlink {
        return Err(Error::XattrNamespace);
    }
    let acl = match acl::parse(value) {
        Parsed::Invalid => return Err(Error::Invalid("ACL")),
        Parsed::Empty => None,
        Parsed::Acl(acl) => Some(acl),
    };
    let kept = if name == acl::DEFAULT {
        if acl.is_some() && kind != FileKind::Directory {
            return Err(Error::Invalid("default ACL of a file that is no directory"));
        }
        state.inherited = None;
        acl
    } else {
        acl.and_then(|acl| {
            let applied = acl.applied_to(item.mode.get());
            let cleared = if clears_setgid { SETGID } else { 0 };
            item.mode = (applied.mode & !cleared).into();
            applied.access
        })
    };
    match kept {
        Some(acl) => draft.set_xattr(id.ino, name, &acl.to_bytes(), XattrMode::Any),
        None => draft.remove_xattr(id.ino, name).map(drop),
    }
}

fn set_property(
    draft: &mut Draft<'_>,
    id: FileId,
    item: &mut InodeItem,
    state: &mut InodeState,
    value: &[u8],
    name: &[u8],
    mode: XattrMode,
) -> Result<()> {
    let asked = property::check(name, value, item.flags())?;
    if !property::is_of_use(kind_of(id, item)?) {
        return Ok(());
    }
    state.inherited = None;
    item.flags = asked.apply(item.flags()).bits().into();
    if asked == property::CompressionProperty::Unset {
        return match (draft.remove_xattr(id.ino, name)?, mode) {
            (false, XattrMode::Replace) => Err(Error::NoXattr),
            _ => Ok(()),
        };
    }
    draft.set_xattr(id.ino, name, value, mode)
}

impl Draft<'_> {
    /// Sets an attribute of an inode without validating its value.
    pub(crate) fn set_xattr(
        &mut self,
        ino: InodeNr,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let view = &self.tree().view;
        let most = leaf_data_size(view.store().nodesize()) - ITEM_HEAD_SIZE - HEAD_BYTES;
        let record = encode(name, value).filter(|_| name.len() + value.len() <= most);
        let record = record.ok_or(Error::XattrTooBig)?;
        let key = xattr_key(ino, name);
        let mut old = self.get(&key)?;
        let found = old.as_deref().and_then(|item| find_record(item, name));
        match (found, mode) {
            (Some(_), XattrMode::Create) => return Err(Error::Exists),
            (None, XattrMode::Replace) => return Err(Error::NoXattr),
            _ => {}
        }
        let (start, len) = found.unwrap_or_default();
        if let Some(item) = &old
            && len < item.len()
            && !has_room(view, item.len() - len, record.len())
        {
            return Err(Error::XattrTooBig);
        }
        if let Some(item) = &old
            && len > 0
        {
            if len == item.len() {
                self.put(key, record, super::draft::Stamps::at(TRANSID_AT));
                return Ok(());
            }
            self.cut(key, item, start, len);
            old = self.get(&key)?;
        }
        self.append(key, old.as_ref(), &record, Some(TRANSID_AT));
        Ok(())
    }

    /// Removes an attribute. Returns false if the inode does not have it.
    pub(crate) fn remove_xattr(&mut self, ino: InodeNr, name: &[u8]) -> Result<bool> {
        let key = xattr_key(ino, name);
        let Some(item) = self.get(&key)? else {
            return Ok(false);
        };
        let Some((start, len)) = find_record(&item, name) else {
            return Ok(false);
        };
        self.cut(key, &item, start, len);
        Ok(true)
    }
}

fn encode(name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let head = DirHead {
        location: Key::MIN.into(),
        transid: 0.into(),
        data_len: u16::try_from(value.len()).ok()?.into(),
        name_len: u16::try_from(name.len()).ok()?.into(),
        type_: FileKind::RAW_XATTR,
    };
    Some([head.as_bytes(), name, value].concat())
}

/// Returns the offset and length of the record of `name` in an item.
fn find_record(item: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let mut entries = DirEntries::new(item);
    loop {
        let start = item.len() - entries.rest().len();
        let entry = entries.next()?;
        if entry.name == name {
            return Some((start, HEAD_BYTES + entry.name.len() + entry.data.len()));
        }
    }
}
