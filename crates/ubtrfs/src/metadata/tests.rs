//! Flags that are read as they were set.

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
