//! Finding volumes on devices, in images and in folders, by the superblocks of their devices.
//!
//! Superblocks list all devices except the seeds that a volume has grown from. The chunk tree of such a volume is read
//! if possible, without a lock, so that nothing else that opens a device is disturbed.
//!
//! Invariant
//! - SCAN-1: of several devices with one id the newest is used. A device that was absent for a while does not replace
//!   its successor.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::subscriber::{NoSubscriber, with_default};
use ubtrfs_assemble::{Disks, OtherDisks};
use ubtrfs_device::{BlockDevice, FoundDevice as Found, all_siblings, found_on, memory_limit};
use ubtrfs_format::maker::MadeBy;
use ubtrfs_format::superblock::Superblock;
use ubtrfs_format::uuid::Uuid;

use crate::error::{Cause, Naming, Result};
use crate::file_device::FileDevice;
use crate::volume::Volume;

/// A volume with at least one found device, as described by the superblocks. [`scan`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundVolume {
    /// The UUID of the volume.
    pub uuid: Uuid,
    /// The label, or an empty one.
    pub label: OsString,
    /// The number of devices of the volume.
    pub total_devices: u64,
    /// Bytes of data and metadata, counting one copy.
    pub used_bytes: u64,
    /// The system of a NAS maker that made the volume, and whether another system has written to it since.
    pub made_by: Option<String>,
    /// The found devices, by id.
    pub devices: Vec<FoundDevice>,
}

impl FoundVolume {
    /// Returns the number of devices that were not found.
    pub fn missing_devices(&self) -> u64 {
        self.total_devices.saturating_sub(self.devices.len() as u64)
    }
}

/// A device that belongs to a volume. [`scan`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundDevice {
    /// The path.
    pub path: PathBuf,
    /// The UUID of its volume. For a seed it is the UUID of the seed.
    pub volume: Uuid,
    /// The id within the volume.
    pub id: u64,
    /// The UUID of the device.
    pub uuid: Uuid,
    /// The last commit in its superblock.
    pub generation: u64,
    /// The number of bytes of the device that the volume uses.
    pub total_bytes: u64,
    /// The number of bytes of the device that are allocated to block groups.
    pub allocated_bytes: u64,
    /// Whether other volumes may have grown from its volume.
    pub is_seed: bool,
}

impl FoundDevice {
    fn of(found: &Found) -> FoundDevice {
        let item = &found.superblock.dev_item;
        FoundDevice {
            path: found.path.clone(),
            volume: found.fsid,
            id: found.devid,
            uuid: item.uuid,
            generation: found.generation,
            total_bytes: item.total_bytes.get(),
            allocated_bytes: item.bytes_used.get(),
            is_seed: found.is_seed(),
        }
    }
}

/// Finds volumes on devices, in images and in folders, in the order of their first devices. A folder means the files
/// and block devices directly in it, and `/dev` all block devices of the machine. A device that cannot be read is
/// skipped.
///
/// Devices may be in use, even by mounts. The result is as of the last commit.
///
/// ```
/// use ubtrfs::{Volume, scan};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// let paths = [folder.path().join("one.img"), folder.path().join("two.img")];
/// let made = Volume::builder().create(&paths, 1 << 30)?;
/// let volumes = scan(&[folder.path()]);
/// assert_eq!(volumes.len(), 1);
/// assert_eq!((volumes[0].uuid, volumes[0].missing_devices()), (made.uuid(), 0));
/// assert_eq!(volumes[0].devices[1].path, paths[1]);
/// let volumes = scan(&paths[..1]);
/// assert_eq!((volumes[0].total_devices, volumes[0].missing_devices()), (2, 1));
/// # Ok(())
/// # }
/// ```
pub fn scan<P: AsRef<Path>>(places: &[P]) -> Vec<FoundVolume> {
    let found = ubtrfs_device::scan(&owned(places));
    let mut seeds = Seeds::default();
    seeds.add(&found);
    volumes_of(&found, &seeds)
}

/// Finds volumes as [`scan`], and also searches for devices next to the ones at `places`. These are images in the same
/// folder, and block devices if a block device is given.
///
/// ```
/// use ubtrfs::{Volume, scan_with_siblings};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// let paths = [folder.path().join("one.img"), folder.path().join("two.img")];
/// Volume::builder().create(&paths, 1 << 30)?.close()?;
/// assert_eq!(scan_with_siblings(&paths[..1])[0].missing_devices(), 0);
/// # Ok(())
/// # }
/// ```
pub fn scan_with_siblings<P: AsRef<Path>>(places: &[P]) -> Vec<FoundVolume> {
    let mut found = ubtrfs_device::scan(&owned(places));
    let mut seeds = Seeds::default();
    seeds.add(&found);
    let named: Vec<Vec<PathBuf>> = by_volume(&found)
        .into_iter()
        .map(|devices| devices.iter().map(|device| device.path.clone()).collect())
        .collect();
    for named in named {
        let siblings = all_siblings(&named);
        seeds.add(&siblings.seeds);
        seeds.add(&siblings.of_volume);
        found.extend(siblings.of_volume);
    }
    volumes_of(&found, &seeds)
}

