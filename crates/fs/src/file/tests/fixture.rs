//! A volume in memory with files for writing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::record::{Event, Recorder};
use ubtrfs_sim::{HookedDevice, ThrottledDevice, new_volume};
use ubtrfs_storage::{EditEstimate, FileId};
use zerocopy::IntoBytes;

use crate::inode::{inode_item_cached, inode_key};
use crate::namespace::NewInode;
use crate::{OpenOptions, Volume};

pub(super) const MIB: u64 = 1 << 20;

/// A volume that can be closed and opened again.
pub(super) struct Rig {
    pub(super) device: Arc<MemDevice>,
    /// The device on which the volume is opened.
    pub(super) hooked: Arc<HookedDevice>,
    options: OpenOptions,
    volume: Option<Arc<Volume>>,
    files: AtomicU64,
}

pub(super) fn options() -> OpenOptions {
    OpenOptions::new().writable(true).commit_interval(None)
}

pub(super) fn new_device(mkfs: &MkfsOptions, device_bytes: u64) -> Arc<MemDevice> {
    Arc::new(new_volume(mkfs, device_bytes))
}

/// Asserts that the checker finds no fault on the device.
pub(super) fn assert_sound(device: &MemDevice) {
    let device: Arc<dyn BlockDevice> = Arc::new(device.clone());
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    let devices = vec![(PathBuf::from("memory"), device)];
    let report = check_devices(devices, &options, &mut ()).unwrap();
    let issues: Vec<String> = report.issues.iter().map(ToString::to_string).collect();
    assert!(report.is_spotless(), "{issues:#?}");
}

impl Rig {
    pub(super) fn on(mkfs: &MkfsOptions, device_bytes: u64, options: OpenOptions) -> Rig {
        let device = new_device(mkfs, device_bytes);
        let mut rig = Rig {
            hooked: Arc::new(HookedDevice::new(device.clone())),
            device,
            options,
            volume: None,
            files: AtomicU64::new(0),
        };
        rig.open();
        rig
    }

    fn open(&mut self) {
        let device: Arc<dyn BlockDevice> = self.hooked.clone();
        let devices = vec![(PathBuf::from("memory"), device)];
        self.volume = Some(Volume::from_devices(devices, &self.options).unwrap());
    }

    pub(super) fn volume(&self) -> &Arc<Volume> {
        self.volume.as_ref().unwrap()
    }

    /// Closes the volume, which commits, and opens it again.
    pub(super) fn reopen(&mut self) {
        self.volume().sync().unwrap();
        self.volume = None;
        self.open();
    }

    /// Commits, and checks the whole volume including its data.
    pub(super) fn assert_sound(&self) {
        self.volume().sync().unwrap();
        assert_sound(&self.device);
    }

    /// Creates a file in the top level's root directory.
    pub(super) fn file(&self, flags: InodeFlags) -> FileId {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let volume = self.volume();
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let name = format!("f{number}");
        let new = NewInode::file(0o644);
        let id = volume.create(top, name.as_bytes(), &new).unwrap();
        set_flags(volume, id, flags);
        id
    }
}

/// Sets flags of an empty file, including those that only mount options set.
pub(super) fn set_flags(volume: &Volume, id: FileId, flags: InodeFlags) {
    let tree = volume.subvolume_tree(id.root).unwrap();
    let mut item = inode_item_cached(&tree, id).unwrap();
    item.flags = flags.bits().into();
    let reservation = volume
        .inodes
        .reserve_metadata(RootId::FS_TREE, EditEstimate::items(1))
        .unwrap();
    let txn = volume.inodes.join_transaction(reservation).unwrap();
    txn.put(&tree, inode_key(id.ino), item.as_bytes());
}

/// A volume that records the requests to its device.
pub(super) struct Recorded {
    pub(super) recorder: Recorder,
    pub(super) device: Arc<ThrottledDevice>,
    pub(super) volume: Arc<Volume>,
}

impl Recorded {
    pub(super) fn open(options: &OpenOptions) -> Recorded {
        let recorder = Recorder::new();
        let memory = new_device(&MkfsOptions::default(), 512 * MIB);
        let device = recorder.device((*memory).clone());
        let device = Arc::new(ThrottledDevice::new(device, None));
        let shared: Arc<dyn BlockDevice> = device.clone();
        let devices = vec![(PathBuf::from("memory"), shared)];
        let volume = Volume::from_devices(devices, options).unwrap();
        Recorded {
            recorder,
            device,
            volume,
        }
    }

    /// Creates a file of `bytes` bytes in the top level's root directory.
    pub(super) fn file(&self, name: &str, bytes: u64) -> FileId {
        let top = self.volume.root_dir(RootId::FS_TREE).unwrap();
        let new = NewInode::file(0o644);
        let id = self.volume.create(top, name.as_bytes(), &new).unwrap();
        self.volume.write(id, 0, &vec![1; bytes as usize]).unwrap();
        id
    }

    pub(super) fn flushes(&self) -> usize {
        self.recorder.recording().flushes()
    }

    /// Returns the requests to the device since `mark`.
    pub(super) fn requests_since(&self, mark: u64) -> Vec<Event> {
        let recording = self.recorder.recording();
        let events = recording.events().iter();
        let since = events.skip_while(|event| **event != Event::Mark(mark));
        since.skip(1).cloned().collect()
    }
}

pub(super) fn is_write(event: &Event) -> bool {
    matches!(event, Event::Write { .. })
}
