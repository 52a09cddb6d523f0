//! Commits on volumes with little space for tree blocks. An operation that needs too much is refused, and no
//! commit fails.
//!
//! Extents that are neighbours in the changed tree are far apart on the devices. A few of its leaves
//! therefore refer to all leaves of the extent tree. Space is taken by allocating blocks in memory, which are
//! freed at the end.

mod rebuild;
mod sums;

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::block_group_flags::BlockGroupType;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::{FileExtentHead, FileExtentKind, FileExtentRegular, InodeFlags};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::space::{BlockKind, Space, SpaceTotals};
use ubtrfs_storage::{DataRef, DiskExtent, EditEstimate, FileId};
use zerocopy::IntoBytes;

use crate::inode::{inode_item_cached, inode_key};
use crate::namespace::NewInode;
use crate::{OpenOptions, Volume};

const NODESIZE: u64 = 4096;
const SECTOR: u64 = 4096;
const MIB: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 768 * MIB;

/// A volume with one file in a subvolume.
struct Place {
    device: Arc<MemDevice>,
    volume: Arc<Volume>,
    top: FileId,
    file: FileId,
    extents: u64,
    taken: Vec<Logical>,
}

fn new_device(device_bytes: u64, features: &str) -> Arc<MemDevice> {
    let mut options = MkfsOptions::default();
    options.features.apply_list(features).unwrap();
    device_of(device_bytes, options)
}

fn device_of(device_bytes: u64, options: MkfsOptions) -> Arc<MemDevice> {
    let options = MkfsOptions {
        nodesize: Some(NODESIZE as u32),
        ..options
    };
    Arc::new(new_volume(&options, device_bytes))
}

fn devices(device: &Arc<MemDevice>) -> Vec<(PathBuf, Arc<dyn BlockDevice>)> {
    vec![(PathBuf::from("memory"), Arc::clone(device) as _)]
}

fn open(device: &Arc<MemDevice>) -> Arc<Volume> {
    let options = OpenOptions::new().writable(true).commit_interval(None);
    Volume::from_devices(devices(device), &options).unwrap()
}

impl Place {
    /// Creates a volume whose extents are contiguous.
    fn new(extents: u64) -> Place {
        let mut place = Place::empty(new_device(DEVICE_BYTES, ""), extents);
        let space = place.space();
        let running = place
            .volume
            .inodes
            .transactions()
            .unwrap()
            .running_transid();
        let len = extents * SECTOR;
        space.reserve_data(len).unwrap();
        let mut places = Vec::new();
        while (places.len() as u64) < extents {
            let left = len - places.len() as u64 * SECTOR;
            let (start, len) = space.allocate_data(left, SECTOR, None, running).unwrap();
            places.extend((0..len / SECTOR).map(|sector| Logical(start.0 + sector * SECTOR)));
        }
        place.scatter(&places);
        place
    }

    fn empty(device: Arc<MemDevice>, extents: u64) -> Place {
        let volume = open(&device);
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let dir = NewInode::directory(0o755);
        let root = volume.create_subvolume(top, b"live", &dir).unwrap();
        let root = volume.root_dir(root).unwrap();
        let file = volume
            .create(root, b"file", &NewInode::file(0o644))
            .unwrap();
        Place {
            device,
            volume,
            top,
            file,
            extents,
            taken: Vec::new(),
        }
    }

    /// Gives each sector of the file an extent at one of `places`; neighbours are far apart. Commits.
    fn scatter(&mut self, places: &[Logical]) {
        const APART: u64 = 7919;
        let (id, tree) = (self.file, self.tree());
        let len = self.extents * SECTOR;
        for sector in 0..self.extents {
            let reservation = self
                .volume
                .inodes
                .reserve_metadata(RootId::FS_TREE, EditEstimate::items(3))
                .unwrap();
            let txn = self.volume.inodes.join_transaction(reservation).unwrap();
            let disk = DiskExtent {
                start: places[(sector * APART % self.extents) as usize],
                len: SECTOR,
            };
            let data = DataRef {
                root: id.root,
                ino: id.ino,
                offset: sector * SECTOR,
            };
            txn.new_data_extent(disk);
            txn.add_data_ref(disk, data);
            txn.insert(
                &tree,
                self.extent_key(sector),
                extent_item(disk, txn.transid().0),
            );
        }
        let mut item = inode_item_cached(&tree, id).unwrap();
        item.size = len.into();
        item.nbytes = len.into();
        item.flags = InodeFlags::NODATASUM.bits().into();
        let reservation = self
            .volume
            .inodes
            .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
            .unwrap();
        let txn = self.volume.inodes.join_transaction(reservation).unwrap();
        txn.put(&tree, inode_key(id.ino), item.as_bytes());
        drop(txn);
        self.volume.sync().unwrap();
    }

