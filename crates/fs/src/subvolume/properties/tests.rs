//! A volume without a UUID tree, as old versions made it.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;
use ubtrfs_tree::Edit;

use super::*;
use crate::Volume;
use crate::namespace::NewInode;
use crate::volume::OpenOptions;

const LEN_BYTES: u64 = 256 << 20;

fn open(device: &Arc<MemDevice>) -> Arc<Volume> {
    let device: Arc<dyn BlockDevice> = device.clone();
    let options = OpenOptions::new().writable(true).commit_interval(None);
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap()
}

#[test]
fn receiving_makes_the_uuid_tree_that_is_missing() {
    let device = Arc::new(new_volume(&MkfsOptions::default(), LEN_BYTES));
    let volume = open(&device);
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let root = NewInode::directory(0o755);
    let id = volume.create_subvolume(top, b"sub", &root).unwrap();
    let uuid_tree = volume.tree(RootId::UUID_TREE).unwrap().root_key();
    let reservation = volume
        .inodes
        .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
        .unwrap();
    let txn = volume.inodes.join_transaction(reservation).unwrap();
    txn.edit(volume.roots.root_tree_object(), [Edit::Delete(uuid_tree)]);
    drop(txn);
    volume.sync().unwrap();
    drop(volume);

    let volume = open(&device);
    assert!(volume.find_tree(RootId::UUID_TREE).unwrap().is_none());
    let from = ReceivedFrom {
        uuid: Uuid([7; 16]),
        transid: Transid(9),
        time: FileTime::now(),
    };
    volume.set_received(id, &from).unwrap();
    drop(volume);
    let volume = open(&device);
    let tree = volume.tree(RootId::UUID_TREE).unwrap();
    let (objectid, offset) = from.uuid.key_halves();
    let key = Key::new(objectid, KeyType::UUID_KEY_RECEIVED_SUBVOL, offset);
    let found = tree.view.get(&key).unwrap().unwrap();
    assert_eq!(found[..], id.0.to_le_bytes());
    let item = volume.subvolume_tree(id).unwrap().item();
    assert_eq!(item.received_uuid, from.uuid);
}
