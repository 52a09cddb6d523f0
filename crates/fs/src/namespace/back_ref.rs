//! Back references: an inode's names, each with the directory and index of its entry.
//!
//! Names in one directory share an INODE_REF as long as they fit; further names go to INODE_EXTREFs, if the
//! volume has them.
//!
//! Locks: the inode's.

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{InodeExtrefHead, InodeExtrefs, InodeRefHead, InodeRefs};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::name_hash::extref_hash;
use ubtrfs_tree::View;
use zerocopy::IntoBytes;

use super::entry::{MAX_NAME_BYTES, has_room};
use crate::error::{CorruptItem, Error, Result};
use crate::inode::{Draft, Stamps};

fn ref_key(ino: InodeNr, dir: InodeNr) -> Key {
    Key::new(ino.0, KeyType::INODE_REF, dir.0)
}

fn extref_key(ino: InodeNr, dir: InodeNr, name: &[u8]) -> Key {
    Key::new(ino.0, KeyType::INODE_EXTREF, extref_hash(dir.0, name))
}

fn record(head: &[u8], name: &[u8]) -> Vec<u8> {
    [head, name].concat()
}

const REF_HEAD_BYTES: usize = size_of::<InodeRefHead>();

fn ref_record<'b>(
    buf: &'b mut [u8; REF_HEAD_BYTES + MAX_NAME_BYTES],
    index: u64,
    name: &[u8],
) -> &'b [u8] {
    let head = InodeRefHead {
        index: index.into(),
        name_len: (name.len() as u16).into(),
    };
    let len = REF_HEAD_BYTES + name.len();
    buf[..REF_HEAD_BYTES].copy_from_slice(head.as_bytes());
    buf[REF_HEAD_BYTES..len].copy_from_slice(name);
    &buf[..len]
}

impl Draft<'_> {
    /// Inserts the first name of a new inode.
    pub(super) fn insert_ref(&mut self, ino: InodeNr, dir: InodeNr, index: u64, name: &[u8]) {
        let mut buf = [0; REF_HEAD_BYTES + MAX_NAME_BYTES];
        let record = ref_record(&mut buf, index, name);
        self.insert(ref_key(ino, dir), record, Stamps::NONE);
    }

    /// Adds another name of an inode. `extrefs` is whether the volume has INODE_EXTREFs.
    ///
    /// Errors: the item for names in this directory is full.
    pub(crate) fn add_ref(
        &mut self,
        ino: InodeNr,
        dir: InodeNr,
        index: u64,
        name: &[u8],
        extrefs: bool,
    ) -> Result<()> {
        let mut buf = [0; REF_HEAD_BYTES + MAX_NAME_BYTES];
        let (key, new) = (ref_key(ino, dir), ref_record(&mut buf, index, name));
        let old = self.get(&key)?;
        let len = old.as_ref().map_or(0, |old| old.len());
        if has_room(&self.tree().view, len, new.len()) {
            self.append(key, old.as_ref(), new, None);
            return Ok(());
        }
        if !extrefs {
            return Err(Error::TooManyLinks);
        }
        let head = InodeExtrefHead {
            parent_objectid: dir.0.into(),
            index: index.into(),
            name_len: (name.len() as u16).into(),
        };
        let (key, new) = (extref_key(ino, dir, name), record(head.as_bytes(), name));
        let old = self.get(&key)?;
        let len = old.as_ref().map_or(0, |old| old.len());
        if !has_room(&self.tree().view, len, new.len()) {
            return Err(Error::TooManyLinks);
        }
        self.append(key, old.as_ref(), &new, None);
        Ok(())
    }

    /// Removes a name, and returns the index of its entry.
    pub(crate) fn remove_ref(&mut self, ino: InodeNr, dir: InodeNr, name: &[u8]) -> Result<u64> {
        let key = ref_key(ino, dir);
        if let Some(old) = self.get(&key)?
            && let Some((index, start, len)) = find_ref(&old, name)
        {
            self.cut(key, &old, start, len);
            return Ok(index);
        }
        let key = extref_key(ino, dir, name);
        if let Some(old) = self.get(&key)?
            && let Some((index, start, len)) = find_extref(&old, dir, name)
        {
            self.cut(key, &old, start, len);
            return Ok(index);
        }
        Err(Error::Corrupt {
            tree: self.tree().id(),
            key: ref_key(ino, dir),
            what: CorruptItem::NoName(ino),
        })
    }
}

/// Returns whether an inode has the name, according to its items in `view`.
pub(crate) fn has_ref(view: &View, ino: InodeNr, dir: InodeNr, name: &[u8]) -> Result<bool> {
    let item = view.get(&ref_key(ino, dir))?;
    if item.is_some_and(|item| find_ref(&item, name).is_some()) {
        return Ok(true);
    }
    let item = view.get(&extref_key(ino, dir, name))?;
    Ok(item.is_some_and(|item| find_extref(&item, dir, name).is_some()))
}

/// Returns the index of the entry `name`, and the offset and length of its record.
fn find_ref(item: &[u8], name: &[u8]) -> Option<(u64, usize, usize)> {
    let mut refs = InodeRefs::new(item);
    loop {
        let start = item.len() - refs.rest().len();
        let found = refs.next()?;
        if found.name == name {
            let len = size_of::<InodeRefHead>() + name.len();
            return Some((found.index, start, len));
        }
    }
}

fn find_extref(item: &[u8], dir: InodeNr, name: &[u8]) -> Option<(u64, usize, usize)> {
    let mut refs = InodeExtrefs::new(item);
    loop {
        let start = item.len() - refs.rest().len();
        let found = refs.next()?;
        if (found.parent, found.name) == (dir.0, name) {
            let len = size_of::<InodeExtrefHead>() + name.len();
            return Some((found.index, start, len));
        }
    }
}