    fn space(&self) -> Arc<Space> {
        Arc::clone(&self.volume.inodes.transactions().unwrap().space)
    }

    fn tree(&self) -> Arc<Tree> {
        self.volume.subvolume_tree(self.file.root).unwrap()
    }

    fn extent_key(&self, sector: u64) -> Key {
        Key::new(self.file.ino.0, KeyType::EXTENT_DATA, sector * SECTOR)
    }

    fn metadata(&self) -> SpaceTotals {
        let totals = self.space().totals();
        let mut metadata = totals.into_iter();
        metadata
            .find(|sums| sums.kind == BlockGroupType::Metadata)
            .unwrap()
    }

    /// Allocates blocks until `bytes` are left in the block groups.
    fn leave_in_groups(&mut self, bytes: u64) {
        let space = self.space();
        let running = self.volume.inodes.transactions().unwrap().running_transid();
        let total = self.metadata().total;
        while self.metadata().free_bytes > bytes {
            assert_eq!(self.metadata().total, total, "a new chunk");
            let block = space.allocate_block(BlockKind::Metadata, running);
            self.taken.push(block.unwrap());
        }
    }

    /// Turns all unallocated space into data chunks, and then leaves `bytes` for tree blocks.
    fn leave(&mut self, bytes: u64) {
        let space = self.space();
        space.shrink_metadata_reservation(0);
        let reserved = reserve_all(&space);
        space.release_data(reserved);
        let growth = self.metadata().unallocated_bytes;
        assert!(growth < bytes, "{growth}");
        self.leave_in_groups(bytes - growth);
    }

    /// Changes the item of one extent. Returns false if there was no space.
    fn touch(&self, sector: u64) -> bool {
        let (tree, key) = (self.tree(), self.extent_key(sector));
        let item = tree.view.get(&key).unwrap().unwrap().to_vec();
        match self.volume.inodes.reserve_metadata(
            RootId::FS_TREE,
            EditEstimate::items(1).with_global_reserve(),
        ) {
            Ok(reservation) => self
                .volume
                .inodes
                .join_transaction(reservation)
                .unwrap()
                .put(&tree, key, item),
            Err(error) if error.is_no_space() => return false,
            Err(error) => panic!("sector {sector}: {error}"),
        }
        true
    }

    /// Returns the number of extents before offset `end`.
    fn extents_before(&self, end: u64) -> usize {
        let tree = self.tree();
        let mut cursor = tree.view.cursor();
        let mut more = cursor.seek(&self.extent_key(0)).unwrap();
        let mut count = 0;
        while more && cursor.current().is_some_and(|(key, _)| key.offset < end) {
            count += 1;
            more = cursor.advance().unwrap();
        }
        count
    }

    fn commits(&self) -> u64 {
        self.volume.inodes.transactions().unwrap().stats().commits
    }

    /// Frees the blocks taken.
    fn release(&mut self) {
        let space = self.space();
        for block in self.taken.drain(..) {
            space.release(block, NODESIZE);
        }
    }

    /// Frees the blocks taken, and checks the volume.
    fn assert_sound(mut self) {
        self.volume.sync().unwrap();
        self.release();
        self.volume.sync().unwrap();
        drop(self.volume);
        check(&self.device);
    }
}

fn check(device: &Arc<MemDevice>) {
    let options = CheckOptions::default();
    let report = check_devices(devices(device), &options, &mut ()).unwrap();
    let issues: Vec<String> = report.issues.iter().map(ToString::to_string).collect();
    assert!(report.is_spotless(), "{issues:#?}");
}

/// Reserves all data space. Returns its size.
fn reserve_all(space: &Space) -> u64 {
    let mut reserved = 0;
    while space.reserve_data(MIB).is_ok() {
        reserved += MIB;
    }
    reserved
}

