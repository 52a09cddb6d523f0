//! Disks with partitions, members of md arrays and physical volumes of LVM, whose layers are read in this process.
//!
//! Not here: the search for a volume on layers, which the library does (`ubtrfs_assemble::Disks`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_assemble::{Assembly, Contents, Disk, Layer};
use ubtrfs_device::FileDevice;

use crate::presentation::quoting::Escaped;

/// Returns the name of a layer for messages.
pub(crate) fn shown(layer: &Layer) -> String {
    Escaped(layer.name.as_bytes()).to_string()
}

/// Returns whether a disk cannot be read alone. It is a part of an array or a volume group, has partitions, or is one of
/// several devices of btrfs.
pub(crate) fn is_part(name: &OsStr) -> bool {
    let path = Path::new(name);
    let Ok(device) = FileDevice::peek(path) else {
        return false;
    };
    let assembly = Assembly::of([Disk {
        path: PathBuf::from(path),
        device: Arc::new(device),
    }]);
    match assembly.layers()[0].contents {
        Contents::Member | Contents::PhysicalVolume | Contents::Partitions => true,
        Contents::Btrfs { num_devices, .. } => num_devices > 1,
        Contents::Other(_) | Contents::Unknown => false,
    }
}