/// Finds volumes on the partitions of disks, on md arrays of them and on LVM volumes. Further disks of these layers are
/// searched at `places`, or next to the named disks without places. The path of a device is the name of its layer.
///
/// ```
/// use ubtrfs::{Volume, scan_layers};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// # let path = folder.path().join("volume.img");
/// Volume::create(&path, 1 << 30)?.close()?;
/// // Its only layer is the file itself.
/// assert!(scan_layers(&[&path], &[])?.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// A disk cannot be opened, or one of two other disks may be meant.
pub fn scan_layers<P: AsRef<Path>>(disks: &[P], places: &[P]) -> Result<Vec<FoundVolume>> {
    let (named, places) = (owned(disks), owned(places));
    let others = match places.as_slice() {
        [] => OtherDisks::Nearby,
        places => OtherDisks::At(places),
    };
    let disks = Disks {
        named: &named,
        others,
    };
    let shown = named.first().map_or(Path::new(""), PathBuf::as_path);
    let assembly = disks.peek().map_err(Cause::Layers);
    let assembly = assembly.naming("find volumes on", shown)?;
    let mut found = Vec::new();
    for volume in disks.volumes(&assembly) {
        for (name, device) in assembly.devices(&volume) {
            // Damage is of no concern here, as in other scans.
            found.extend(found_on(&*device, &name).ok().flatten());
        }
    }
    Ok(volumes_of(&found, &Seeds::default()))
}

/// Lists the devices on which [`scan`] finds volumes, in the order of discovery. Devices with one id within a volume
/// are all listed.
///
/// ```
/// use ubtrfs::{Volume, scan_devices};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// # let path = folder.path().join("volume.img");
/// let volume = Volume::create(&path, 1 << 30)?;
/// let devices = scan_devices(&[folder.path()]);
/// assert_eq!((devices[0].volume, devices[0].id), (volume.uuid(), 1));
/// # Ok(())
/// # }
/// ```
pub fn scan_devices<P: AsRef<Path>>(places: &[P]) -> Vec<FoundDevice> {
    let found = ubtrfs_device::scan(&owned(places));
    found.iter().map(FoundDevice::of).collect()
}

fn owned<P: AsRef<Path>>(places: &[P]) -> Vec<PathBuf> {
    places.iter().map(|place| place.as_ref().into()).collect()
}

/// Sorts the devices by volume, in the order of the first ones.
fn by_volume(found: &[Found]) -> Vec<Vec<&Found>> {
    let mut order: BTreeMap<Uuid, usize> = BTreeMap::new();
    let mut volumes: Vec<Vec<&Found>> = Vec::new();
    for device in found {
        let at = *order.entry(device.fsid).or_insert(volumes.len());
        match volumes.get_mut(at) {
            Some(devices) => devices.push(device),
            None => volumes.push(vec![device]),
        }
    }
    volumes
}

fn volumes_of(found: &[Found], seeds: &Seeds) -> Vec<FoundVolume> {
    let volumes = by_volume(found).into_iter();
    let described = volumes.filter_map(|devices| {
        let own = newest_by_id(&devices);
        let newest = own.values().max_by_key(|device| device.generation)?;
        Some(grown(&own, newest, seeds).unwrap_or_else(|| described(&own, newest)))
    });
    described.collect()
}

/// Returns the devices of a volume by id (SCAN-1).
fn newest_by_id<'f>(found: &[&'f Found]) -> BTreeMap<u64, &'f Found> {
    let mut by_id: BTreeMap<u64, &Found> = BTreeMap::new();
    for &device in found {
        let known = by_id.entry(device.devid).or_insert(device);
        if device.generation > known.generation {
            *known = device;
        }
    }
    by_id
}

fn made_by(superblock: &Superblock) -> Option<String> {
    MadeBy::of(superblock).map(|made_by| made_by.to_string())
}

/// Returns the description in the superblocks, which works for a volume in use.
fn described(own: &BTreeMap<u64, &Found>, newest: &Found) -> FoundVolume {
    let superblock = &newest.superblock;
    FoundVolume {
        uuid: newest.fsid,
        label: OsString::from_vec(superblock.label().to_vec()),
        total_devices: newest.num_devices,
        used_bytes: superblock.bytes_used.get(),
        made_by: made_by(superblock),
        devices: own.values().map(|found| FoundDevice::of(found)).collect(),
    }
}

