//! The names of subvolumes: ROOT_REFs sorted by parent, and ROOT_BACKREFs sorted by child.
//!
//! Locks: the lock of the directory that contains the subvolume, and `InodeTable::rename_lock`.

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{RootRef, RootRefHead};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::IntoBytes;

use crate::error::{CorruptItem, Error, Result};
use crate::inode::{Draft, Stamps};

/// The location of a subvolume: in directory `dir` of `parent`, at `index`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootPlace<'a> {
    pub(crate) parent: RootId,
    pub(crate) dir: InodeNr,
    pub(crate) index: u64,
    pub(crate) name: &'a [u8],
}

pub(crate) fn root_ref_key(parent: RootId, child: RootId) -> Key {
    Key::new(parent.0, KeyType::ROOT_REF, child.0)
}

fn root_backref_key(parent: RootId, child: RootId) -> Key {
    Key::new(child.0, KeyType::ROOT_BACKREF, parent.0)
}

/// Items of the root tree that name subvolumes.
impl Draft<'_> {
    pub(crate) fn insert_root_ref(&mut self, child: RootId, place: RootPlace<'_>) {
        let head = RootRefHead {
            dirid: place.dir.0.into(),
            sequence: place.index.into(),
            name_len: (place.name.len() as u16).into(),
        };
        let value = [head.as_bytes(), place.name].concat();
        let back = root_backref_key(place.parent, child);
        self.insert(root_ref_key(place.parent, child), &*value, Stamps::NONE);
        self.insert(back, value, Stamps::NONE);
    }

    /// Removes the name, and returns the index of its entry.
    pub(crate) fn remove_root_ref(
        &mut self,
        parent: RootId,
        child: RootId,
        dir: InodeNr,
        name: &[u8],
    ) -> Result<u64> {
        let key = root_ref_key(parent, child);
        let found = self.get(&key)?.and_then(|bytes| {
            let place = RootRef::decode(&bytes)?;
            (place.dirid == dir.0 && place.name == name).then_some(place.sequence)
        });
        let index = found.ok_or(Error::Corrupt {
            tree: RootId::ROOT_TREE,
            key,
            what: CorruptItem::NoName(dir),
        })?;
        self.delete(key);
        let back = root_backref_key(parent, child);
        if self.get(&back)?.is_some() {
            self.delete(back);
        }
        Ok(index)
    }
}
