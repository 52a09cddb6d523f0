//! The rules of relocations, one by one.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::progress::Event;
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_fs::{Error, FileId, NewInode, RelocationOptions, Snapshot, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{Rng, new_volume};

use crate::fixture::{groups, options, small_batches, used};

const SEED: u64 = 7;

struct Rig {
    device: Arc<MemDevice>,
    volume: Arc<Volume>,
    files: Vec<FileId>,
}

impl Rig {
    fn new(device_bytes: u64) -> Rig {
        let made = MkfsOptions {
            nodesize: Some(4096),
            ..MkfsOptions::default()
        };
        let device = Arc::new(new_volume(&made, device_bytes));
        let shared: Arc<dyn BlockDevice> = device.clone();
        let volume =
            Volume::from_devices(vec![(PathBuf::from("memory"), shared)], &options()).unwrap();
        Rig {
            device,
            volume,
            files: Vec::new(),
        }
    }

    fn top(&self) -> FileId {
        self.volume.root_dir(RootId::FS_TREE).unwrap()
    }

    /// Creates files of one extent each.
    fn fill(mut self, count: u64) -> Rig {
        let mut rng = Rng::new(SEED);
        for number in 0..count {
            let name = format!("file-{number}");
            let new = NewInode::file(0o600);
            let file = self
                .volume
                .create(self.top(), name.as_bytes(), &new)
                .unwrap();
            let mut bytes = vec![0; 20_000];
            rng.fill(&mut bytes);
            self.volume.write(file, 0, &bytes).unwrap();
            self.files.push(file);
        }
        self.volume.sync().unwrap();
        self
    }

    fn snapshot(&self, name: &str, read_only: bool) -> RootId {
        let source = RootId::FS_TREE;
        let dir = self.top();
        self.volume
            .snapshot(source, dir, name.as_bytes(), read_only)
            .unwrap()
    }

    fn group(&self, kind: BlockGroupFlags) -> Logical {
        let groups = groups(&self.volume);
        let of_kind = groups.iter().filter(|group| group.flags.contains(kind));
        let fullest = of_kind.max_by_key(|group| group.used);
        fullest.unwrap().start
    }

    /// Checks the last commit.
    fn check(&self) {
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::clone(&self.device));
        let devices = vec![(PathBuf::from("copy"), device)];
        let report = check_devices(devices, &CheckOptions::default(), &mut ()).unwrap();
        assert!(report.is_spotless(), "{report}");
    }
}

/// RELOCATE-2, RELOCATE-3
#[test]
fn blocks_shared_by_snapshots_are_copied_once() {
    let rig = Rig::new(1 << 30).fill(300);
    let (_, before) = used(&rig.volume);
    for number in 0..50 {
        rig.snapshot(&format!("snapshot-{number}"), true);
    }
    let (data, with_snapshots) = used(&rig.volume);
    let start = rig.group(BlockGroupFlags::DATA);
    let report = rig
        .volume
        .relocate(start, &RelocationOptions::default(), &mut ())
        .unwrap();
    assert!(
        report.is_removed && report.moved_extents >= 300,
        "{report:?}"
    );
    // The leaves, and a root for each snapshot.
    let blocks = before + 50;
    assert!(
        report.copied_blocks <= blocks * report.commits,
        "{report:?}"
    );
    let (data_after, after) = used(&rig.volume);
    assert_eq!(data_after, data);
    assert!(after <= with_snapshots + 32, "{after} of {with_snapshots}");
    rig.check();
    // A change after the relocation finds the blocks shared.
    for file in &rig.files {
        rig.volume.write(*file, 0, b"changed").unwrap();
    }
    rig.volume.sync().unwrap();
    rig.check();
    for number in 0..50 {
        let name = format!("snapshot-{number}");
        rig.volume
            .delete_subvolume(rig.top(), name.as_bytes())
            .unwrap();
    }
    rig.volume.free_deleted_subvolumes().unwrap();
    rig.check();
}

/// RELOCATE-1, EMPTYING-1
#[test]
fn relocation_without_space_changes_nothing() {
    let rig = Rig::new(160 << 20).fill(100);
    let big = rig
        .volume
        .create(rig.top(), b"big", &NewInode::file(0o600))
        .unwrap();
    let bytes = vec![1; 1 << 20];
    let mut at = 0;
    while rig.volume.write(big, at, &bytes).is_ok() {
        at += bytes.len() as u64;
    }
    rig.volume.sync().unwrap();
    let before = used(&rig.volume);
    let start = rig.group(BlockGroupFlags::DATA);
    let error = rig
        .volume
        .relocate(start, &small_batches(), &mut ())
        .unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(used(&rig.volume), before);
    // There is no room for another system chunk, which commits would need.
    let system = rig.group(BlockGroupFlags::SYSTEM);
    let refused = rig.volume.relocate(system, &small_batches(), &mut ());
    assert!(refused.is_err_and(|error| error.is_no_space()));
    rig.check();
    // The group is open again.
    rig.volume.truncate(big, 0).unwrap();
    rig.volume.sync().unwrap();
    rig.volume
        .relocate(start, &small_batches(), &mut ())
        .unwrap();
    rig.check();
}

