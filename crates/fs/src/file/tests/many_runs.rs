//! More runs of sectors in one write-back than one transaction takes.

use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;

use super::fixture::{MIB, Rig, options};

/// Two transactions cut one extent.
#[test]
fn an_extent_is_cut_by_runs_of_several_transactions() {
    const SECTOR: usize = 4096;
    for features in ["", "^no-holes"] {
        let mut mkfs = MkfsOptions::default();
        mkfs.features.apply_list(features).unwrap();
        let mut rig = Rig::on(&mkfs, 256 * MIB, options());
        let file = rig.file(InodeFlags::empty());
        let mut bytes = vec![1; 5 * MIB as usize];
        rig.volume().write_direct(file, 0, &bytes).unwrap();
        rig.volume().sync().unwrap();
        for offset in (0..bytes.len()).step_by(2 * SECTOR) {
            let sector = offset..offset + SECTOR;
            bytes[sector.clone()].fill(2);
            rig.volume()
                .write(file, offset as u64, &bytes[sector])
                .unwrap();
        }
        rig.reopen();
        let mut found = vec![0; bytes.len()];
        rig.volume().read(file, 0, &mut found).unwrap();
        assert!(found == bytes);
        rig.assert_sound();
    }
}
