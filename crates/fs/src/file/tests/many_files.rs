//! More small files with buffered data than the budget allows.

use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;

use super::fixture::{MIB, Rig, options};

/// A file counts with more than its buffered byte.
#[test]
fn files_count_against_the_budget_with_what_they_take_themselves() {
    const FILES: usize = 1500;
    const BUDGET_BYTES: u64 = 256 << 10;
    let mut rig = Rig::on(
        &MkfsOptions::default(),
        256 * MIB,
        options().buffer_bytes(BUDGET_BYTES),
    );
    let mut files = Vec::new();
    let mut most = 0;
    for number in 0..FILES {
        let file = rig.file(InodeFlags::empty());
        rig.volume().write(file, 0, &[number as u8]).unwrap();
        files.push(file);
        most = most.max(rig.volume().inodes.dirty.next(None, usize::MAX).len());
    }
    assert!(
        (100..=(BUDGET_BYTES >> 10) as usize).contains(&most),
        "{most}"
    );
    rig.reopen();
    for (number, file) in files.into_iter().enumerate() {
        let mut byte = [0];
        rig.volume().read(file, 0, &mut byte).unwrap();
        assert_eq!(byte[0], number as u8);
    }
    rig.assert_sound();
}
