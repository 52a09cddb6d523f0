//! `ubtrfs filesystem show`: volumes and their devices.
//!
//! Devices named or found by a scan are grouped by volume. Without an argument the block devices of
//! the machine are looked through.
//!
//! Superblocks tell of all devices but those of seeds that a volume has grown from. The chunk tree of such a volume is
//! read if it can be, without a lock: nothing else that opens a device notices.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::io::Errno;
use serde::Serialize;
use tracing::subscriber::{NoSubscriber, with_default};
use ubtrfs::{BlockDevice, FileDevice, Uuid, Volume, memory_limit};
use ubtrfs_device::{FoundDevice, all_siblings, scan};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_fuse::mount::{TableEntry, mount_table};

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::quoting::Escaped;
use crate::presentation::units::LongUnits;
use crate::volume_access::ioctls::{Asked, ByIoctls, text};
use crate::volume_access::location::{DeviceOptions, Location, LocationParser};

/// Show volumes and the devices they are on
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// Images, devices, folders to look through, or the UUID or label of a volume among the block devices
    #[arg(value_name = "IMAGE|DIR|UUID|LABEL", value_parser = LocationParser::Images)]
    targets: Vec<Location>,
    /// Look through the block devices of the machine
    #[arg(short = 'd', long)]
    all_devices: bool,
    /// Show only volumes that are mounted, by ubtrfs or the kernel's btrfs
    #[arg(short, long)]
    mounted: bool,
    #[command(flatten)]
    units: LongUnits,
    #[command(flatten)]
    devices: DeviceOptions,
}

/// The text of btrfs-progs for a device that is not there.
const MISSING: &str = "size 0 used 0 path <missing disk> MISSING";

#[derive(Debug, Serialize)]
struct VolumeJson {
    label: Option<String>,
    uuid: String,
    total_devices: u64,
    bytes_used: u64,
    missing: bool,
    devices: Vec<DeviceJson>,
}

#[derive(Debug, Serialize)]
struct DeviceJson {
    devid: u64,
    size: u64,
    used: u64,
    path: Option<String>,
}

impl Show {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volumes = self.volumes()?;
        self.print_all(console, &volumes)
    }

    fn print_all(&self, console: &mut Console, volumes: &[VolumeJson]) -> anyhow::Result<()> {
        if console.is_json() {
            return Ok(json::write_list(
                &mut console.out,
                "filesystem-show",
                volumes,
            )?);
        }
        for (index, volume) in volumes.iter().enumerate() {
            if index > 0 {
                writeln!(console.out)?;
            }
            self.print(console, volume)?;
        }
        Ok(())
    }

    fn print(&self, console: &mut Console, volume: &VolumeJson) -> anyhow::Result<()> {
        let units = self.units.units();
        let out = &mut console.out;
        match &volume.label {
            Some(label) => write!(out, "Label: '{}' ", Escaped::of(label))?,
            None => write!(out, "Label: none ")?,
        }
        writeln!(out, " uuid: {}", volume.uuid)?;
        writeln!(
            out,
            "\tTotal devices {} FS bytes used {}",
            volume.total_devices,
            units.size(volume.bytes_used)
        )?;
        for device in &volume.devices {
            let devid = device.devid;
            let Some(path) = &device.path else {
                writeln!(out, "\tdevid {devid:>4} {MISSING}")?;
                continue;
            };
            writeln!(
                out,
                "\tdevid {devid:>4} size {} used {} path {}",
                units.size(device.size),
                units.size(device.used),
                Escaped::of(path)
            )?;
        }
        if volume.missing {
            writeln!(out, "\t*** Some devices missing")?;
        }
        Ok(())
    }

    /// Returns the volumes asked for, in the order in which their first device was found.
    fn volumes(&self) -> anyhow::Result<Vec<VolumeJson>> {
        let mut places: Vec<PathBuf> = Vec::new();
        let mut filters: Vec<String> = Vec::new();
        let mut volumes = Vec::new();
        for target in &self.targets {
            if target.session().is_some() {
                volumes.push(describe_open(&self.devices.open(target)?));
                continue;
            }
            match target.image.exists() {
                true => places.push(target.image.clone()),
                false => filters.push(target.image.to_string_lossy().into_owned()),
            }
        }
        if !volumes.is_empty() {
            return Ok(volumes);
        }
        let named = !places.is_empty();
        places.extend(self.devices.devices().iter().cloned());
        places.extend(self.devices.scan_places().iter().cloned());
        if !named || self.all_devices {
            places.push(PathBuf::from("/dev"));
        }
        let mut found = scan(&places);
        let mut seeds = Seeds::default();
        if named && self.devices.scan_places().is_empty() {
            let beside = all_siblings(&places);
            found.extend(beside.of_volume);
            seeds.add(&beside.seeds);
        }
        seeds.add(&found);
        if named && found.is_empty() {
            // Opening says what is wrong with a place that was named.
            self.devices.open_all(&places)?;
        }
        if self.mounted {
            let asked: BTreeSet<Uuid> = found.iter().map(|device| device.fsid).collect();
            found = mounted_devices()?;
            found.retain(|device| !named || asked.contains(&device.fsid));
            if named && found.is_empty() {
                bail!("what is named is not mounted");
            }
        }
        let mut order: Vec<Uuid> = Vec::new();
        let mut by_volume: BTreeMap<Uuid, Vec<FoundDevice>> = BTreeMap::new();
        for device in found {
            if !by_volume.contains_key(&device.fsid) {
                order.push(device.fsid);
            }
            by_volume.entry(device.fsid).or_default().push(device);
        }
        for fsid in order {
            let found = by_volume.remove(&fsid).unwrap_or_default();
            let devices = newest_by_devid(&found);
            let volume = describe(fsid, &devices)?;
            if filters.is_empty() || filters.iter().any(|filter| volume.is_called(filter)) {
                let grown = describe_grown(fsid, &devices, &seeds);
                volumes.push(grown.unwrap_or(volume));
            }
        }
        if volumes.is_empty()
            && let Some(filter) = filters.first()
        {
            bail!("not a volume, image or device: '{}'", Escaped::of(filter));
        }
        Ok(volumes)
    }
}

