//! The mode and attributes of inodes that are logged only for their names: after a replay both are from the
//! same moment.

use std::sync::Arc;

use ubtrfs_device::MemDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, NewInode, RenameMode, SetAttr, Volume, XattrMode};

use crate::cut::{made, open};

const NAME: &[u8] = b"user.a";

/// A mode with the matching attribute.
type Look = (u32, Option<&'static [u8]>);

const COMMITTED: Look = (0o600, Some(b"committed"));
const CHANGED: Look = (0o644, Some(b"changed"));

fn set(volume: &Volume, file: FileId, (mode, value): Look) {
    let attr = SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    volume.set_attr(file, &attr).unwrap();
    match value {
        Some(value) => volume.set_xattr(file, NAME, value, XattrMode::Any).unwrap(),
        None => volume.remove_xattr(file, NAME).unwrap(),
    }
}

/// Cuts the power, and asserts the mode and attribute of the file with these names after the replay.
fn assert_after_cut(device: &Arc<MemDevice>, names: &[&[u8]], (mode, value): Look) {
    let cut = Arc::new((**device).clone());
    let volume = open(cut, true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    for name in names {
        let file = volume.resolve(top, name).unwrap();
        assert_eq!(volume.attr(file).unwrap().mode & 0o777, mode);
        let found = volume.xattr(file, NAME).unwrap();
        assert_eq!(found.as_deref(), value);
    }
}

/// Creates a volume with a committed file and directory.
fn committed() -> (Arc<MemDevice>, Arc<Volume>, FileId, FileId, FileId) {
    let device = Arc::new(made());
    let volume = open(device.clone(), true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let new = NewInode::directory(0o755);
    let dir = volume.create(top, b"d", &new).unwrap();
    let file = volume.create(top, b"f", &NewInode::file(0o600)).unwrap();
    set(&volume, file, COMMITTED);
    volume.sync().unwrap();
    (device, volume, top, dir, file)
}

fn logs(volume: &Volume) -> u64 {
    volume.writer_stats().unwrap().logs
}

/// LOG-WRITE-5
#[test]
fn file_logged_for_its_names_keeps_its_committed_mode_and_attributes() {
    for changed in [CHANGED, (0o644, None)] {
        let (device, volume, _, dir, file) = committed();
        set(&volume, file, changed);
        volume.link(file, dir, b"link").unwrap();
        volume.fsync(dir).unwrap();
        assert_eq!(logs(&volume), 1);
        assert_after_cut(&device, &[b"f", b"d/link"], COMMITTED);
    }
}

/// LOG-WRITE-5
#[test]
fn file_synced_after_it_was_logged_for_its_names_has_all() {
    for changed in [CHANGED, (0o644, None)] {
        let (device, volume, top, dir, file) = committed();
        set(&volume, file, changed);
        let how = RenameMode::Replace;
        volume.rename(top, b"f", (dir, b"g"), how).unwrap();
        volume.fsync(dir).unwrap();
        volume.fsync(file).unwrap();
        assert_eq!(logs(&volume), 2);
        assert_after_cut(&device, &[b"d/g"], changed);
    }
}

/// LOG-WRITE-5
#[test]
fn synced_file_whose_names_are_logged_later_keeps_what_was_synced() {
    let (device, volume, _, dir, file) = committed();
    set(&volume, file, CHANGED);
    volume.fsync(file).unwrap();
    set(&volume, file, (0o640, Some(b"later")));
    volume.link(file, dir, b"link").unwrap();
    volume.fsync(dir).unwrap();
    assert_eq!(logs(&volume), 2);
    assert_after_cut(&device, &[b"f", b"d/link"], CHANGED);
}
