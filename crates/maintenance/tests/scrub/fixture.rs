//! Volumes on devices in memory: filling, damaging, scrubbing and checking them.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, Report, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice, ScrubCounts};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{FileId, NewInode, OpenOptions, Volume};
use ubtrfs_maintenance::scrub::{OfflineOptions, OfflineScrub, ScrubOptions, ScrubReport};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume_on;
use ubtrfs_storage::roots::blocks;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const SECTOR: u64 = 4096;
pub(crate) const FILE_BYTES: usize = 3 << 20;

/// The devices of a volume by devid.
#[derive(Clone)]
pub(crate) struct Disks(pub(crate) Vec<Arc<MemDevice>>);

impl Disks {
    /// Makes a volume with a file of 3 MiB, small files and a subvolume's worth of names.
    pub(crate) fn filled(devices: usize, data: Profile, metadata: Profile) -> Disks {
        let options = MkfsOptions {
            data: Some(data),
            metadata: Some(metadata),
            ..MkfsOptions::default()
        };
        let made = new_volume_on(&options, &vec![300 * MIB; devices]);
        let disks = Disks(made.into_iter().map(Arc::new).collect());
        let volume = disks.open_for_writing();
        let file = create(&volume, "file");
        volume.write(file, 0, &content(1, FILE_BYTES)).unwrap();
        for number in 2..40u8 {
            let file = create(&volume, &format!("small {number}"));
            volume.write(file, 0, &content(number, 9000)).unwrap();
        }
        volume.close().unwrap();
        disks
    }

    pub(crate) fn named(&self) -> Vec<(PathBuf, Arc<dyn BlockDevice>)> {
        let name = |number| PathBuf::from(format!("device {number}"));
        let named = self.0.iter().enumerate();
        named
            .map(|(number, device)| (name(number + 1), Arc::clone(device) as _))
            .collect()
    }

    pub(crate) fn open(&self) -> Arc<Volume> {
        Volume::from_devices(self.named(), &OpenOptions::new()).unwrap()
    }

    pub(crate) fn open_for_writing(&self) -> Arc<Volume> {
        let options = OpenOptions::new().writable(true).commit_interval(None);
        Volume::from_devices(self.named(), &options).unwrap()
    }

    pub(crate) fn scrub(&self, options: &ScrubOptions) -> ScrubReport {
        let opened = OfflineOptions {
            read_only: options.read_only,
            ..OfflineOptions::default()
        };
        let scrub = OfflineScrub::from_devices(self.named(), &opened).unwrap();
        scrub.run(options, &mut ()).unwrap()
    }

    pub(crate) fn repair(&self) -> ScrubReport {
        self.scrub(&ScrubOptions::default())
    }

    pub(crate) fn repaired_counts(&self) -> ScrubCounts {
        self.repair().totals()
    }

    pub(crate) fn bytes(&self) -> Vec<Vec<u8>> {
        let read = |device: &Arc<MemDevice>| {
            let mut bytes = vec![0; device.len_bytes() as usize];
            device.read_at(&mut bytes, 0).unwrap();
            bytes
        };
        self.0.iter().map(read).collect()
    }

    pub(crate) fn write(&self, devid: u64, bytes: &[u8], physical: u64) {
        self.0[devid as usize - 1]
            .write_at(bytes, physical)
            .unwrap();
    }

    pub(crate) fn report(&self) -> Report {
        let options = CheckOptions {
            memory_bytes: 16 << 20,
            data_csums: true,
            ..CheckOptions::default()
        };
        check_devices(self.named(), &options, &mut ()).unwrap()
    }

    pub(crate) fn assert_sound(&self) {
        let report = self.report();
        assert!(report.issues.is_empty(), "{report}");
        let volume = self.open();
        let file = find(&volume, "file");
        let mut bytes = vec![0; FILE_BYTES];
        assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), FILE_BYTES);
        assert!(bytes == content(1, FILE_BYTES));
    }
}

pub(crate) fn create(volume: &Volume, name: &str) -> FileId {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let new = NewInode::file(0o644);
    volume.create(top, name.as_bytes(), &new).unwrap()
}

pub(crate) fn find(volume: &Volume, name: &str) -> FileId {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.lookup(top, name.as_bytes()).unwrap().unwrap()
}

pub(crate) fn content(number: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| ((at / 256) as u8).wrapping_mul(31) ^ (at as u8) ^ number)
        .collect()
}

/// Returns the address of a byte of the large file.
pub(crate) fn address_of(volume: &Volume, offset: u64) -> u64 {
    let file = find(volume, "file");
    let tree = volume.tree(RootId::FS_TREE).unwrap();
    let mut cursor = tree.view.cursor();
    let key = Key::new(file.ino.0, KeyType::EXTENT_DATA, offset);
    assert!(cursor.seek_floor(&key).unwrap());
    let (key, bytes) = cursor.current().unwrap();
    let Some(FileExtent::Regular { body, .. }) = FileExtent::decode(bytes) else {
        panic!("the file is not stored in regular extents");
    };
    body.disk().unwrap().0 + body.offset.get() + (offset - key.offset)
}

/// Returns the addresses of the blocks of a tree.
pub(crate) fn blocks_of(volume: &Volume, tree: RootId) -> Vec<u64> {
    let tree = volume.tree(tree).unwrap();
    let mut found = Vec::new();
    blocks::walk(&tree.view, &mut |block| found.push(block.node().bytenr().0)).unwrap();
    found
}

/// Returns the places of the copies of an address, as (devid, offset).
pub(crate) fn places(volume: &Volume, logical: u64) -> Vec<(u64, u64)> {
    let chunk = volume.pool().chunk_map().get(Logical(logical)).unwrap();
    let offset = logical - chunk.logical().0;
    let copies = if chunk.has_parity() {
        1
    } else {
        chunk.mirrors()
    };
    (1..=copies)
        .map(|mirror| {
            let piece = chunk.piece(offset, 1, mirror);
            (piece.devid.0, piece.physical.0)
        })
        .collect()
}
