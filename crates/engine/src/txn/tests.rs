use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{DirHead, Timespec};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::name_hash::name_hash;
use zerocopy::IntoBytes;

use super::{Cost, Txn};
use crate::mkfs::{Identity, MkfsOptions, Plan};
use crate::{FileId, OpenOptions, Volume};

fn device(options: &MkfsOptions, len_bytes: u64) -> MemDevice {
    let created = Timespec {
        sec: 1.into(),
        nsec: 0.into(),
    };
    let plan = Plan::new(options, &Identity::random(1, created), &[len_bytes]).unwrap();
    let device = MemDevice::new(len_bytes);
    plan.write(&[&device], false).unwrap();
    device
}

fn open(device: &Arc<MemDevice>) -> Arc<Volume> {
    let device: Arc<dyn BlockDevice> = device.clone();
    let options = OpenOptions::new().writable(true).commit_interval(None);
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap()
}

/// An xattr on the top-level directory.
fn xattr(name: &[u8], value: &[u8]) -> (Key, Vec<u8>) {
    let key = Key::new(256, KeyType::XATTR_ITEM, u64::from(name_hash(name)));
    let head = DirHead {
        location: DiskKey::from(Key::new(0, KeyType(0), 0)),
        transid: 1.into(),
        data_len: (value.len() as u16).into(),
        name_len: (name.len() as u16).into(),
        type_: 8,
    };
    (key, [head.as_bytes(), name, value].concat())
}

#[test]
fn smoke_plain() {
    smoke("^free-space-tree,^block-group-tree", "a")
}
#[test]
fn smoke_default() {
    smoke("", "b")
}
fn smoke(features: &str, name: &str) {
    let mut options = MkfsOptions::default();
    options.features.apply_list(features).unwrap();
    let device = Arc::new(device(&options, 512 << 20));
    let volume = open(&device);
    let tree = volume.subvolume_tree(RootId::FS_TREE).unwrap();
    for round in 0..5u32 {
        for i in 0..2000u32 {
            let n = i.wrapping_mul(2654435761) % 100_000;
            let (key, value) = xattr(
                format!("user.{n}").as_bytes(),
                &vec![round as u8; (n % 300) as usize],
            );
            let permit = volume.admit(Cost::items(1)).unwrap();
            let txn = volume.enter(permit).unwrap();
            txn.put(&tree, key, value);
        }
        volume.sync().unwrap();
        eprintln!("round {round} {:?}", volume.writer().unwrap().stats());
    }
    drop(tree);
    drop(volume);
    let mut bytes = vec![0; 512 << 20];
    device.read_at(&mut bytes, 0).unwrap();
    std::fs::write(format!("/work/scratch/core-{name}.img"), bytes).unwrap();
}