/// RELOCATE-4
#[test]
fn blocks_of_the_same_commit_are_changed_in_place() {
    let rig = Rig::new(1 << 30).fill(200);
    rig.snapshot("one", false);
    let start = rig.group(BlockGroupFlags::DATA);
    let mut number = 0;
    let mut change = |event: &Event<'_>| {
        // Changes and a snapshot enter the transaction that moves the extents.
        if let Event::Advance { bytes: 1.. } = event {
            let file = rig.files[number % rig.files.len()];
            rig.volume.write(file, 4096, &[number as u8; 5000]).unwrap();
            number += 1;
        }
        ControlFlow::Continue(())
    };
    rig.volume
        .relocate(start, &small_batches(), &mut change)
        .unwrap();
    assert!(number > 100);
    rig.volume.sync().unwrap();
    rig.check();
}

/// RELOCATE-5
#[test]
fn relocation_waits_for_the_cleaner() {
    let rig = Rig::new(1 << 30).fill(400);
    rig.snapshot("gone", false);
    for file in &rig.files {
        rig.volume.write(*file, 0, b"changed").unwrap();
    }
    rig.volume.sync().unwrap();
    rig.volume.delete_subvolume(rig.top(), b"gone").unwrap();
    for kind in [BlockGroupFlags::DATA, BlockGroupFlags::METADATA] {
        let start = rig.group(kind);
        rig.volume
            .relocate(start, &small_batches(), &mut ())
            .unwrap();
        rig.check();
    }
    rig.volume.free_deleted_subvolumes().unwrap();
    rig.check();
}

/// RELOCATION-1
#[test]
fn cancelled_relocation_keeps_its_batches_and_releases_its_copies() {
    let rig = Rig::new(1 << 30).fill(200);
    let before = used(&rig.volume);
    let start = rig.group(BlockGroupFlags::DATA);
    let mut left = 70;
    let mut cancel = |event: &Event<'_>| {
        if let Event::Advance { bytes: 1.. } = event {
            left -= 1;
            if left == 0 {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    };
    let error = rig
        .volume
        .relocate(start, &small_batches(), &mut cancel)
        .unwrap_err();
    assert!(matches!(error, Error::Cancelled(_)), "{error}");
    assert_eq!(used(&rig.volume).0, before.0);
    rig.check();
    let allocated = |group: &ubtrfs_fs::BlockGroupRecord| group.used;
    let of_start = |volume: &Volume| {
        groups(volume)
            .into_iter()
            .find(|group| group.start == start)
    };
    let rest = of_start(&rig.volume).as_ref().map(allocated).unwrap();
    assert!(0 < rest && rest < before.0);
    rig.volume
        .relocate(start, &small_batches(), &mut ())
        .unwrap();
    assert!(of_start(&rig.volume).is_none());
    rig.check();
}

#[test]
fn held_snapshot_prevents_a_relocation() {
    let rig = Rig::new(1 << 30).fill(50);
    let id = rig.snapshot("held", true);
    let held = Snapshot::open(&rig.volume, id).unwrap();
    let start = rig.group(BlockGroupFlags::DATA);
    let error = rig
        .volume
        .relocate(start, &small_batches(), &mut ())
        .unwrap_err();
    assert!(
        matches!(error, Error::HeldSubvolume(of) if of == id),
        "{error}"
    );
    held.check_unchanged().unwrap();
    drop(held);
    rig.volume
        .relocate(start, &small_batches(), &mut ())
        .unwrap();
    rig.check();
}

#[test]
fn damaged_sectors_move_with_their_checksums() {
    let rig = Rig::new(1 << 30).fill(20);
    let start = rig.group(BlockGroupFlags::DATA);
    let mut damaged = Logical(0);
    rig.volume
        .for_each_block_group(&mut |group| {
            if group.start == start {
                damaged = Logical(group.start.0 + 8192);
            }
        })
        .unwrap();
    // The group's only copy of the data.
    let map = rig.volume.pool().chunk_map().get(damaged).unwrap();
    let physical = map.stripes()[0].physical.0 + (damaged.0 - start.0);
    rig.device.write_at(&[0xff; 4096], physical).unwrap();
    let report = rig
        .volume
        .relocate(start, &small_batches(), &mut ())
        .unwrap();
    assert_eq!(
        (report.damaged_sectors, &report.damaged[..]),
        (1, &[damaged][..])
    );
    let mut unreadable = 0;
    for file in &rig.files {
        let mut bytes = vec![0; 20_000];
        unreadable += usize::from(rig.volume.read(*file, 0, &mut bytes).is_err());
    }
    assert_eq!(unreadable, 1);
    rig.check();
}

/// An extent with more references than one leaf of the extent tree holds.
#[test]
fn extent_with_very_many_references_moves_in_one_batch() {
    const CLONES: u64 = 3000;
    let rig = Rig::new(1 << 30).fill(1);
    let source = rig.files[0];
    let new = NewInode::file(0o600);
    let clones = rig.volume.create(rig.top(), b"clones", &new).unwrap();
    for number in 0..CLONES {
        let at = number * 8192;
        rig.volume
            .clone_range(source, 4096, 4096, clones, at)
            .unwrap();
    }
    for number in 0..5 {
        rig.snapshot(&format!("snapshot-{number}"), false);
        for at in (number * 100..CLONES).step_by(700) {
            rig.volume.write(clones, at * 8192, b"changed").unwrap();
        }
        rig.volume.sync().unwrap();
    }
    let (data, _) = used(&rig.volume);
    for kind in [BlockGroupFlags::DATA, BlockGroupFlags::METADATA] {
        let start = rig.group(kind);
        let report = rig
            .volume
            .relocate(start, &small_batches(), &mut ())
            .unwrap();
        assert!(report.is_removed, "{report:?}");
        rig.check();
    }
    assert_eq!(used(&rig.volume).0, data);
    rig.volume.unlink(rig.top(), b"clones").unwrap();
    rig.volume.sync().unwrap();
    rig.check();
}
