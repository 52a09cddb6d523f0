//! Consistency of the UUID tree and the subvolumes' root items.
//!
//! The kernel rebuilds the tree if its generation differs from the volume's. In this case it is not checked.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{ITEM_HEAD_SIZE, leaf_data_size};
use ubtrfs_format::uuid::Uuid;

use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::item_reader::ItemReader;
use crate::roots::{Roots, UuidMap};
use crate::state::State;
use crate::volume::CheckedVolume;
use crate::walk::walk;

pub(crate) fn check(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    roots: &Roots,
) -> Result<(), CheckError> {
    let Some(root) = roots.tree_root(RootId::UUID_TREE) else {
        return Ok(());
    };
    let superblock = volume.superblock();
    let is_current = superblock.uuid_tree_generation == superblock.generation;
    let wanted = roots.uuids();
    let mut reader = Reader {
        is_checked: is_current && volume.is_current(),
        wanted: wanted.clone(),
        roots_lost: state.has_lost(RootId::ROOT_TREE),
        state,
    };
    walk(volume, &[root], &mut reader)?;
    if !reader.is_checked {
        return Ok(());
    }
    let missing = reader.wanted;
    let lost = state.has_lost(RootId::UUID_TREE);
    let nodesize = superblock.nodesize.get() as usize;
    for ((uuid, kind), ids) in missing {
        let is_received = kind == KeyType::UUID_KEY_RECEIVED_SUBVOL;
        if is_received && is_too_many(wanted[&(uuid, kind)].len(), nodesize) {
            continue;
        }
        for id in ids {
            let at = Place::tree(RootId(id));
            let fault = if is_received {
                Fault::ReceivedUuidMissing { uuid }
            } else {
                Fault::UuidMissing { uuid }
            };
            state.add_unless(lost, at, fault);
        }
    }
    Ok(())
}

/// Returns whether one item is too small for this many subvolumes. Then both ubtrfs and the kernel omit entries of
/// snapshots. Neither splits a leaf for an item that would leave no space for another item head.
fn is_too_many(subvolumes: usize, nodesize: usize) -> bool {
    subvolumes * size_of::<u64>() + 2 * ITEM_HEAD_SIZE > leaf_data_size(nodesize)
}

struct Reader<'s, 'a> {
    state: &'s mut State<'a>,
    is_checked: bool,
    /// The entries that were not found yet.
    wanted: UuidMap,
    roots_lost: bool,
}

impl<'a> ItemReader<'a> for Reader<'_, 'a> {
    fn state(&mut self) -> &mut State<'a> {
        self.state
    }

    fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        let is_uuid = matches!(
            key.item_type,
            KeyType::UUID_KEY_SUBVOL | KeyType::UUID_KEY_RECEIVED_SUBVOL
        );
        if is_uuid && self.is_checked {
            self.entry(key, bytes);
        }
        Ok(())
    }
}

impl Reader<'_, '_> {
    fn entry(&mut self, key: Key, bytes: &[u8]) {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&key.objectid.to_le_bytes());
        raw[8..].copy_from_slice(&key.offset.to_le_bytes());
        let uuid = Uuid(raw);
        let wanted = self.wanted.entry((uuid, key.item_type)).or_default();
        for id in bytes.as_chunks::<8>().0 {
            let id = u64::from_le_bytes(*id);
            match wanted.iter().position(|&wanted| wanted == id) {
                Some(index) => {
                    wanted.swap_remove(index);
                }
                None => {
                    let at = Place::item(RootId::UUID_TREE, key);
                    let at = Place {
                        tree: Some(RootId(id)),
                        ..at
                    };
                    let fault = Fault::UuidWrong { uuid };
                    self.state.add_unless(self.roots_lost, at, fault);
                }
            }
        }
    }
}
