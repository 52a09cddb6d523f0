//! Data that becomes many extents because free space is fragmented.

use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::Request;
use ubtrfs_storage::{EditEstimate, FileId};

use super::fixture::{MIB, Rig, options};
use crate::file::plan::Job;
use crate::file::store::Store;
use crate::{NewInode, OpenOptions, Volume, XattrMode};

const SECTOR: u64 = 4096;
const DELTA_BYTES: u64 = 256 << 10;
const WRITE_BYTES: u64 = 16 * MIB;

/// Creates a volume whose free data space is every other sector, left by a truncated file.
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
    let rig = in_pieces(128 * MIB, options().delta_bytes(DELTA_BYTES));
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
                let manager = volume.inodes.transactions().unwrap();
                assert!(manager.fits_now(EditEstimate::default().with_global_reserve()));
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

/// Other operations take the memory in each commit between two batches.
#[test]
fn memory_that_others_take_is_no_lack_of_space() {
    let rig = in_pieces(128 * MIB, options().delta_bytes(DELTA_BYTES));
    let (volume, id) = (rig.volume(), rig.file(InodeFlags::empty()));
    let commits = |volume: &Volume| volume.writer_stats().unwrap().commits;
    let take_memory = |volume: &Volume, value: u8| {
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let manager = volume.inodes.transactions().unwrap();
        let mut names = 0;
        while manager.has_memory_for(EditEstimate::default()) {
            let name = format!("user.{names}");
            names += 1;
            let value = [value; 2048];
            volume
                .set_xattr(top, name.as_bytes(), &value, XattrMode::Any)
                .unwrap();
        }
    };
    let hook = || {
        // The first commit makes room, which determines the size of the batches.
        let begun = commits(volume) + 1;
        let volume = Arc::downgrade(volume);
        rig.hooked.hook(move |request| {
            if request == Request::Flush
                && let Some(volume) = volume.upgrade()
                && commits(&volume) >= begun
            {
                take_memory(&volume, commits(&volume) as u8);
            }
        });
        begun
    };
    let begun = hook();
    volume.write(id, 0, &vec![3; WRITE_BYTES as usize]).unwrap();
    assert!(commits(volume) > begun);
    rig.hooked.unhook();
    assert_holds(&rig, id);

    volume.truncate(id, 0).unwrap();
    volume.sync().unwrap();
    // Small enough writes to be buffered.
    const BUFFERED: usize = MIB as usize / 4;
    for at in (0..WRITE_BYTES).step_by(BUFFERED) {
        volume.write(id, at, &[3; BUFFERED]).unwrap();
    }
    let begun = hook();
    volume.fsync(id).unwrap();
    assert!(commits(volume) > begun);
    rig.hooked.unhook();
    assert_holds(&rig, id);
    rig.assert_sound();
}

#[test]
fn parts_that_find_no_room_are_cut_into_smaller_ones() {
    let rig = in_pieces(128 * MIB, options().delta_bytes(DELTA_BYTES));
    let (volume, id) = (rig.volume(), rig.file(InodeFlags::empty()));
    volume.sync().unwrap();
    let bytes = vec![3; WRITE_BYTES as usize];
    let delalloc = volume
        .inodes
        .reserve_delalloc(RootId::FS_TREE, WRITE_BYTES, EditEstimate::default())
        .unwrap();
    let inode = volume.inodes.get(id).unwrap();
    let mut extents = inode.extents.lock().unwrap();
    let job = Job::from_caller(&volume.files, &inode, &mut extents, 0, &bytes, delalloc);
    let Job {
        taken,
        extents,
        delalloc,
    } = job.unwrap().unwrap();
    let plan = taken.plan(&volume.files).unwrap();
    let mut store = Store::new(&volume.files);
    store.add(&inode, Some(&plan), extents, delalloc);
    let stored = store.finish().pop().unwrap().unwrap();
    let before = volume.writer_stats().unwrap().commits;
    // As if other operations had taken nearly all room.
    let group = &stored.groups[0];
    volume
        .files
        .insert_in_batches(&taken, &plan.groups[0], group, 1 << 30, false)
        .unwrap();
    assert!(volume.writer_stats().unwrap().commits - before >= 4);
    drop(stored);
    assert_holds(&rig, id);
    rig.assert_sound();
}
