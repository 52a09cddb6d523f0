//! A volume on temporary files: created, mounted, checked, and deleted on drop.

use std::path::{Path, PathBuf};

use super::{KernelMount, LoopDevice, MkfsSpec, chunks, run};
use crate::{Result, Scratch};

#[derive(Debug)]
pub struct KernelVolume {
    devices: Vec<PathBuf>,
    scratch: Scratch,
}

impl KernelVolume {
    /// Creates an empty volume with `mkfs.btrfs`.
    pub fn make(spec: &MkfsSpec) -> Result<KernelVolume> {
        let scratch = Scratch::new()?;
        let devices = (0..spec.devices)
            .map(|number| scratch.file(&format!("dev{number}.img"), spec.device_bytes))
            .collect::<Result<Vec<_>>>()?;
        spec.make(&devices)?;
        let volume = KernelVolume { devices, scratch };
        if spec.metadata_uuid {
            volume.with_loops(|devices| MkfsSpec::change_fsid(devices[0]))?;
        }
        Ok(volume)
    }

    /// Wraps a volume whose device files are already in `scratch`.
    pub fn of_files(devices: Vec<PathBuf>, scratch: Scratch) -> KernelVolume {
        KernelVolume { devices, scratch }
    }

    /// Returns the device files, by devid.
    pub fn devices(&self) -> &[PathBuf] {
        &self.devices
    }

    /// Returns the folder of the device files, which tests may also use for other files.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// Turns the volume into a seed, sprouts another one with a new device file, and mounts it writable. The new
    /// device becomes the first one, because mounting the seed would show the seed.
    pub fn sprout(&mut self, device_bytes: u64) -> Result<KernelMount> {
        self.with_loops(|devices| {
            let args = ["-S", "1"].map(AsRef::as_ref);
            run(
                "btrfstune",
                args.into_iter().chain([devices[0].as_os_str()]),
            )
        })?;
        let device = self.scratch.file("sprout.img", device_bytes)?;
        let mut mount = self.mount("")?;
        mount.add_device(&device)?;
        mount.remount("rw")?;
        self.devices.insert(0, device);
        Ok(mount)
    }

    /// Mounts the volume. Its devices must not be in use: one mount at a time.
    pub fn mount(&self, options: &str) -> Result<KernelMount> {
        KernelMount::new(&self.devices, options)
    }

    pub fn mount_ro(&self) -> Result<KernelMount> {
        self.mount("ro")
    }

    /// Runs `btrfs check`, and returns an error for any finding. Data checksums are verified too, except with parity:
    /// btrfs-progs 6.14 reconstructs RAID5 data incorrectly from correct parity.
    pub fn check(&self) -> Result<()> {
        let has_parity = chunks(&self.devices)?
            .iter()
            .any(|chunk| chunk.has_flag("RAID5") || chunk.has_flag("RAID6"));
        let mut args = vec!["check", "--readonly"];
        if !has_parity {
            args.push("--check-data-csum");
        }
        let args = args.into_iter().map(AsRef::as_ref);
        self.with_loops(|devices| run("btrfs", args.chain([devices[0].as_os_str()])))
            .map(drop)
    }

    /// Attaches all devices, so that tools find the other devices of the volume by scanning.
    fn with_loops<T>(&self, each: impl FnOnce(&[&Path]) -> Result<T>) -> Result<T> {
        let loops = self
            .devices
            .iter()
            .map(|device| LoopDevice::attach(device))
            .collect::<Result<Vec<_>>>()?;
        let paths: Vec<&Path> = loops.iter().map(LoopDevice::path).collect();
        each(&paths)
    }
}
