//! New volumes on devices in memory: creating, opening and checking them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, Fault, Issue, Report, Severity, check_devices};
use ubtrfs_device::{BlockDevice, CopyChoice, DeviceSuperblocks, MemDevice, write_superblocks};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::features::{CompatRo, Incompat};
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_fs::{DiscardMode, OpenOptions, Result, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::model::Limits;
use ubtrfs_sim::new_volume_on;

use crate::target::NamedDevices;

pub(crate) const MIB: u64 = 1 << 20;

/// The faults of a mirror that missed a write: damaged blocks, data with a wrong checksum, and an old
/// superblock.
pub(crate) const MIRROR_FAULTS: [u16; 5] = [104, 105, 113, 305, 805];

/// The devices of one volume, by devid.
pub(crate) type Devices = Vec<Arc<dyn BlockDevice>>;

/// The layout of a volume to create.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) devices: usize,
    pub(crate) device_bytes: u64,
    pub(crate) options: MkfsOptions,
}

impl Layout {
    /// Creates the usual layout: one copy of data, and two of metadata if there are several devices.
    pub(crate) fn new(devices: usize, device_bytes: u64) -> Layout {
        Layout {
            devices,
            device_bytes,
            options: MkfsOptions::default(),
        }
    }

    pub(crate) fn profiles(mut self, data: Profile, metadata: Profile) -> Layout {
        self.options.data = Some(data);
        self.options.metadata = Some(metadata);
        self
    }

    /// Returns the limits for the model.
    pub(crate) fn limits(&self) -> Limits {
        let nodesize = self.options.nodesize.map(|nodesize| nodesize as usize);
        nodesize.map_or(Limits::default(), Limits::of_nodesize)
    }

    pub(crate) fn nodesize(mut self, nodesize: u32) -> Layout {
        self.options.nodesize = Some(nodesize);
        self
    }

    /// Sets features, as in `mkfs.btrfs -O`.
    pub(crate) fn features(mut self, list: &str) -> Layout {
        self.options.features.apply_list(list).unwrap();
        self
    }

    pub(crate) fn mixed(mut self) -> Layout {
        self.options.features.incompat |= Incompat::MIXED_GROUPS;
        self
    }

    /// Creates an empty volume.
    pub(crate) fn make(&self) -> Vec<MemDevice> {
        new_volume_on(&self.options, &vec![self.device_bytes; self.devices])
    }
}

pub(crate) fn shared(devices: Vec<MemDevice>) -> Devices {
    let share = |device| Arc::new(device) as Arc<dyn BlockDevice>;
    devices.into_iter().map(share).collect()
}

/// Returns options for writing without automatic commits.
pub(crate) fn quiet() -> OpenOptions {
    OpenOptions::new().writable(true).commit_interval(None)
}

/// Returns options that discard freed space in commits. Discarded space then reads as garbage.
pub(crate) fn discarding() -> OpenOptions {
    quiet().discard(Some(DiscardMode::Sync))
}

pub(crate) fn named(devices: &Devices) -> NamedDevices {
    let name = |number| PathBuf::from(format!("device {number}"));
    let named = devices.iter().enumerate();
    named
        .map(|(number, device)| (name(number + 1), Arc::clone(device)))
        .collect()
}

pub(crate) fn open(devices: &Devices, options: &OpenOptions) -> Result<Arc<Volume>> {
    Volume::from_devices(named(devices), options)
}

/// Marks the free-space tree as invalid in the superblocks.
pub(crate) fn invalidate_free_space_tree(devices: &Devices) {
    for device in devices {
        let mut block = vec![0; SUPERBLOCK_SIZE];
        device.read_at(&mut block, SUPERBLOCK_OFFSETS[0]).unwrap();
        let mut superblock = Superblock::from_block(&block).unwrap().clone();
        let features = superblock.compat_ro() - CompatRo::FREE_SPACE_TREE_VALID;
        superblock.compat_ro_flags = features.bits().into();
        write_superblocks(&**device, Path::new("device"), &superblock).unwrap();
    }
}

/// Replaces each torn primary superblock by a sound copy, like `btrfs rescue super-recover`. Returns whether
/// there was one: the volume could not be opened before.
pub(crate) fn recover_superblocks(devices: &Devices) -> bool {
    let path = Path::new("device");
    let mut is_torn = false;
    for device in devices {
        let device = &**device;
        let found = DeviceSuperblocks::read(device);
        if found.require(device, path, CopyChoice::First).is_ok() {
            continue;
        }
        is_torn = true;
        let copy = found.require(device, path, CopyChoice::Any).unwrap();
        write_superblocks(device, path, copy).unwrap();
    }
    is_torn
}

/// Returns whether the newest superblock names a log.
pub(crate) fn has_log(devices: &Devices) -> bool {
    let path = Path::new("device");
    let newest = |device: &Arc<dyn BlockDevice>| {
        let found = DeviceSuperblocks::read(&**device);
        let copy = found.require(&**device, path, CopyChoice::Any).unwrap();
        (copy.generation.get(), copy.has_log())
    };
    devices.iter().map(newest).max().is_some_and(|(_, has)| has)
}

fn report(devices: &Devices) -> std::result::Result<Report, String> {
    let options = CheckOptions {
        memory_bytes: 16 << 20,
        data_csums: true,
        ..CheckOptions::default()
    };
    let report = check_devices(named(devices), &options, &mut ());
    report.map_err(|error| error.to_string())
}

fn is_sound(
    report: &Report,
    is_excused: impl Fn(&Issue) -> bool,
) -> std::result::Result<(), String> {
    let is_sound = report.unlisted() == 0 && report.issues.iter().all(is_excused);
    if is_sound {
        Ok(())
    } else {
        Err(report.to_string())
    }
}

/// Returns an error with the faults that the checker finds, except those with `excused` numbers.
pub(crate) fn check_but(devices: &Devices, excused: &[u16]) -> std::result::Result<(), String> {
    is_sound(&report(devices)?, |issue| {
        excused.contains(&issue.fault.number())
    })
}

pub(crate) fn check(devices: &Devices) -> std::result::Result<(), String> {
    check_but(devices, &[])
}

/// Checks the volume after a power cut. Superblock copies may be torn or old on one device, or old on some
/// devices. The latter is not an error.
pub(crate) fn check_after_cut(devices: &Devices) -> std::result::Result<(), String> {
    is_sound(&report(devices)?, |issue| match issue.fault {
        Fault::SuperblockDamaged { .. } => true,
        Fault::SuperblockStale { .. } | Fault::DeviceStale { .. } => {
            issue.severity() < Severity::Error
        }
        _ => false,
    })
}

/// Checks the volume after a power cut that tore no superblock: only notes are allowed.
pub(crate) fn check_after_clean_cut(devices: &Devices) -> std::result::Result<(), String> {
    is_sound(&report(devices)?, |issue| {
        issue.severity() == Severity::Note
    })
}
