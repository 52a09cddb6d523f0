//! Files that may and may not be overwritten.

use super::*;

fn file_with(mark: &[u8], at: u64, len: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(len).unwrap();
    file.as_file().write_all_at(mark, at).unwrap();
    file
}

fn checked(file: &tempfile::NamedTempFile) -> Result<(), DeviceError> {
    check_overwrite(&File::open(file.path()).unwrap(), file.path())
}

#[test]
fn file_with_a_superblock_is_not_overwritten() {
    for at in &SUPERBLOCK_OFFSETS[..2] {
        let file = file_with(&MAGIC, at + MAGIC_AT, 128 << 20);
        let refused = checked(&file).unwrap_err();
        assert!(matches!(refused, DeviceError::HoldsVolume { .. }), "{at}");
    }
    checked(&file_with(b"_BHRfS_X", (64 << 10) + 64, 128 << 20)).unwrap();
    checked(&file_with(&MAGIC, 64, 128 << 20)).unwrap();
    checked(&file_with(b"text", 0, 4)).unwrap();
}

#[test]
fn locked_file_is_not_overwritten() {
    let file = file_with(b"", 0, 1 << 20);
    let locked = File::open(file.path()).unwrap();
    rustix::fs::flock(&locked, FlockOperation::NonBlockingLockShared).unwrap();
    let refused = checked(&file).unwrap_err();
    let DeviceError::InUse { holder, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(holder, Holder::ThisProcess);
    drop(locked);
    checked(&file).unwrap();
    // The check leaves no lock behind.
    let again = File::open(file.path()).unwrap();
    rustix::fs::flock(&again, FlockOperation::NonBlockingLockExclusive).unwrap();
}
