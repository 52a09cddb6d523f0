//! A volume on files of its own: made, mounted, checked, and gone when dropped.

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

    /// Returns where the device files are, with room for more files of the test.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// Makes the volume a seed, grows another from it on one more device file, and mounts that for writing. The
    /// new device becomes the first: a mount of the seed would show the seed.
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

    /// Mounts the volume. It needs its devices free: one mount at a time.
    pub fn mount(&self, options: &str) -> Result<KernelMount> {
        KernelMount::new(&self.devices, options)
    }

    pub fn mount_ro(&self) -> Result<KernelMount> {
        self.mount("ro")
    }

    /// Runs `btrfs check`, and returns an error if it finds anything. Data checksums are verified too, except with
    /// parity: there btrfs-progs 6.14 computes a data block of RAID5 wrongly from parity that is right on disk.
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

    /// Attaches all devices, so that tools find each other device of the volume by scanning.
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
