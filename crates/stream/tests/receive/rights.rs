//! Permissions for clone sources.

use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_fs::rights::{Caller, Refused};
use ubtrfs_fs::{NewInode, RenameMode};
use ubtrfs_stream::{CloneSource, NewFile, Sent, Target, TargetError, TreePath, VolumeTarget};

use crate::fixture::{MIB, SECTOR, new_device, open};

fn path(name: &[u8]) -> TreePath<'_> {
    TreePath::new(name).unwrap()
}

/// Even if the path led to a file that the caller could read, and the last file found was not readable.
#[test]
fn other_file_at_the_path_of_a_readable_one_is_refused() {
    let volume = open(new_device(256 * MIB));
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let root = NewInode::directory(0o755);
    let source = volume.create_subvolume(top, b"source", &root).unwrap();
    let dir = volume.root_dir(source).unwrap();
    for (name, mode) in [(&b"open"[..], 0o644), (b"secret", 0o600)] {
        let file = volume.create(dir, name, &NewInode::file(mode)).unwrap();
        volume.write(file, 0, &[7; SECTOR as usize]).unwrap();
    }
    volume.set_read_only(source, true).unwrap();
    let all = volume.subvolumes().unwrap();
    let info = all.iter().find(|info| info.id == source).unwrap();
    let sent = Sent {
        uuid: info.item.uuid,
        ctransid: Transid(info.item.ctransid.get()),
    };

    let caller = Caller::new(1000, 1000);
    let mut target = VolumeTarget::new(&volume, top).for_caller(&caller, top);
    target.create_subvolume(b"received").unwrap();
    target.create(path(b"copy"), &NewFile::File).unwrap();
    let mut clone_from = |name: &[u8]| {
        let from = CloneSource {
            subvolume: Some(sent),
            path: path(name),
            offset: 0,
        };
        target.clone_range(path(b"copy"), 0, SECTOR, &from)
    };
    let is_refused = |cloned| matches!(cloned, Err(TargetError::Refused(Refused::Access)));
    clone_from(b"open").unwrap();
    clone_from(b"open").unwrap();
    assert!(is_refused(clone_from(b"secret")));

    volume.set_read_only(source, false).unwrap();
    let replace = RenameMode::Replace;
    volume
        .rename(dir, b"secret", (dir, b"open"), replace)
        .unwrap();
    volume.set_read_only(source, true).unwrap();
    assert!(is_refused(clone_from(b"open")));
}