/// Returns the devices of volumes that are mounted by the kernel's btrfs or ubtrfs.
fn mounted_devices() -> anyhow::Result<Vec<FoundDevice>> {
    let table = mount_table().context("cannot read which file systems are mounted")?;
    let of_btrfs = |entry: &TableEntry| entry.is_ours() || entry.fs_type == "btrfs";
    let mounts = table.into_iter().filter(of_btrfs);
    let paths = mounts.map(|entry| match entry.is_ours() {
        true => entry.volume_path(),
        false => entry.source,
    });
    let sources: BTreeSet<PathBuf> = paths.collect();
    let mut places: Vec<PathBuf> = sources.into_iter().filter(|path| path.exists()).collect();
    let named = scan(&places);
    let mounted: BTreeSet<Uuid> = named.iter().map(|device| device.fsid).collect();
    // The table names one device of each.
    for device in named.iter().filter(|device| device.num_devices > 1) {
        let beside = all_siblings(std::slice::from_ref(&device.path));
        let of_volume = beside.of_volume.into_iter();
        places.extend(of_volume.map(|device| device.path));
    }
    places.push(PathBuf::from("/dev"));
    let mut found = scan(&places);
    found.retain(|device| mounted.contains(&device.fsid));
    Ok(found)
}

impl VolumeJson {
    fn new(fsid: Uuid, superblock: &Superblock, devices: Vec<DeviceJson>) -> VolumeJson {
        VolumeJson {
            label: label(superblock.label()),
            uuid: fsid.to_string(),
            total_devices: superblock.num_devices.get(),
            bytes_used: superblock.bytes_used.get(),
            missing: false,
            devices,
        }
        .in_order()
    }

    fn in_order(mut self) -> VolumeJson {
        self.devices.sort_by_key(|device| device.devid);
        let present = self.devices.iter().filter(|device| device.path.is_some());
        self.missing = (present.count() as u64) < self.total_devices;
        self
    }

    /// Asks a mount for its volume.
    fn ask(asked: &Asked) -> Result<VolumeJson, Errno> {
        let info = asked.volume_info()?;
        let used = asked.spaces()?.infos.into_iter().map(|info| info.used);
        let devices = asked.devices()?;
        // The kernel's count leaves out the devices of seed volumes.
        let total_devices = info.num_devices.get().max(devices.len() as u64);
        let devices = devices.into_iter().map(|device| {
            let path = text(&device.path);
            DeviceJson {
                devid: device.devid.get(),
                size: device.total_bytes.get(),
                used: device.bytes_used.get(),
                path: (!path.is_empty()).then(|| json::text(path)),
            }
        });
        let volume = VolumeJson {
            label: label(&asked.label()?),
            uuid: Uuid(info.fsid).to_string(),
            total_devices,
            bytes_used: used.fold(0, u64::saturating_add),
            missing: false,
            devices: devices.collect(),
        };
        Ok(volume.in_order())
    }

    fn is_called(&self, name: &str) -> bool {
        self.uuid == name || self.label.as_deref() == Some(name)
    }
}

fn label(label: &[u8]) -> Option<String> {
    (!label.is_empty()).then(|| json::text(label))
}

impl ByIoctls for Show {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let volumes = self.targets.iter().map(|target| {
            let volume = VolumeJson::ask(&Asked::open(target)?);
            volume.with_context(|| format!("cannot access '{target}'"))
        });
        let volumes: Vec<VolumeJson> = volumes.collect::<anyhow::Result<_>>()?;
        self.print_all(console, &volumes)
    }
}

/// Paths of devices of seeds, by the UUIDs of the devices. Other volumes may have grown from them.
#[derive(Debug, Default)]
struct Seeds(BTreeMap<Uuid, Vec<SeedDevice>>);

#[derive(Debug)]
struct SeedDevice {
    fsid: Uuid,
    path: PathBuf,
}

impl Seeds {
    /// Adds those that are seeds.
    fn add(&mut self, found: &[FoundDevice]) {
        for device in found.iter().filter(|device| device.is_seed()) {
            let uuid = device.superblock.dev_item.uuid;
            self.0.entry(uuid).or_default().push(SeedDevice {
                fsid: device.fsid,
                path: device.path.clone(),
            });
        }
    }

