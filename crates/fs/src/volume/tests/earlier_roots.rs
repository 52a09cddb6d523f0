//! Volumes whose last transaction is unreadable: failed opens, and the backup roots of the transaction
//! before.

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::{Logical, RootId};

use super::{device_of, open, options};
use crate::{FileId, NewInode, OpenOptions, Rescue, Volume};

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

/// Overwrites every copy of a block.
fn damage(device: &MemDevice, volume: &Volume, block: Logical) {
    let chunks = volume.pool().chunk_map().all();
    let chunk = chunks.iter().find(|chunk| chunk.contains(block));
    let chunk = chunk.unwrap();
    for stripe in chunk.stripes() {
        let at = stripe.physical.0 + (block.0 - chunk.logical().0);
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
    damage(&device, &volume, Logical(volume.superblock().root.get()));
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

#[test]
fn nothing_is_committed_to_roots_that_could_not_be_opened() {
    let device = device_of(256 * MIB, "quota");
    let volume = open(&device, &options());
    create(&volume, "file");
    volume.close().unwrap();
    let before = volume.superblock().generation.get();
    let quotas = volume.tree(RootId::QUOTA_TREE).unwrap();
    damage(&device, &volume, quotas.item().bytenr());
    drop((quotas, volume));

    // There is something to commit.
    let options = options().clear_free_space_tree(true);
    let opened = Volume::from_devices(vec![("memory".into(), device.clone() as _)], &options);
    assert!(opened.is_err());
    let volume = open(&device, &OpenOptions::new());
    assert_eq!(volume.superblock().generation.get(), before);
}
