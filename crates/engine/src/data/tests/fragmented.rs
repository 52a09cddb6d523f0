//! Data that becomes many extents, as free space is in pieces.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;

use super::rig::{MIB, Rig, options};
use crate::fs::FileId;
use crate::mkfs::MkfsOptions;
use crate::txn::Cost;
use crate::{NewInode, OpenOptions};

const SECTOR: u64 = 4096;
const WRITE_BYTES: u64 = 16 * MIB;

/// A volume whose free space for data is every other sector of what a file had.
fn in_pieces(device_bytes: u64, options: OpenOptions) -> Rig {
    let rig = Rig::on(&MkfsOptions::default(), device_bytes, options);
    let volume = rig.volume();
    let [kept, gone] = [0, 1].map(|_| rig.file(InodeFlags::empty()));
    let mut size = 0;
    let write = |id: FileId, size: u64| volume.write_direct(id, size, &[1; SECTOR as usize]);
    while size < WRITE_BYTES + MIB {
        write(kept, size).unwrap();
        write(gone, size).unwrap();
        size += SECTOR;
    }
    for bytes in [MIB, SECTOR] {
        let rest = rig.file(InodeFlags::empty());
        let mut size = 0;
        while volume
            .write_direct(rest, size, &vec![2; bytes as usize])
            .is_ok()
        {
            size += bytes;
        }
    }
    volume.truncate(gone, 0).unwrap();
    volume.sync().unwrap();
    rig
}

fn assert_holds(rig: &Rig, id: FileId) {
    let mut found = vec![0; WRITE_BYTES as usize];
    rig.volume().read(id, 0, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == 3));
}

#[test]
fn many_new_extents_do_not_pass_the_memory_for_deltas() {
    let rig = in_pieces(128 * MIB, options().delta_bytes(256 << 10));
    let volume = rig.volume();
    let id = rig.file(InodeFlags::empty());
    let commits = || volume.writer_stats().unwrap().commits;
    let before = commits();
    volume.write(id, 0, &vec![3; WRITE_BYTES as usize]).unwrap();
    let during = commits() - before;
    assert!(during >= 4, "{during} commits");
    assert_holds(&rig, id);
    rig.assert_sound();
}

#[test]
fn many_new_extents_do_not_pass_the_room_for_metadata() {
    let rig = in_pieces(128 * MIB, options());
    let volume = rig.volume();
    let (top, id) = (
        volume.root_dir(RootId::FS_TREE).unwrap(),
        rig.file(InodeFlags::empty()),
    );
    let name = |number: u32| format!("{number:0250}").into_bytes();
    let mut names = 0;
    let full = loop {
        match volume.create(top, &name(names), &NewInode::file(0o644)) {
            Ok(_) => names += 1,
            Err(error) => break error,
        }
    };
    assert!(full.is_no_space(), "{full}");
    let mut at = 0;
    let piece = vec![3; WRITE_BYTES as usize / 4];
    while at < WRITE_BYTES {
        match volume.write_direct(id, at, &piece) {
            Ok(()) => {
                at += piece.len() as u64;
                let writer = volume.writer().unwrap();
                assert!(writer.has_room_now(Cost::default().freeing()));
            }
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                for _ in 0..20 {
                    names = names.checked_sub(1).unwrap();
                    volume.unlink(top, &name(names)).unwrap();
                }
            }
        }
    }
    volume.sync().unwrap();
    assert_holds(&rig, id);
    volume.unlink(top, &name(0)).unwrap();
    rig.assert_sound();
}
