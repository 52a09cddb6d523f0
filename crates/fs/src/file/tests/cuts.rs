//! Power cuts after a commit that did not include buffered data.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_storage::FileId;

use super::fixture::{MIB, Rig, options};
use crate::{Compress, OpenOptions, Volume};

const SECTOR: usize = 4096;

fn rig(options: OpenOptions) -> Rig {
    Rig::on(&MkfsOptions::default(), 512 * MIB, options)
}

/// Commits, cuts the power, and returns the contents of the file.
fn after_cut(rig: &Rig, file: FileId) -> Vec<u8> {
    let manager = rig.volume().inodes.transactions().unwrap();
    manager.commit_running().unwrap();
    let device = Arc::new((*rig.device).clone());
    let volume = Volume::from_devices(vec![(PathBuf::from("cut"), device as _)], &options());
    let volume = volume.unwrap();
    let mut bytes = vec![0; volume.attr(file).unwrap().size as usize];
    volume.read(file, 0, &mut bytes).unwrap();
    bytes
}

/// INLINE-COPY-1
#[test]
fn clone_of_inline_data_leaves_old_bytes_until_it_is_written_back() {
    let compress = Compress {
        algorithm: Compression::Zlib,
        ..Compress::default()
    };
    let rig = rig(options().compress(compress));
    let volume = rig.volume();
    let [src, dst] = [(); 2].map(|()| rig.file(InodeFlags::empty()));
    volume.write(src, 0, &[b'A'; SECTOR]).unwrap();
    volume.write(dst, 0, &[b'B'; 63_276]).unwrap();
    volume.sync().unwrap();
    for to in [0, SECTOR as u64] {
        let before = after_cut(&rig, dst);
        assert_eq!(
            volume.copy_range(src, 0, SECTOR as u64, dst, to).unwrap(),
            SECTOR as u64
        );
        assert!(after_cut(&rig, dst) == before);
        volume.files.write_back_all().unwrap();
        let after = after_cut(&rig, dst);
        assert_eq!(after[to as usize..][..SECTOR], [b'A'; SECTOR]);
        assert!(after[to as usize + SECTOR..] == before[to as usize + SECTOR..]);
    }
    rig.assert_sound();
}

/// INLINE-COPY-1 and WRITEBACK-2
#[test]
fn clone_of_inline_data_and_more_brings_both() {
    let compress = Compress {
        algorithm: Compression::Zlib,
        ..Compress::default()
    };
    let rig = rig(options().compress(compress));
    let volume = rig.volume();
    let [src, dst] = [(); 2].map(|()| rig.file(InodeFlags::empty()));
    volume.write(src, 0, &[b'A'; SECTOR]).unwrap();
    volume.files.write_back_all().unwrap();
    volume.write(src, 2 * SECTOR as u64, &[b'C'; 9000]).unwrap();
    volume.sync().unwrap();
    volume.clone_range(src, 0, 0, dst, 0).unwrap();
    let found = after_cut(&rig, dst);
    assert_eq!(found.len(), 2 * SECTOR + 9000);
    assert_eq!(found[..SECTOR], [b'A'; SECTOR]);
    rig.assert_sound();
}

/// A file that was extended has zeros behind its inline data, and so do its clones.
#[test]
fn clone_of_inline_data_in_a_longer_file_has_the_zeros_behind_it() {
    let rig = rig(options());
    let volume = rig.volume();
    let [src, dst] = [(); 2].map(|()| rig.file(InodeFlags::empty()));
    volume.write(src, 0, b"inline").unwrap();
    volume.write(dst, 0, &[b'B'; 500]).unwrap();
    volume.sync().unwrap();
    volume.truncate(src, 1000).unwrap();
    volume.clone_range(src, 0, 1000, dst, 0).unwrap();
    volume.sync().unwrap();
    let found = after_cut(&rig, dst);
    assert_eq!(found.len(), 1000);
    assert_eq!(&found[..6], b"inline");
    assert!(found[6..].iter().all(|byte| *byte == 0));
    rig.assert_sound();
}

/// WRITEBACK-2
#[test]
fn large_write_takes_along_the_buffered_data_before_it() {
    let rig = rig(options());
    let volume = rig.volume();
    let file = rig.file(InodeFlags::empty());
    volume.write(file, 0, &[b'A'; 2 * SECTOR]).unwrap();
    volume.write(file, MIB, &vec![b'B'; MIB as usize]).unwrap();
    let found = after_cut(&rig, file);
    assert_eq!(found.len() as u64, 2 * MIB);
    assert_eq!(found[..2 * SECTOR], [b'A'; 2 * SECTOR]);
    rig.assert_sound();
}
