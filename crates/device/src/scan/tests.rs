//! Scans of a folder.

use super::*;
use crate::superblock::write_superblocks;
use crate::test_volume::{DEVICE_BYTES, FSID, superblock};
use std::os::unix::fs::symlink;

#[test]
fn folder_gives_each_device_once_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    for devid in [2, 1] {
        let path = dir.path().join(format!("d{devid}"));
        let device = FileDevice::create_new(&path, DEVICE_BYTES).unwrap();
        write_superblocks(&device, &path, &superblock(devid, 2)).unwrap();
    }
    std::fs::write(dir.path().join("notes.txt"), "no device").unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    symlink(dir.path().join("d1"), dir.path().join("link")).unwrap();
    let wiped = dir.path().join("wiped");
    let device = FileDevice::create_new(&wiped, DEVICE_BYTES).unwrap();
    write_superblocks(&device, &wiped, &superblock(3, 2)).unwrap();
    device.write_at(&[0; 4096], 64 << 10).unwrap();

    let found = scan(&[dir.path().to_owned(), dir.path().join("d1")]);
    let devids: Vec<u64> = found.iter().map(|device| device.devid).collect();
    assert_eq!(devids, [1, 2]);
    assert!(
        found
            .iter()
            .all(|device| device.fsid == FSID && device.num_devices == 2)
    );
}