/// Returns the description in the chunk tree of a volume with seeds. Returns `None` if none of the seeds belongs to it,
/// or the tree cannot be read.
fn grown(own: &BTreeMap<u64, &Found>, newest: &Found, seeds: &Seeds) -> Option<FoundVolume> {
    // The volume may have removed an older one.
    let as_new = own
        .values()
        .filter(|device| device.generation == newest.generation);
    let seeds = seeds.of_others(newest.fsid);
    if seeds.is_empty() || as_new.count() as u64 >= newest.num_devices {
        return None;
    }
    let own_paths: Vec<&Path> = own.values().map(|device| device.path.as_path()).collect();
    let mut opened = peek(&own_paths, &seeds);
    if opened.is_none() {
        // One of the seeds may have disappeared since it was found.
        let is_there = |seed: &&FoundDevice| scan_devices(&[&seed.path]).iter().any(|d| d.is_seed);
        let still_there: Vec<&FoundDevice> = seeds.iter().copied().filter(is_there).collect();
        if still_there.len() < seeds.len() {
            opened = peek(&own_paths, &still_there);
        }
    }
    let volume = opened?;
    let devices = devices_of(&volume, own, &seeds);
    let has_seed = devices.iter().any(|device| !own.contains_key(&device.id));
    has_seed.then(|| FoundVolume {
        uuid: newest.fsid,
        label: volume.label(),
        total_devices: volume.devices().len() as u64,
        used_bytes: volume.used_bytes(),
        made_by: volume.made_by(),
        devices,
    })
}

/// Opens a volume without locks, as of its last commit. Seeds that cannot be opened are skipped.
fn peek(own: &[&Path], seeds: &[&FoundDevice]) -> Option<Volume> {
    let device = |path: &Path| -> Option<(PathBuf, Arc<dyn BlockDevice>)> {
        let device = FileDevice::peek(path).ok()?;
        Some((path.to_path_buf(), Arc::new(device)))
    };
    let own = own.iter().map(|path| device(path));
    let mut devices = own.collect::<Option<Vec<_>>>()?;
    devices.extend(seeds.iter().filter_map(|seed| device(&seed.path)));
    // A log does not change devices, and may be damaged.
    let builder = Volume::builder().as_committed(true).degraded(true);
    let builder = builder.memory_bytes(memory_limit());
    // A scan emits no warnings, as devices may be in use.
    let opened = with_default(NoSubscriber::default(), || builder.open_devices(devices));
    opened.ok()
}

/// Lists the available devices of an open volume, by id.
fn devices_of(
    volume: &Volume,
    own: &BTreeMap<u64, &Found>,
    seeds: &[&FoundDevice],
) -> Vec<FoundDevice> {
    let allocations = volume.device_allocations();
    let allocated_on = |id: u64| {
        let on_it = allocations.iter().filter(|taken| taken.device_id == id);
        on_it
            .map(|taken| taken.device_bytes)
            .fold(0, u64::saturating_add)
    };
    let devices = volume.devices().into_iter();
    let there = devices.filter(|device| device.path.is_some());
    let found = there.filter_map(|device| {
        let found = match own.get(&device.id) {
            Some(found) => FoundDevice::of(found),
            None => seeds
                .iter()
                .find(|seed| seed.uuid == device.uuid)
                .map(|&seed| seed.clone())?,
        };
        Some(FoundDevice {
            id: device.id,
            total_bytes: device.total_bytes,
            allocated_bytes: allocated_on(device.id),
            ..found
        })
    });
    let mut found: Vec<FoundDevice> = found.collect();
    found.sort_by_key(|device| device.id);
    found
}

/// Devices of seeds, by the UUIDs of the devices. Other volumes may have grown from them.
#[derive(Debug, Default)]
struct Seeds(BTreeMap<Uuid, Vec<FoundDevice>>);

impl Seeds {
    /// Adds the seeds among these devices, each once.
    fn add(&mut self, found: &[Found]) {
        for device in found.iter().filter(|device| device.is_seed()) {
            let device = FoundDevice::of(device);
            let clones = self.0.entry(device.uuid).or_default();
            let place = place_of(&device.path);
            if clones.iter().all(|known| place_of(&known.path) != place) {
                clones.push(device);
            }
        }
    }

    /// Returns the devices of other volumes. Clones of each other are left out, since they cannot be distinguished.
    fn of_others(&self, volume: Uuid) -> Vec<&FoundDevice> {
        let clones = self.0.values();
        let of_others = clones.filter_map(|clones| match clones.as_slice() {
            [seed] if seed.volume != volume => Some(seed),
            _ => None,
        });
        of_others.collect()
    }
}

/// Returns the identity of a file or device. Paths with equal identities lead to the same one.
fn place_of(path: &Path) -> Option<(bool, u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.file_type().is_block_device() {
        Some((true, metadata.rdev(), 0))
    } else {
        Some((false, metadata.dev(), metadata.ino()))
    }
}
