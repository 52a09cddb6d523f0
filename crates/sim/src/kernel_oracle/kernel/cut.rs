//! A kernel mount whose power can be cut at any moment.
//!
//! The devices are ranges of one file on another btrfs mount. A reflink of the file is an atomic copy: it has every
//! request that the loop devices had completed, and no later ones.
//!
//! Not here: cuts that lose completed requests (`record`), which need a recording device.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::{KernelMount, KernelVolume, LoopDevice, MkfsSpec};
use crate::Result;
use crate::error::At;

/// Sparse, and far more than the clones of a small volume need.
const HOST_BYTES: u64 = 64 << 30;

#[derive(Debug)]
pub struct CutVolume {
    // Dropped in this order: the volume is on the host.
    mount: Option<KernelMount>,
    loops: Vec<LoopDevice>,
    host: KernelMount,
    _host_volume: KernelVolume,
    device_bytes: u64,
    cuts: usize,
}

impl CutVolume {
    /// Creates a volume and mounts it with `options`.
    pub fn make(spec: &MkfsSpec, options: &str) -> Result<CutVolume> {
        let host_volume = KernelVolume::make(&MkfsSpec::new().device_bytes(HOST_BYTES))?;
        let host = host_volume.mount("")?;
        let image = host.path().join("image");
        let devices = spec.devices as u64;
        let file = File::create_new(&image).at("create", &image)?;
        file.set_len(devices * spec.device_bytes)
            .at("set length", &image)?;
        let loops = (0..devices)
            .map(|number| {
                let offset = number * spec.device_bytes;
                LoopDevice::attach_part(&image, offset, spec.device_bytes)
            })
            .collect::<Result<Vec<_>>>()?;
        let paths: Vec<PathBuf> = loops.iter().map(|l| l.path().to_path_buf()).collect();
        spec.make(&paths)?;
        if spec.metadata_uuid {
            MkfsSpec::change_fsid(&paths[0])?;
        }
        let mount = KernelMount::new(&paths, options)?;
        Ok(CutVolume {
            mount: Some(mount),
            loops,
            host,
            _host_volume: host_volume,
            device_bytes: spec.device_bytes,
            cuts: 0,
        })
    }

    /// Returns the mount point; only before [`CutVolume::end`].
    pub fn path(&self) -> &Path {
        let mount = self.mount.as_ref();
        mount.expect("mounted until the end").path()
    }

    /// Returns the folder of the image, in which copies are reflinks.
    pub fn dir(&self) -> &Path {
        self.host.path()
    }

    /// Copies the device files in the state after a power cut now, by devid.
    pub fn cut(&mut self) -> Result<Vec<PathBuf>> {
        self.cuts += 1;
        let whole = self.dir().join(format!("cut-{}", self.cuts));
        clone(&self.dir().join("image"), &whole)?;
        if self.loops.len() == 1 {
            return Ok(vec![whole]);
        }
        let parts = (0..self.loops.len()).map(|number| {
            let part = self.dir().join(format!("cut-{}-{number}", self.cuts));
            let offset = number as u64 * self.device_bytes;
            clone_range(&whole, offset, self.device_bytes, &part)?;
            Ok(part)
        });
        let parts = parts.collect::<Result<_>>()?;
        fs::remove_file(&whole).at("remove", &whole)?;
        Ok(parts)
    }

    /// Copies the device files of a cut, so that the kernel can write to them.
    pub fn copy(&self, devices: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let copies = devices.iter().map(|device| {
            let copy = device.with_extension("copy");
            clone(device, &copy).map(|()| copy)
        });
        copies.collect()
    }

    /// Unmounts the volume, so that the kernel does not mistake a cut for one of its devices.
    pub fn end(&mut self) -> Result<()> {
        let done = self.mount.take().map_or(Ok(()), KernelMount::unmount);
        self.loops.clear();
        done
    }
}

fn clone(from: &Path, to: &Path) -> Result<()> {
    let source = File::open(from).at("open", from)?;
    let target = File::create(to).at("create", to)?;
    rustix::fs::ioctl_ficlone(&target, &source).at("clone", from)
}

fn clone_range(from: &Path, offset: u64, len_bytes: u64, to: &Path) -> Result<()> {
    let source = File::open(from).at("open", from)?;
    let target = File::create(to).at("create", to)?;
    let (mut at, mut done) = (offset, 0);
    while done < len_bytes {
        let left = (len_bytes - done) as usize;
        let copied =
            rustix::fs::copy_file_range(&source, Some(&mut at), &target, Some(&mut done), left)
                .at("copy a range of", from)?;
        if copied == 0 {
            break;
        }
    }
    target.set_len(len_bytes).at("set length", to)
}
