//! Appends to buffered data, for which space is reserved ahead.

use ubtrfs_format::block_group_flags::BlockGroupType;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{Rng, seed};

use super::fixture::{MIB, Rig, options};
use crate::Volume;
use crate::inode::WINDOW_BYTES;

const SECTOR: u64 = 4096;

/// Returns the reserved data space that is not used.
fn reserved(volume: &Volume) -> u64 {
    let totals = volume.inodes.transactions().unwrap().space.totals();
    let data = totals
        .iter()
        .filter(|sums| sums.kind == BlockGroupType::Data);
    data.map(|sums| sums.reserved).sum()
}

#[test]
fn appends_are_kept_and_what_they_were_promised_goes_back() {
    let rig = Rig::on(&MkfsOptions::default(), 256 * MIB, options());
    let volume = rig.volume();
    let mut rng = Rng::new(seed(
        "appends_are_kept_and_what_they_were_promised_goes_back",
    ));
    for len in [1, 100, 4096, 5000, 8192, 70_000, 300_000] {
        let id = rig.file(InodeFlags::empty());
        let mut model: Vec<u8> = Vec::new();
        let mut buffered = 0;
        for number in 0..(2_000_000 / len).min(600) {
            let bytes = vec![number as u8; len];
            let at = volume.append(id, &bytes).unwrap();
            assert_eq!(at, model.len() as u64);
            model.extend(&bytes);
            buffered += (len as u64).next_multiple_of(SECTOR) + SECTOR;
            let some = rng.below(model.len() as u64);
            match rng.below(100) {
                0 => {
                    volume.truncate(id, some).unwrap();
                    model.truncate(some as usize);
                    buffered += 2 * SECTOR;
                }
                1 => {
                    let end = (some as usize + 10_000).min(model.len());
                    model[some as usize..end].fill(7);
                    let bytes = &model[some as usize..end];
                    volume.write(id, some, bytes).unwrap();
                    buffered += 4 * SECTOR;
                }
                2 => {
                    volume.fsync(id).unwrap();
                    assert_eq!(reserved(volume), 0);
                    buffered = 0;
                }
                _ => {}
            }
            assert!(reserved(volume) <= buffered + WINDOW_BYTES);
        }
        let mut found = vec![0; model.len()];
        assert_eq!(volume.read(id, 0, &mut found).unwrap(), found.len());
        assert!(found == model);
        volume.sync().unwrap();
        assert_eq!(reserved(volume), 0);
    }
    rig.assert_sound();
}

/// BUFFER-3
#[test]
fn two_writers_in_one_file_reserve_no_more_than_one() {
    let rig = Rig::on(&MkfsOptions::default(), 256 * MIB, options());
    let volume = rig.volume();
    let id = rig.file(InodeFlags::empty());
    for number in 0..500 {
        for start in [0, 64 * MIB] {
            volume
                .write(id, start + number * SECTOR, &[1; 4096])
                .unwrap();
        }
        let dirty = 2 * (number + 1) * SECTOR;
        assert!((dirty..=dirty + SECTOR + WINDOW_BYTES).contains(&reserved(volume)));
    }
    volume.truncate(id, 0).unwrap();
    assert_eq!(reserved(volume), 0);
    rig.assert_sound();
}
