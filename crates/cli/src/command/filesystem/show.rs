//! `ubtrfs filesystem show`: volumes and their devices.
//!
//! Devices that are named or found by a scan are grouped by volume. Without an argument all block devices of
//! the machine are scanned.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::io::Errno;
use serde::Serialize;
use ubtrfs::{
    DeviceName, FoundVolume, Uuid, Volume, scan, scan_devices, scan_layers, scan_with_siblings,
};
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
    /// Images, devices, directories to search, or the UUID or label of a volume among the block devices
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

/// The text of btrfs-progs for a missing device.
const MISSING: &str = "size 0 used 0 path <missing disk> MISSING";

#[derive(Debug, Serialize)]
struct VolumeJson {
    label: Option<String>,
    uuid: String,
    total_devices: u64,
    bytes_used: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    made_by: Option<String>,
    missing: bool,
    devices: Vec<DeviceJson>,
}

#[derive(Debug, Serialize)]
struct DeviceJson {
    devid: u64,
    size: u64,
    used: u64,
    path: Option<String>,
    /// Whether it is mounted and its path does not exist.
    #[serde(skip)]
    is_gone: bool,
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
        if let Some(made_by) = &volume.made_by {
            writeln!(out, "\tmade by {made_by}")?;
        }
        for device in &volume.devices {
            let devid = device.devid;
            let Some(path) = &device.path else {
                writeln!(out, "\tdevid {devid:>4} {MISSING}")?;
                continue;
            };
            if device.is_gone {
                let path = Escaped::of(path);
                writeln!(out, "\tdevid {devid:>4} size 0 used 0 path {path} MISSING")?;
                continue;
            }
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

    /// Returns the requested volumes, in the order of their first device found.
    fn volumes(&self) -> anyhow::Result<Vec<VolumeJson>> {
        let mut places: Vec<PathBuf> = Vec::new();
        let mut filters: Vec<String> = Vec::new();
        let mut volumes = Vec::new();
        for target in &self.targets {
            if target.session().is_some() {
                volumes.push(describe_open(&self.devices.open(target)?));
                continue;
            }
            for image in target.images() {
                if image.as_path().exists() {
                    places.push(image.as_path().to_owned())
                } else {
                    filters.push(image.to_string())
                }
            }
        }
        if !volumes.is_empty() {
            return Ok(volumes);
        }
        let named = !places.is_empty();
        let is_dir = |place: &&PathBuf| place.is_dir();
        let mut disks: Vec<PathBuf> = places.iter().filter(|p| !is_dir(p)).cloned().collect();
        for device in self.devices.devices() {
            let path = device.path()?.to_owned();
            disks.push(path.clone());
            places.push(path);
        }
        places.extend(self.devices.scan_places().iter().cloned());
        if !named || self.all_devices {
            places.push(PathBuf::from("/dev"));
        }
        let mut found = if named && self.devices.scan_places().is_empty() {
            scan_with_siblings(&places)
        } else {
            scan(&places)
        };
        if !disks.is_empty() {
            // If nothing is found, opening the volume returns the reason.
            let layered = scan_layers(&disks, self.devices.scan_places()).unwrap_or_default();
            // A member of a mirror also looks like a device of the volume.
            let on_layers: BTreeSet<Uuid> = layered.iter().map(|volume| volume.uuid).collect();
            found.retain(|volume| !on_layers.contains(&volume.uuid));
            found.extend(layered);
        }
        if named && found.is_empty() {
            // Opening it returns the reason.
            let names: Vec<_> = places.iter().map(DeviceName::from).collect();
            self.devices.open_all(&names)?;
        }
        if self.mounted {
            let asked: BTreeSet<Uuid> = found.iter().map(|volume| volume.uuid).collect();
            found = mounted_volumes()?;
            found.retain(|volume| !named || asked.contains(&volume.uuid));
            if named && found.is_empty() {
                bail!("the volume is not mounted");
            }
        }
        let found = found.iter().map(VolumeJson::found);
        let is_asked = |volume: &VolumeJson| {
            filters.is_empty() || filters.iter().any(|filter| volume.is_called(filter))
        };
        volumes.extend(found.filter(is_asked));
        if volumes.is_empty()
            && let Some(filter) = filters.first()
        {
            bail!("not a volume, image or device: '{}'", Escaped::of(filter));
        }
        Ok(volumes)
    }
}

/// Returns the volumes mounted by the kernel's btrfs or ubtrfs.
fn mounted_volumes() -> anyhow::Result<Vec<FoundVolume>> {
    let table = mount_table().context("cannot read which file systems are mounted")?;
    let of_btrfs = |entry: &TableEntry| entry.is_ours() || entry.fs_type == "btrfs";
    let mounts = table.into_iter().filter(of_btrfs);
    let paths = mounts.map(|entry| {
        if entry.is_ours() {
            entry.volume_path()
        } else {
            entry.source
        }
    });
    let sources: BTreeSet<PathBuf> = paths.collect();
    let mut places: Vec<PathBuf> = sources.into_iter().filter(|path| path.exists()).collect();
    let named = scan_devices(&places);
    let mounted: BTreeSet<Uuid> = named.iter().map(|device| device.volume).collect();
    // The mount table names only one device per volume.
    places.push(PathBuf::from("/dev"));
    let mut found = scan_with_siblings(&places);
    found.retain(|volume| mounted.contains(&volume.uuid));
    Ok(found)
}

impl VolumeJson {
    /// Describes a volume from its superblocks, so it may be in use.
    fn found(volume: &FoundVolume) -> VolumeJson {
        let devices = volume.devices.iter().map(|device| DeviceJson {
            devid: device.id,
            size: device.total_bytes,
            used: device.allocated_bytes,
            path: Some(device.path.to_string_lossy().into_owned()),
            is_gone: false,
        });
        VolumeJson {
            label: label(volume.label.as_bytes()),
            uuid: volume.uuid.to_string(),
            total_devices: volume.total_devices,
            bytes_used: volume.used_bytes,
            made_by: volume.made_by.clone(),
            missing: false,
            devices: devices.collect(),
        }
        .in_order()
    }

