//! `ubtrfs device usage`: the allocations on each device.

use std::io::Write;

use serde::Serialize;
use ubtrfs::Profile;

use crate::presentation::console::Console;
use crate::presentation::json::JsonList;
use crate::presentation::profiles::{Allocation, GroupUsage, warn_multiple_profiles};
use crate::presentation::units::{ShortUnits, Units};
use crate::volume_access::device_sizes::DeviceSizes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location};
use crate::volume_access::reason::Reasoned;

/// Show what is allocated on each device
#[derive(Debug, clap::Args)]
pub(crate) struct Usage {
    #[arg(required = true, value_name = "IMAGE")]
    locations: Vec<Location>,
    #[command(flatten)]
    units: ShortUnits,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct DeviceJson {
    devid: u64,
    path: String,
    device_size: u64,
    device_slack: i64,
    allocations: Vec<AllocationJson>,
    unallocated: Option<i64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct AllocationJson {
    bg_type: &'static str,
    bg_profile: &'static str,
    num_stripes: u64,
    allocated: u64,
}

/// The displayed properties of a volume.
struct VolumeUsage {
    infos: Vec<GroupUsage>,
    devices: Vec<DeviceSizes>,
    /// None if the caller may not know them.
    allocations: Option<Vec<Allocation>>,
}

impl Usage {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.print(console, |location| {
            let volume = self.devices.open(location)?;
            let space = volume.space().reason()?;
            let allocations = volume.device_allocations().into_iter();
            Ok(VolumeUsage {
                infos: space.block_groups.iter().map(GroupUsage::from).collect(),
                devices: DeviceSizes::of(&volume),
                allocations: Some(allocations.map(Allocation::from).collect()),
            })
        })
    }

    fn print(
        &self,
        console: &mut Console,
        usage_of: impl Fn(&Location) -> anyhow::Result<VolumeUsage>,
    ) -> anyhow::Result<()> {
        let units = self.units.units();
        let mut list = if console.is_json() {
            Some(JsonList::start(&mut console.out, "device-usage")?)
        } else {
            None
        };
        for (index, location) in self.locations.iter().enumerate() {
            if index > 0 && list.is_none() {
                writeln!(console.out)?;
            }
            let usage = usage_of(location)?;
            warn_multiple_profiles(console, &usage.infos);
            for device in &usage.devices {
                let on_it = |a: &&Allocation| a.devid == device.devid;
                let allocations = usage.allocations.as_ref();
                let allocations = allocations.map(|all| all.iter().filter(on_it).collect());
                match &mut list {
                    Some(list) => list.push(&mut console.out, &to_json(device, allocations))?,
                    None => print(&mut console.out, units, device, allocations)?,
                }
            }
        }
        match list {
            Some(list) => Ok(list.end(&mut console.out)?),
            None => Ok(()),
        }
    }
}

impl ByIoctls for Usage {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        self.print(console, |location| {
            let asked = Asked::open(location)?;
            Ok(VolumeUsage {
                infos: asked.spaces()?.infos,
                devices: DeviceSizes::ask(&asked)?,
                allocations: asked.device_allocations()?,
            })
        })
    }
}

fn unallocated(device: &DeviceSizes, allocations: &[&Allocation]) -> i64 {
    let sizes = allocations.iter().map(|allocation| allocation.bytes);
    let allocated = sizes.fold(0u64, u64::saturating_add);
    device.size.wrapping_sub(allocated) as i64
}

fn print(
    out: &mut dyn Write,
    units: Units,
    device: &DeviceSizes,
    allocations: Option<Vec<&Allocation>>,
) -> std::io::Result<()> {
    let unallocated = match &allocations {
        Some(allocations) => units.signed(unallocated(device, allocations)),
        None => "N/A".to_owned(),
    };
    writeln!(out, "{}, ID: {}", device.shown(), device.devid)?;
    let mut line = |label: &str, size: String| writeln!(out, "   {label:<22}{size:>10}");
    line("Device size:", units.size(device.device_size))?;
    line("Device slack:", units.signed(device.slack()))?;
    for allocation in allocations.unwrap_or_default() {
        let name = allocation.group;
        let label = if name.profile.is_some_and(Profile::is_striped) {
            format!("{name}/{}:", allocation.stripes)
        } else {
            format!("{name}:")
        };
        line(&label, units.size(allocation.bytes))?;
    }
    line("Unallocated:", unallocated)?;
    writeln!(out)
}

fn to_json(device: &DeviceSizes, allocations: Option<Vec<&Allocation>>) -> DeviceJson {
    let unallocated = allocations
        .as_ref()
        .map(|allocations| unallocated(device, allocations));
    let allocations = allocations.unwrap_or_default();
    let allocated = allocations.iter().map(|allocation| AllocationJson {
        bg_type: allocation.group.kind_name(),
        bg_profile: allocation.group.profile_name(),
        num_stripes: allocation.stripes,
        allocated: allocation.bytes,
    });
    DeviceJson {
        devid: device.devid,
        path: device.shown(),
        device_size: device.device_size,
        device_slack: device.slack(),
        allocations: allocated.collect(),
        unallocated,
    }
}
