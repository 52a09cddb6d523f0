//! What is left when a volume is closed.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_format::item::InodeFlags;

use super::rig::{MIB, Rig, assert_sound, options};
use crate::data::Fallocate;
use crate::mkfs::MkfsOptions;
use crate::{OpenOptions, SpaceKind, Volume};

#[test]
fn emptied_block_groups_do_not_outlive_the_volume() {
    let rig = Rig::on(&MkfsOptions::default(), 512 * MIB, options());
    let (volume, id) = (Arc::clone(rig.volume()), rig.file(InodeFlags::empty()));
    let reserve = Fallocate::Reserve { keep_size: false };
    volume.fallocate(id, reserve, 0, 300 * MIB).unwrap();
    volume.sync().unwrap();
    volume.truncate(id, 0).unwrap();
    volume.close().unwrap();
    assert_sound(&rig.device);
    let devices = vec![(PathBuf::from("memory"), rig.device.clone() as _)];
    let found = Volume::from_devices(devices, &OpenOptions::new()).unwrap();
    let mut empty = 0;
    let mut count = |group: crate::BlockGroup| {
        empty += usize::from(SpaceKind::of(group.flags) == SpaceKind::Data && group.used == 0);
    };
    found.for_each_block_group(&mut count).unwrap();
    assert!(empty <= 1, "{empty} block groups are empty");
    // Nothing is left to be done.
    let generation = found.superblock().generation.get();
    volume.close().unwrap();
    assert_eq!(volume.superblock().generation.get(), generation);
}
