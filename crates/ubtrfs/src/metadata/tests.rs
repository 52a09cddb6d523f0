//! Flags and times that are read as they were set.

use std::time::{Duration, UNIX_EPOCH};

use ubtrfs_fs::FileTime;

use super::*;

#[test]
fn flags_come_back_as_they_were_set() {
    let flags = FileFlags {
        dir_sync: true,
        append: true,
        no_cow: true,
        ..FileFlags::default()
    };
    assert_eq!(FileFlags::of(flags.to_inode()), flags);
    assert_eq!(FileFlags::default().to_inode(), InodeFlags::empty());
}

#[test]
fn times_before_1970_and_beyond_any_clock_are_no_panic() {
    let before = UNIX_EPOCH - Duration::new(1, 500);
    let stored = FileTime::from(before);
    assert_eq!((stored.sec, stored.nsec), (-2, 999_999_500));
    assert_eq!(SystemTime::from(stored), before);
    for sec in [i64::MIN, i64::MAX, 0] {
        let _ = SystemTime::from(FileTime {
            sec,
            nsec: u32::MAX,
        });
    }
}