    /// Returns the devices of other volumes than this one. None is guessed of several that are clones of each other.
    fn of_others(&self, fsid: Uuid) -> Vec<&Path> {
        let of_others = self
            .0
            .values()
            .filter_map(|clones| match clones.as_slice() {
                [seed] if seed.fsid != fsid => Some(seed.path.as_path()),
                _ => None,
            });
        of_others.collect()
    }
}

/// Returns the devices of a volume by number. A device that was away for a while does not count beside its successor.
fn newest_by_devid(found: &[FoundDevice]) -> BTreeMap<u64, &FoundDevice> {
    let mut by_devid: BTreeMap<u64, &FoundDevice> = BTreeMap::new();
    for device in found {
        let known = by_devid.entry(device.devid).or_insert(device);
        if device.generation > known.generation {
            *known = device;
        }
    }
    by_devid
}

/// Describes a volume by its superblocks, so that it may be in use.
fn describe(fsid: Uuid, own: &BTreeMap<u64, &FoundDevice>) -> anyhow::Result<VolumeJson> {
    let newest = own.values().max_by_key(|device| device.generation);
    let newest = newest.with_context(|| format!("volume {fsid} has no device"))?;
    let devices = own.values().map(|device| {
        let item = &device.superblock.dev_item;
        DeviceJson {
            devid: device.devid,
            size: item.total_bytes.get(),
            used: item.bytes_used.get(),
            path: Some(device.path.to_string_lossy().into_owned()),
        }
    });
    Ok(VolumeJson::new(fsid, &newest.superblock, devices.collect()))
}

/// Describes a volume of which some devices are seeds, by its chunk tree. None if no seed is its own, or it cannot be
/// read.
fn describe_grown(
    fsid: Uuid,
    own: &BTreeMap<u64, &FoundDevice>,
    seeds: &Seeds,
) -> Option<VolumeJson> {
    let newest = own.values().max_by_key(|device| device.generation)?;
    // The volume may have lost an older one.
    let as_new = own
        .values()
        .filter(|device| device.generation == newest.generation);
    let seeds = seeds.of_others(fsid);
    if seeds.is_empty() || as_new.count() as u64 >= newest.num_devices {
        return None;
    }
    let own_paths: Vec<&Path> = own.values().map(|device| device.path.as_path()).collect();
    let mut opened = peek(&own_paths, &seeds);
    if opened.is_none() {
        // One of the seeds may have gone since it was found.
        let still_there = seeds.iter().copied().filter(|seed| {
            let found = scan(&[seed.to_path_buf()]);
            found.iter().any(FoundDevice::is_seed)
        });
        let still_there: Vec<&Path> = still_there.collect();
        if still_there.len() < seeds.len() {
            opened = peek(&own_paths, &still_there);
        }
    }
    let mut volume = describe_open(&opened?);
    // Only mounts are shown with lines for devices that are missing, by btrfs-progs as well.
    volume.devices.retain(|device| device.path.is_some());
    let mut devids = volume.devices.iter().map(|device| device.devid);
    devids
        .any(|devid| !own.contains_key(&devid))
        .then_some(volume)
}

/// Opens a volume without locks, as of its last commit. Seeds that cannot be opened are passed over.
fn peek(own: &[&Path], seeds: &[&Path]) -> Option<Volume> {
    let device = |path: &&Path| -> Option<(PathBuf, Arc<dyn BlockDevice>)> {
        let device = FileDevice::peek(path).ok()?;
        Some((path.to_path_buf(), Arc::new(device)))
    };
    let mut devices = own.iter().map(device).collect::<Option<Vec<_>>>()?;
    devices.extend(seeds.iter().filter_map(device));
    // A log changes no devices, and may be damaged.
    let builder = Volume::builder().as_committed().degraded(true);
    let builder = builder.limit_memory(memory_limit());
    // Superblocks are shown without warnings as well, also of devices that are in use.
    let opened = with_default(NoSubscriber::default(), || builder.open_devices(devices));
    opened.ok()
}

/// Describes an open volume as it is now: its superblocks may be older.
fn describe_open(volume: &Volume) -> VolumeJson {
    let allocations = volume.device_allocations();
    let used_on = |devid: u64| {
        let on_it = allocations.iter().filter(|a| a.device_id == devid);
        on_it
            .map(|allocation| allocation.device_bytes)
            .fold(0, u64::saturating_add)
    };
    let devices: Vec<DeviceJson> = volume
        .devices()
        .into_iter()
        .map(|device| DeviceJson {
            devid: device.id,
            size: device.total_bytes,
            used: used_on(device.id),
            path: device.path.map(|path| path.to_string_lossy().into_owned()),
        })
        .collect();
    let volume = VolumeJson {
        label: label(volume.label().as_bytes()),
        uuid: volume.uuid().to_string(),
        total_devices: devices.len() as u64,
        bytes_used: volume.used_bytes(),
        missing: false,
        devices,
    };
    volume.in_order()
}
