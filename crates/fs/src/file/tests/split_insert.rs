//! Changes of files with many extents, too large for one transaction.

use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;

use super::fixture::{MIB, Rig, options};
use crate::file::Fallocate;

const SECTOR: u64 = 4096;
const EXTENTS: u64 = 8192;
const DELTA_BYTES: u64 = 128 << 10;

#[test]
fn no_transaction_holds_all_that_becomes_of_many_extents() {
    let len = EXTENTS * 2 * SECTOR;
    for (features, mode) in [
        ("", Fallocate::PunchHole),
        ("^no-holes", Fallocate::PunchHole),
        ("", Fallocate::ZeroRange { keep_size: true }),
        ("", Fallocate::Reserve { keep_size: true }),
    ] {
        let mut mkfs = MkfsOptions::default();
        mkfs.features.apply_list(features).unwrap();
        let rig = Rig::on(&mkfs, 512 * MIB, options().delta_bytes(DELTA_BYTES));
        let (volume, id) = (rig.volume(), rig.file(InodeFlags::empty()));
        for number in 0..EXTENTS {
            let sector = [1; SECTOR as usize];
            volume.write(id, number * 2 * SECTOR, &sector).unwrap();
        }
        volume.sync().unwrap();
        let commits = || volume.writer_stats().unwrap().commits;
        let before = commits();
        volume.fallocate(id, mode, SECTOR, len - SECTOR).unwrap();
        let during = commits() - before;
        assert!(during >= 6, "{features} {mode:?}: {during} commits");
        let mut found = vec![9; len as usize];
        let read = volume.read(id, 0, &mut found).unwrap();
        let stays = match mode {
            Fallocate::Reserve { .. } => |sector: u64| sector.is_multiple_of(2),
            _ => |sector: u64| sector == 0,
        };
        for (sector, bytes) in found[..read].chunks(SECTOR as usize).enumerate() {
            let byte = u8::from(stays(sector as u64));
            assert!(
                bytes.iter().all(|&found| found == byte),
                "{mode:?} {sector}"
            );
        }
        rig.assert_sound();
    }
}
