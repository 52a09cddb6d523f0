//! The volumes created by the tests.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{Access, BlockDevice, FileDevice, MemDevice};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::item::Timespec;
use ubtrfs_fs::{OpenOptions, Volume};
use ubtrfs_mkfs::{Identity, MkfsOptions, Plan};
use ubtrfs_sim::Scratch;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// A volume with its options, also in text form.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The options in the syntax of `mkfs.btrfs`.
    pub(crate) words: String,
    pub(crate) options: MkfsOptions,
    pub(crate) device_bytes: Vec<u64>,
}

impl Case {
    pub(crate) fn new(devices: usize, device_bytes: u64) -> Case {
        Case {
            words: "-L ubtrfs".to_owned(),
            options: MkfsOptions {
                label: b"ubtrfs".to_vec(),
                ..MkfsOptions::default()
            },
            device_bytes: vec![device_bytes; devices],
        }
    }

    fn word(mut self, option: &str, value: impl std::fmt::Display) -> Case {
        self.words.push_str(&format!(" {option} {value}"));
        self
    }

    pub(crate) fn profiles(mut self, data: Profile, metadata: Profile) -> Case {
        self.options.data = Some(data);
        self.options.metadata = Some(metadata);
        self.word("-d", data.name().to_lowercase())
            .word("-m", metadata.name().to_lowercase())
    }

    pub(crate) fn csum(mut self, csum_type: CsumType) -> Case {
        self.options.csum_type = csum_type;
        let name = csum_type.name();
        self.word("--csum", name.trim_end_matches("64"))
    }

    pub(crate) fn nodesize(mut self, bytes: u32) -> Case {
        self.options.nodesize = Some(bytes);
        self.word("-n", bytes)
    }

    pub(crate) fn sectorsize(mut self, bytes: u32) -> Case {
        self.options.sectorsize = bytes;
        self.word("-s", bytes)
    }

    pub(crate) fn features(mut self, list: &str) -> Case {
        self.options.features.apply_list(list).unwrap();
        self.word("-O", list)
    }

    pub(crate) fn mixed(mut self) -> Case {
        self.options.features.incompat |= Incompat::MIXED_GROUPS;
        self.words.push_str(" -M");
        self
    }

    /// Plans the volume, always with the same identity.
    pub(crate) fn plan(&self) -> Plan {
        let identity = identity(self.device_bytes.len());
        Plan::new(&self.options, &identity, &self.device_bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", self.words))
    }

    /// Creates the volume in memory, and returns its plan.
    pub(crate) fn in_memory(&self) -> (Plan, Vec<Arc<MemDevice>>) {
        let plan = self.plan();
        let devices: Vec<_> = self
            .device_bytes
            .iter()
            .map(|&bytes| Arc::new(MemDevice::new(bytes)))
            .collect();
        let borrowed: Vec<&dyn BlockDevice> = devices
            .iter()
            .map(|device| device.as_ref() as &dyn BlockDevice)
            .collect();
        plan.write(&borrowed, true).unwrap();
        (plan, devices)
    }

    /// Creates the volume in image files.
    pub(crate) fn on_files(&self, scratch: &Scratch) -> Vec<PathBuf> {
        let paths: Vec<PathBuf> = self
            .device_bytes
            .iter()
            .enumerate()
            .map(|(at, &bytes)| scratch.file(&format!("dev{at}.img"), bytes).unwrap())
            .collect();
        let devices: Vec<FileDevice> = paths
            .iter()
            .map(|path| FileDevice::open(path, Access::Write).unwrap())
            .collect();
        let borrowed: Vec<&dyn BlockDevice> = devices
            .iter()
            .map(|device| device as &dyn BlockDevice)
            .collect();
        self.plan().write(&borrowed, true).unwrap();
        paths
    }
}

pub(crate) fn identity(devices: usize) -> Identity {
    // Random, because the kernel and the tools remember fsids.
    let created = Timespec {
        sec: 1_700_000_000.into(),
        nsec: 0.into(),
    };
    Identity::random(devices, created)
}

pub(crate) fn open(devices: &[Arc<MemDevice>], options: &OpenOptions) -> Arc<Volume> {
    let devices = devices
        .iter()
        .enumerate()
        .map(|(at, device)| {
            let device: Arc<dyn BlockDevice> = device.clone();
            (PathBuf::from(format!("dev{at}")), device)
        })
        .collect();
    Volume::from_devices(devices, options).unwrap()
}

pub(crate) fn soak() -> bool {
    std::env::var_os("UBTRFS_SOAK").is_some()
}

/// Lists all pairs of data and metadata profiles, on the minimum number of devices and on more.
pub(crate) fn profiles() -> Vec<Case> {
    let mut cases = Vec::new();
    for data in Profile::ALL {
        for metadata in Profile::ALL {
            let fewest = data.min_devices().max(metadata.min_devices());
            for devices in fewest..=fewest + 2 {
                cases.push(Case::new(devices, GIB).profiles(data, metadata));
            }
        }
    }
    cases
}

const FEATURES: &[&str] = &[
    "^bgt",
    "^fst",
    "^no-holes",
    "^skinny-metadata",
    "^extref",
    "^fst,^no-holes,^skinny-metadata,^extref",
    "quota",
    "squota",
    "^bgt,^skinny-metadata,quota",
];

/// Lists all combinations of checksum, node size and feature set.
pub(crate) fn features() -> Vec<Case> {
    let mut cases = Vec::new();
    for csum_type in CsumType::ALL {
        for shift in 12..=16 {
            let case = Case::new(1, 300 * MIB).csum(csum_type).nodesize(1 << shift);
            cases.push(case.clone());
            cases.extend(FEATURES.iter().map(|list| case.clone().features(list)));
        }
    }
    cases
}

/// Lists large sectors, mixed groups, and sizes from the minimum up.
pub(crate) fn sizes() -> Vec<Case> {
    let mut cases = Vec::new();
    for shift in 13..=16 {
        cases.push(Case::new(1, 400 * MIB).sectorsize(1 << shift));
        cases.push(Case::new(1, 400 * MIB).sectorsize(1 << shift).mixed());
    }
    for mib in [16, 17, 64, 109, 256, 1 << 10, 51 << 10, 300 << 10, 4 << 20] {
        cases.push(Case::new(1, mib * MIB).mixed());
        if mib >= 109 {
            cases.push(Case::new(1, mib * MIB));
        }
    }
    for profile in Profile::ALL {
        let devices = profile.min_devices();
        let case = Case::new(devices, 0).profiles(profile, profile);
        let least = case.options.resolve(devices).unwrap().min_device_bytes();
        cases.push(Case {
            device_bytes: vec![least; devices],
            ..case
        });
    }
    cases
}
