//! The parameters of a volume for `mkfs.btrfs`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::program::run;

macro_rules! names {
    ($(#[$meta:meta])* $type:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($variant),+ }

        impl $type {
            pub const ALL: &[$type] = &[$($type::$variant),+];

            /// Returns the name in btrfs-progs.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names! {
    Csum {
        Crc32c = "crc32c",
        Xxhash = "xxhash",
        Sha256 = "sha256",
        Blake2 = "blake2",
    }
}

names! {
    Profile {
        Single = "single",
        Dup = "dup",
        Raid0 = "raid0",
        Raid1 = "raid1",
        Raid1c3 = "raid1c3",
        Raid1c4 = "raid1c4",
        Raid10 = "raid10",
        Raid5 = "raid5",
        Raid6 = "raid6",
    }
}

names! {
    Feature {
        NoHoles = "no-holes",
        Extref = "extref",
        SkinnyMetadata = "skinny-metadata",
        FreeSpaceTree = "free-space-tree",
        BlockGroupTree = "block-group-tree",
        MixedBg = "mixed-bg",
        Quota = "quota",
        Squota = "squota",
    }
}

impl Profile {
    /// Returns the minimum number of devices on which the profile has its usual layout.
    pub fn min_devices(self) -> usize {
        match self {
            Profile::Single | Profile::Dup => 1,
            Profile::Raid0 | Profile::Raid1 => 2,
            Profile::Raid1c3 | Profile::Raid5 => 3,
            Profile::Raid1c4 | Profile::Raid10 | Profile::Raid6 => 4,
        }
    }

    /// Returns how many devices may be lost regardless of their contents.
    pub fn devices_it_can_lose(self) -> usize {
        match self {
            Profile::Single | Profile::Dup | Profile::Raid0 => 0,
            Profile::Raid1 | Profile::Raid10 | Profile::Raid5 => 1,
            Profile::Raid1c3 | Profile::Raid6 => 2,
            Profile::Raid1c4 => 3,
        }
    }
}

/// Options of `mkfs.btrfs`. Options that are not set keep their default.
#[derive(Clone, Debug)]
pub struct MkfsSpec {
    pub(super) devices: usize,
    pub(super) device_bytes: u64,
    pub(super) metadata_uuid: bool,
    csum: Option<Csum>,
    data: Option<Profile>,
    metadata: Option<Profile>,
    nodesize: Option<u32>,
    sectorsize: Option<u32>,
    features: Vec<(Feature, bool)>,
    label: Option<String>,
    uuid: Option<String>,
}

impl Default for MkfsSpec {
    fn default() -> MkfsSpec {
        MkfsSpec {
            devices: 1,
            device_bytes: 512 << 20,
            metadata_uuid: false,
            csum: None,
            data: None,
            metadata: None,
            nodesize: None,
            sectorsize: None,
            features: Vec::new(),
            label: None,
            uuid: None,
        }
    }
}

impl MkfsSpec {
    pub fn new() -> MkfsSpec {
        MkfsSpec::default()
    }

    pub fn devices(mut self, devices: usize) -> MkfsSpec {
        self.devices = devices;
        self
    }

    /// Sets the size of each device. The files are sparse.
    pub fn device_bytes(mut self, bytes: u64) -> MkfsSpec {
        self.device_bytes = bytes;
        self
    }

    pub fn csum(mut self, csum: Csum) -> MkfsSpec {
        self.csum = Some(csum);
        self
    }

    pub fn data(mut self, profile: Profile) -> MkfsSpec {
        self.data = Some(profile);
        self
    }

    pub fn metadata(mut self, profile: Profile) -> MkfsSpec {
        self.metadata = Some(profile);
        self
    }

    pub fn nodesize(mut self, bytes: u32) -> MkfsSpec {
        self.nodesize = Some(bytes);
        self
    }

    pub fn sectorsize(mut self, bytes: u32) -> MkfsSpec {
        self.sectorsize = Some(bytes);
        self
    }

    pub fn with(mut self, feature: Feature) -> MkfsSpec {
        self.features.push((feature, true));
        self
    }

    pub fn without(mut self, feature: Feature) -> MkfsSpec {
        self.features.push((feature, false));
        self
    }

    pub fn label(mut self, label: &str) -> MkfsSpec {
        self.label = Some(label.to_owned());
        self
    }

    pub fn uuid(mut self, uuid: &str) -> MkfsSpec {
        self.uuid = Some(uuid.to_owned());
        self
    }

    /// Changes the fsid after mkfs, so that nodes use METADATA_UUID.
    pub fn metadata_uuid(mut self) -> MkfsSpec {
        self.metadata_uuid = true;
        self
    }

    /// Returns the options as words, without the devices.
    pub fn args(&self) -> Vec<String> {
        let mut args = vec!["-q".to_owned(), "-f".to_owned(), "-K".to_owned()];
        let mut push = |option: &str, value: String| args.extend([option.to_owned(), value]);
        if let Some(csum) = self.csum {
            push("--csum", csum.to_string());
        }
        if let Some(profile) = self.data {
            push("-d", profile.to_string());
        }
        if let Some(profile) = self.metadata {
            push("-m", profile.to_string());
        }
        if let Some(bytes) = self.nodesize {
            push("-n", bytes.to_string());
        }
        if let Some(bytes) = self.sectorsize {
            push("-s", bytes.to_string());
        }
        if let Some(label) = &self.label {
            push("-L", label.clone());
        }
        if let Some(uuid) = &self.uuid {
            push("-U", uuid.clone());
        }
        if !self.features.is_empty() {
            let words: Vec<String> = self
                .features
                .iter()
                .map(|(feature, on)| format!("{}{feature}", if *on { "" } else { "^" }))
                .collect();
            push("-O", words.join(","));
        }
        args
    }

    /// Runs `mkfs.btrfs` on `devices`.
    pub fn make(&self, devices: &[PathBuf]) -> Result<()> {
        let mut args: Vec<std::ffi::OsString> = self.args().into_iter().map(Into::into).collect();
        args.extend(devices.iter().map(|device| device.as_os_str().to_owned()));
        run("mkfs.btrfs", args).map(drop)
    }

    /// Changes the fsid of a volume, and keeps the old one as METADATA_UUID. Other devices are found by a scan.
    pub(super) fn change_fsid(device: &Path) -> Result<()> {
        let args = ["-f", "-m"].map(AsRef::as_ref);
        run("btrfstune", args.into_iter().chain([device.as_os_str()])).map(drop)
    }
}