fn extent_item(disk: DiskExtent, generation: u64) -> Vec<u8> {
    let head = FileExtentHead {
        generation: generation.into(),
        ram_bytes: disk.len.into(),
        compression: 0,
        encryption: 0,
        other_encoding: 0.into(),
        type_: FileExtentKind::Regular as u8,
    };
    let body = FileExtentRegular {
        disk_bytenr: disk.start.0.into(),
        disk_num_bytes: disk.len.into(),
        offset: 0.into(),
        num_bytes: disk.len.into(),
    };
    [head.as_bytes(), body.as_bytes()].concat()
}

/// RESERVATION-1
#[test]
fn frozen_transaction_keeps_its_reservation_from_writers_of_data() {
    let mut place = Place::new(60_000);
    // Most of the space for the commit is not in a chunk yet.
    place.leave_in_groups(3 * MIB);
    for sector in (0..place.extents).step_by(40) {
        assert!(place.touch(sector));
    }
    let volume = Arc::clone(&place.volume);
    let manager = volume.inodes.transactions().unwrap();
    let space = place.space();
    let mut reserved = 0;
    let frozen = || {
        assert!(place.touch(1));
        reserved = reserve_all(&space);
    };
    assert!(manager.commit_with_pause(frozen).unwrap());
    space.release_data(reserved);
    place.assert_sound();
}

#[test]
fn edits_of_leaves_that_a_snapshot_shares_are_counted() {
    let mut place = Place::new(60_000);
    let (volume, top) = (&place.volume, place.top);
    volume
        .snapshot(place.file.root, top, b"before", true)
        .unwrap();
    volume.sync().unwrap();
    place.leave(3 * MIB);
    let sectors = (0..place.extents).step_by(600);
    let done = sectors.filter(|sector| place.touch(*sector)).count();
    place.volume.sync().unwrap();
    // Each leaf of the extent tree splits.
    assert!(done >= 8, "{done}");
    place.assert_sound();
}

#[test]
fn edits_of_leaves_that_are_no_longer_shared_cost_no_commits() {
    let mut place = Place::new(40_000);
    let (volume, top) = (&place.volume, place.top);
    volume
        .snapshot(place.file.root, top, b"before", true)
        .unwrap();
    let sectors = || (0..400).map(|number| number % 100 * 10);
    for sector in sectors() {
        assert!(place.touch(sector));
    }
    place.volume.sync().unwrap();
    place.leave(8 * MIB);
    let before = place.commits();
    for sector in sectors() {
        assert!(place.touch(sector));
    }
    assert_eq!(place.commits(), before);
    place.assert_sound();
}

fn deletes_scattered(extents: u64, room: u64, snapshot: bool) {
    const STEPS: usize = 40;
    let mut place = Place::new(extents);
    let (volume, top) = (Arc::clone(&place.volume), place.top);
    if snapshot {
        volume
            .snapshot(place.file.root, top, b"copy", false)
            .unwrap();
    }
    volume.sync().unwrap();
    place.leave(room);
    volume.delete_subvolume(top, b"live").unwrap();
    for _ in 0..STEPS {
        volume.sync().unwrap();
    }
    assert!(!volume.deleted_subvolumes().unwrap().is_empty());
    place.release();
    volume.free_deleted_subvolumes().unwrap();
    assert!(volume.deleted_subvolumes().unwrap().is_empty());
    drop(volume);
    place.assert_sound();
}

#[test]
fn cleaner_takes_steps_that_there_is_room_for() {
    deletes_scattered(20_000, MIB + MIB / 4, false);
}

/// CLEAN-1. A shared block is not freed, but all of its references change.
#[test]
fn cleaner_takes_steps_through_what_a_snapshot_shares() {
    deletes_scattered(40_000, 2 * MIB + MIB / 2, true);
}

/// SPLIT-INSERT-1
#[test]
fn overwriting_many_extents_at_once_is_done_in_steps() {
    let mut place = Place::new(60_000);
    place.leave(3 * MIB + MIB / 4);
    let bytes = vec![7; 16 * MIB as usize];
    place.volume.write(place.file, 0, &bytes).unwrap();
    place.volume.sync().unwrap();
    let mut read = vec![0; bytes.len()];
    place.volume.read(place.file, 0, &mut read).unwrap();
    assert!(read == bytes);
    assert!(place.extents_before(bytes.len() as u64) < 20);
    place.assert_sound();
}
