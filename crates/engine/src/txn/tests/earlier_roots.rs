//! Volumes whose last transaction cannot be read, opened with the roots of the one before.

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::{Logical, RootId};

use super::{device_of, open, options};
use crate::{FileId, NewInode, Rescue, Volume};

const MIB: u64 = 1 << 20;

fn chunks(volume: &Volume) -> Vec<u64> {
    let chunks = volume.pool().chunk_map().all();
    chunks.iter().map(|chunk| chunk.logical().0).collect()
}

fn create(volume: &Volume, name: &str) -> FileId {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume
        .create(top, name.as_bytes(), &NewInode::file(0o644))
        .unwrap()
}

/// Overwrites every copy of the root tree's root.
fn damage_root_tree(device: &MemDevice, volume: &Volume) {
    let block = volume.superblock().root.get();
    let chunks = volume.pool().chunk_map().all();
    let chunk = chunks.iter().find(|chunk| chunk.contains(Logical(block)));
    let chunk = chunk.unwrap();
    for stripe in chunk.stripes() {
        let at = stripe.physical.0 + (block - chunk.logical().0);
        device.write_at(&[0xff; 4096], at).unwrap();
    }
}

#[test]
fn chunks_that_only_the_lost_transaction_had_are_not_known() {
    let device = device_of(256 * MIB, "");
    let volume = open(&device, &options());
    create(&volume, "before");
    volume.sync().unwrap();
    let before = chunks(&volume);
    let id = create(&volume, "lost");
    let commits = || volume.writer_stats().unwrap().commits;
    let made = commits();
    let bytes = vec![7; 48 * MIB as usize];
    volume.write(id, 0, &bytes).unwrap();
    volume.sync().unwrap();
    assert_eq!(commits(), made + 1);
    assert_ne!(chunks(&volume), before);
    volume.close().unwrap();
    damage_root_tree(&device, &volume);
    drop(volume);

    let rescue = Rescue {
        use_backup_root: true,
        ..Rescue::default()
    };
    let volume = open(&device, &options().rescue(rescue));
    assert_eq!(chunks(&volume), before);
    let id = create(&volume, "lost");
    volume.write(id, 0, &bytes).unwrap();
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device, &options());
    let mut found = vec![0; bytes.len()];
    volume.read(id, 0, &mut found).unwrap();
    assert!(found == bytes);
}
