//! Btrfs ioctls on a mount: subvolumes, snapshots, files without copy-on-write.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::ioctl::Opcode;
use ubtrfs_sim::raw_ioctl;

use crate::Outcome;

const SUBVOL_CREATE: Opcode = 0x5000_940e;
const SNAP_DESTROY: Opcode = 0x5000_940f;
const SNAP_CREATE_V2: Opcode = 0x5000_9417;
/// The inode number of a subvolume's root directory.
const TOP: u64 = 256;

pub(super) fn set_nocow(file: impl AsFd) -> io::Result<()> {
    let flags = ioctl_getflags(&file)?;
    Ok(ioctl_setflags(&file, flags | IFlags::NOCOW)?)
}

/// Builds the argument of an ioctl: a descriptor, and a name at offset `name_at`.
fn arguments(descriptor: i64, name_at: usize, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..8].copy_from_slice(&descriptor.to_le_bytes());
    bytes[name_at..name_at + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

pub(super) fn create(dir: &Path, name: &str) -> io::Result<()> {
    let dir = File::open(dir)?;
    Ok(raw_ioctl(&dir, SUBVOL_CREATE, &mut arguments(0, 8, name))?)
}

pub(super) fn snapshot(source: &Path, dir: &Path, name: &str) -> io::Result<()> {
    let (dir, source) = (File::open(dir)?, File::open(source)?);
    let mut args = arguments(source.as_raw_fd().into(), 56, name);
    Ok(raw_ioctl(&dir, SNAP_CREATE_V2, &mut args)?)
}

pub(super) fn delete(dir: &Path, name: &str) -> io::Result<()> {
    let dir = File::open(dir)?;
    Ok(raw_ioctl(&dir, SNAP_DESTROY, &mut arguments(0, 8, name))?)
}

/// Removes all contents of a directory.
pub(super) fn remove_all(dir: &Path) -> Outcome {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let removed = match (entry.file_type()?.is_dir(), fs::metadata(&path)) {
            (true, Ok(about)) if about.ino() == TOP => delete(dir, &name),
            (true, _) => fs::remove_dir_all(&path),
            (false, _) => fs::remove_file(&path),
        };
        removed.map_err(|error| format!("removing {}: {error}", path.display()))?;
    }
    Ok(())
}