    fn in_order(mut self) -> VolumeJson {
        self.devices.sort_by_key(|device| device.devid);
        let present = self.devices.iter().filter(|device| device.path.is_some());
        self.missing = (present.count() as u64) < self.total_devices;
        self
    }

    /// Queries a mount for its volume.
    fn ask(asked: &Asked) -> Result<VolumeJson, Errno> {
        let info = asked.volume_info()?;
        let used = asked.spaces()?.infos.into_iter().map(|info| info.used);
        let devices = asked.devices()?;
        // The kernel's count excludes the devices of seed volumes.
        let total_devices = info.num_devices.get().max(devices.len() as u64);
        let devices = devices.into_iter().map(|device| {
            let path = text(&device.path);
            let there = Path::new(OsStr::from_bytes(path));
            DeviceJson {
                // Relative paths depend on the directory in which the server was started.
                is_gone: there.is_absolute() && there.try_exists().is_ok_and(|exists| !exists),
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
            made_by: None,
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

/// Describes the current state of an open volume, whose superblocks may be older.
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
            is_gone: device.path.as_ref().is_some_and(|path| {
                path.is_absolute() && path.try_exists().is_ok_and(|exists| !exists)
            }),
            path: device.path.map(|path| path.to_string_lossy().into_owned()),
        })
        .collect();
    let volume = VolumeJson {
        label: label(volume.label().as_bytes()),
        uuid: volume.uuid().to_string(),
        total_devices: devices.len() as u64,
        bytes_used: volume.used_bytes(),
        made_by: volume.made_by(),
        missing: false,
        devices,
    };
    volume.in_order()
}
