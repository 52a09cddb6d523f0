//! Deduplication with a comparison before it, which may take long.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{HookedDevice, Request};

use super::fixture::{MIB, Rig, new_device, options};
use crate::file::extent::Extent;
use crate::file::extent_edit::ExtentEdit;
use crate::{Compress, NewInode, Volume};

const SECTOR: u64 = 4096;

/// Space that is freed during a comparison can be reused before the comparison ends.
#[test]
fn comparing_keeps_back_nothing_that_is_freed_meanwhile() {
    let memory = new_device(&MkfsOptions::default(), 512 * MIB);
    let device = Arc::new(HookedDevice::new(memory));
    let devices = vec![(PathBuf::from("memory"), device.clone() as _)];
    let volume = Volume::from_devices(devices, &options()).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let [src, dst, _] = [b"src", b"dst", b"old"].map(|name| {
        let id = volume.create(top, name, &NewInode::file(0o644)).unwrap();
        volume.write(id, 0, &vec![1; 4 * MIB as usize]).unwrap();
        id
    });
    volume.sync().unwrap();
    let (reads, pinned) = (AtomicUsize::new(0), Arc::new(AtomicU64::new(0)));
    let (weak, least) = (Arc::downgrade(&volume), Arc::clone(&pinned));
    // Ignore requests made within the hook.
    let alone = Mutex::new(());
    device.hook(move |request| {
        let (Ok(_alone), Request::Read) = (alone.try_lock(), request) else {
            return;
        };
        let volume = weak.upgrade().unwrap();
        let pinned = || {
            let totals = volume.inodes.transactions().unwrap().space.totals();
            totals.iter().map(|sums| sums.pinned).sum::<u64>()
        };
        match reads.fetch_add(1, Relaxed) {
            8 => {
                volume.unlink(top, b"old").unwrap();
                volume
                    .inodes
                    .transactions()
                    .unwrap()
                    .commit_running()
                    .unwrap();
                assert!(pinned() > 4 * MIB);
                least.store(pinned(), Relaxed);
            }
            number if number > 8 => {
                volume.inodes.transactions().unwrap().release_freed();
                least.fetch_min(pinned(), Relaxed);
            }
            _ => {}
        }
    });
    assert!(volume.dedupe_range(src, 0, 4 * MIB, dst, 0).unwrap());
    device.unhook();
    assert_eq!(pinned.load(Relaxed), 0);
}

/// Shares only whole sectors of a range that does not end with both files, as in the kernel.
#[test]
fn a_last_sector_in_part_is_shared_only_where_both_files_end() {
    let memory = new_device(&MkfsOptions::default(), 512 * MIB);
    let devices = vec![(PathBuf::from("memory"), memory as _)];
    let volume = Volume::from_devices(devices, &options()).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = |name: &[u8], len: usize| {
        let id = volume.create(top, name, &NewInode::file(0o644)).unwrap();
        volume.write(id, 0, &vec![1; len]).unwrap();
        id
    };
    let (src, longer, equal) = (
        file(b"src", 6000),
        file(b"longer", 9000),
        file(b"equal", 6000),
    );
    for dst in [longer, equal] {
        assert!(volume.dedupe_range(src, 0, 6000, dst, 0).unwrap());
    }
    assert!(volume.dedupe_range(src, 4096, 1904, longer, 4096).unwrap());
    // The places of its extents: file offset, address, length.
    let places = |id| -> Vec<_> {
        let inode = volume.inodes.get(id).unwrap();
        let extent_edit = ExtentEdit::load(&inode, SECTOR, 0..1 << 40).unwrap();
        let place = |(range, extent): (Range<u64>, &Extent)| match extent {
            Extent::Disk(part) => (range.start, part.logical(), part.len),
            other => panic!("{other:?}"),
        };
        extent_edit.extents().map(place).collect()
    };
    let [src, longer, equal] = [src, longer, equal].map(places);
    assert_eq!(src, equal);
    assert_eq!(longer[0], (0, src[0].1, SECTOR));
    assert_eq!((longer[1].0, longer[1].2), (SECTOR, 2 * SECTOR));
    assert_ne!(longer[1].1, src[0].1);
}

/// A full sector that was compressed inline stays inline when the file grows.
#[test]
fn a_clone_of_what_lies_in_an_item_and_more_is_as_long_as_its_source() {
    let compress = Compress {
        algorithm: Compression::Zstd,
        ..Compress::default()
    };
    let rig = Rig::on(
        &MkfsOptions::default(),
        512 * MIB,
        options().compress(compress),
    );
    let volume = rig.volume();
    let [src, dst] = [(); 2].map(|()| rig.file(InodeFlags::empty()));
    volume.write(src, 0, &[1; SECTOR as usize]).unwrap();
    volume.files.write_back_all().unwrap();
    volume.write(src, 231_328, &[2; 221]).unwrap();
    volume.clone_range(src, 0, 231_549, dst, 110_592).unwrap();
    assert_eq!(volume.attr(dst).unwrap().size, 110_592 + 231_549);
    let read = |id, offset| {
        let mut buf = vec![0; 231_549];
        assert_eq!(volume.read(id, offset, &mut buf).unwrap(), buf.len());
        buf
    };
    assert_eq!(read(dst, 110_592), read(src, 0));
    rig.assert_sound();
}
