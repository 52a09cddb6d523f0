//! The UUID tree: subvolumes by their own or received UUID.

use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::uuid::Uuid;
use ubtrfs_storage::roots::Tree;

use super::Subvolumes;
use crate::error::{Error, Result};
use crate::inode::{Draft, has_room};

/// The kind of UUID: the subvolume's own, or the UUID of the subvolume it was received from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UuidKind {
    Own,
    Received,
}

pub(super) fn uuid_key(kind: UuidKind, uuid: &Uuid) -> Key {
    let item_type = match kind {
        UuidKind::Own => KeyType::UUID_KEY_SUBVOL,
        UuidKind::Received => KeyType::UUID_KEY_RECEIVED_SUBVOL,
    };
    let (objectid, offset) = uuid.key_halves();
    Key::new(objectid, item_type, offset)
}

fn find(ids: &[u8], id: RootId) -> Option<usize> {
    let at = ids
        .chunks_exact(8)
        .position(|stored| stored == id.0.to_le_bytes());
    at.map(|at| at * 8)
}

impl Subvolumes {
    pub(super) fn uuid_tree(&self) -> Result<Option<Arc<Tree>>> {
        Ok(self.roots.find_tree(RootId::UUID_TREE)?)
    }
}

/// Items of the UUID tree.
impl Draft<'_> {
    /// Adds a subvolume to the item of a UUID.
    ///
    /// Errors: the item is full ([`Error::UuidItemFull`]).
    pub(super) fn add_uuid(&mut self, kind: UuidKind, uuid: &Uuid, id: RootId) -> Result<()> {
        let key = uuid_key(kind, uuid);
        let old = self.get(&key)?;
        let ids = old.as_deref().unwrap_or_default();
        if find(ids, id).is_some() {
            return Ok(());
        }
        if !has_room(&self.tree().view, ids.len(), size_of::<u64>()) {
            return Err(Error::UuidItemFull);
        }
        self.append(key, old.as_ref(), &id.0.to_le_bytes(), None);
        Ok(())
    }

    /// Adds a snapshot to the item of its source's received UUID. As in the kernel, a full item is not an
    /// error.
    pub(super) fn add_received_of_source(&mut self, uuid: &Uuid, id: RootId) -> Result<()> {
        match self.add_uuid(UuidKind::Received, uuid, id) {
            Err(Error::UuidItemFull) => {
                tracing::debug!(%id, "the item of its received UUID is full");
                Ok(())
            }
            added => added,
        }
    }

    pub(super) fn remove_uuid(&mut self, kind: UuidKind, uuid: &Uuid, id: RootId) -> Result<()> {
        let key = uuid_key(kind, uuid);
        if let Some(old) = self.get(&key)?
            && let Some(at) = find(&old, id)
        {
            self.cut(key, &old, at, 8);
        }
        Ok(())
    }
}
