//! `ubtrfs filesystem usage`: allocated, used and free space, in total and per device.
//!
//! The arithmetic follows btrfs-progs: "raw" counts bytes on devices, "logical" bytes of block groups.
//! RAID5/6 has no fixed ratio between them and is summed chunk by chunk.

use std::io::Write;

use anyhow::bail;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use ubtrfs::{BlockGroupKind, Volume};

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::profiles::{Allocation, GroupType, GroupUsage, multiple_profiles};
use crate::presentation::table::{Cell, Table, left, right};
use crate::presentation::units::{ShortUnits, Units};
use crate::volume_access::device_sizes::DeviceSizes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location};
use crate::volume_access::reason::Reasoned;

/// Less unallocated space is not counted as free, because it is too small for a chunk.
const MIN_UNALLOCATED: u64 = 16 << 20;
const WIDTH_HUMAN: usize = 10;
const WIDTH_OTHER: usize = 18;

/// Show in detail how space is allocated and used
#[derive(Debug, clap::Args)]
pub(crate) struct Usage {
    #[arg(required = true, value_name = "IMAGE")]
    locations: Vec<Location>,
    /// Show data in tabular format
    #[arg(short = 'T')]
    tabular: bool,
    #[command(flatten)]
    units: ShortUnits,
    #[command(flatten)]
    devices: DeviceOptions,
}

impl Usage {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.print(console, |location| {
            VolumeUsage::read(&self.devices.open(location)?)
        })
    }

    fn print(
        &self,
        console: &mut Console,
        usage_of: impl Fn(&Location) -> anyhow::Result<VolumeUsage>,
    ) -> anyhow::Result<()> {
        if console.is_json() {
            let mut list = json::JsonList::start(&mut console.out, "filesystem-usage")?;
            for location in &self.locations {
                let usage = usage_of(location)?;
                list.push(&mut console.out, &usage)?;
            }
            return Ok(list.end(&mut console.out)?);
        }
        let units = self.units.units();
        for (index, location) in self.locations.iter().enumerate() {
            if index > 0 {
                writeln!(console.out)?;
            }
            let usage = usage_of(location)?;
            if usage.allocations.is_none() {
                console.warning(
                    "cannot read detailed chunk info, per-device usage will not be shown, run as root",
                );
            }
            usage.print_overall(&mut console.out, units)?;
            writeln!(console.out)?;
            if self.tabular {
                usage.print_table(&mut console.out, units)?
            } else {
                usage.print_linear(&mut console.out, units)?
            }
        }
        Ok(())
    }
}

impl ByIoctls for Usage {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        self.print(console, |location| {
            VolumeUsage::ask(&Asked::open(location)?)
        })
    }
}

struct VolumeUsage {
    /// Data, metadata and system, each by profile.
    infos: Vec<GroupUsage>,
    /// None if the caller may not know them.
    allocations: Option<Vec<Allocation>>,
    devices: Vec<DeviceSizes>,
    /// The bytes, and their used part.
    reserve: (u64, u64),
    statfs_available: u64,
}

/// Raw and logical bytes of one block group type.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    raw_chunks: u64,
    raw_used: u64,
    logical_chunks: u64,
}

impl Sums {
    fn ratio(&self) -> f64 {
        self.raw_chunks as f64 / self.logical_chunks as f64
    }
}

#[derive(Debug)]
struct Overall {
    size: u64,
    allocated: u64,
    unallocated: i64,
    missing: u64,
    slack: i64,
    used: u64,
    free_estimated: u64,
    free_min: u64,
    data_ratio: f64,
    metadata_ratio: f64,
}

impl VolumeUsage {
    fn read(volume: &Volume) -> anyhow::Result<VolumeUsage> {
        let space = volume.space().reason()?;
        let allocations = volume.device_allocations().into_iter();
        VolumeUsage {
            infos: space.block_groups.iter().map(GroupUsage::from).collect(),
            allocations: Some(allocations.map(Allocation::from).collect()),
            devices: DeviceSizes::of(volume),
            reserve: (space.reserve_bytes, 0),
            statfs_available: space.available_bytes,
        }
        .in_order()
    }

    /// Queries a mount.
    fn ask(asked: &Asked) -> anyhow::Result<VolumeUsage> {
        let spaces = asked.spaces()?;
        let allocations = asked.device_allocations()?;
        let has_parity = |info: &GroupUsage| info.group.profile.is_some_and(|p| p.parities() > 0);
        if allocations.is_none() && spaces.infos.iter().any(has_parity) {
            bail!("cannot read the space of RAID5 and RAID6: run as root");
        }
        VolumeUsage {
            infos: spaces.infos,
            allocations,
            devices: DeviceSizes::ask(asked)?,
            reserve: spaces.reserve,
            statfs_available: asked.available_bytes()?,
        }
        .in_order()
    }

    fn in_order(mut self) -> anyhow::Result<VolumeUsage> {
        self.infos.sort_by_key(|info| info.group.usage_rank());
        if self.devices.iter().all(|device| device.size == 0) {
            bail!("the volume has no device with a size");
        }
        Ok(self)
    }

    fn allocations(&self) -> &[Allocation] {
        self.allocations.as_deref().unwrap_or_default()
    }

    fn sums_of(&self, is_meant: impl Fn(GroupType) -> bool, max_ratio: &mut f64) -> Sums {
        let mut sums = Sums::default();
        for info in self.infos.iter().filter(|info| is_meant(info.group)) {
            let Some(profile) = info.group.profile else {
                continue;
            };
            sums.logical_chunks = sums.logical_chunks.saturating_add(info.total);
            if profile.parities() > 0 {
                let filled = info.used as f64 / info.total.max(1) as f64;
                for allocation in self.allocations().iter().filter(|a| a.group == info.group) {
                    let parities = profile.parities() as u64;
                    let data = allocation.stripes.saturating_sub(parities).max(1);
                    *max_ratio = max_ratio.max(allocation.stripes as f64 / data as f64);
                    let size = allocation.bytes;
                    let used = (size as f64 * filled) as u64;
                    sums.raw_chunks = sums.raw_chunks.saturating_add(size);
                    sums.raw_used = sums.raw_used.saturating_add(used);
                }
            } else {
                let copies = profile.copies() as u64;
                *max_ratio = max_ratio.max(copies as f64);
                sums.raw_chunks = sums
                    .raw_chunks
                    .saturating_add(info.total.saturating_mul(copies));
                sums.raw_used = sums
                    .raw_used
                    .saturating_add(info.used.saturating_mul(copies));
            }
        }
        sums
    }

    fn is_mixed(&self) -> bool {
        let mixed = Some(BlockGroupKind::Mixed);
        self.infos.iter().any(|info| info.group.kind == mixed)
    }

    fn overall(&self) -> Overall {
        let mut max_ratio = 1.0;
        let data = self.sums_of(GroupType::holds_data, &mut max_ratio);
        let metadata = self.sums_of(GroupType::holds_metadata, &mut max_ratio);
        let is_system = |group: GroupType| group.kind == Some(BlockGroupKind::System);
        let system = self.sums_of(is_system, &mut max_ratio);
        let mixed = self.is_mixed();
        let mut allocated = data.raw_chunks.saturating_add(system.raw_chunks);
        let mut used = data.raw_used.saturating_add(system.raw_used);
        if !mixed {
            allocated = allocated.saturating_add(metadata.raw_chunks);
            used = used.saturating_add(metadata.raw_used);
        }
        let size = self
            .devices
            .iter()
            .fold(0u64, |sum, d| sum.saturating_add(d.size));
        let unallocated = size.wrapping_sub(allocated) as i64;
        let data_ratio = data.ratio();
        let free_data = data.raw_chunks.saturating_sub(data.raw_used);
        let mut free = (free_data as f64 / data_ratio) as u64;
        if mixed {
            free = free.saturating_sub(self.reserve.0);
        }
        let (mut free_estimated, mut free_min) = (free, free);
        if let Ok(unallocated) = u64::try_from(unallocated)
            && unallocated >= MIN_UNALLOCATED
        {
            free_estimated = (free_estimated as f64 + unallocated as f64 / data_ratio) as u64;
            free_min = (free_min as f64 + unallocated as f64 / max_ratio) as u64;
        }
        let missing = self.devices.iter().filter(|device| device.is_missing());
        let slack = self.devices.iter().map(DeviceSizes::slack);
        Overall {
            size,
            allocated,
            unallocated,
            missing: missing.fold(0, |sum, device| sum.saturating_add(device.size)),
            slack: slack.fold(0, i64::saturating_add),
            used,
            free_estimated,
            free_min,
            data_ratio,
            metadata_ratio: if mixed { data_ratio } else { metadata.ratio() },
        }
    }

    fn print_overall(&self, out: &mut dyn Write, units: Units) -> anyhow::Result<()> {
        let overall = self.overall();
        let width = if units.is_default() {
            WIDTH_HUMAN
        } else {
            WIDTH_OTHER
        };
        let size = |bytes| units.size(bytes);
        writeln!(out, "Overall:")?;
        let mut line = |label: &str, tabs: &str, value: &str, rest: &str| {
            writeln!(out, "    {label}:{tabs}{value:>width$}{rest}")
        };
        line("Device size", "\t\t", &size(overall.size), "")?;
        line("Device allocated", "\t\t", &size(overall.allocated), "")?;
        line(
            "Device unallocated",
            "\t\t",
            &units.signed(overall.unallocated),
            "",
        )?;
        line("Device missing", "\t\t", &size(overall.missing), "")?;
        line("Device slack", "\t\t", &units.signed(overall.slack), "")?;
        line("Used", "\t\t\t", &size(overall.used), "")?;
        let min = format!("\t(min: {})", size(overall.free_min));
        line(
            "Free (estimated)",
            "\t\t",
            &size(overall.free_estimated),
            &min,
        )?;
        line(
            "Free (statfs, df)",
            "\t\t",
            &size(self.statfs_available),
            "",
        )?;
        line(
            "Data ratio",
            "\t\t\t",
            &format!("{:.2}", overall.data_ratio),
            "",
        )?;
        line(
            "Metadata ratio",
            "\t\t",
            &format!("{:.2}", overall.metadata_ratio),
            "",
        )?;
        let (reserve, used) = self.reserve;
        let used = format!("\t(used: {})", size(used));
        line("Global reserve", "\t\t", &size(reserve), &used)?;
        let kinds: Vec<&str> = multiple_profiles(&self.infos)
            .iter()
            .map(|(kind, _)| *kind)
            .collect();
        if kinds.is_empty() {
            line("Multiple profiles", "\t\t", "no", "")?
        } else {
            let kinds = format!("\t({})", kinds.join(", ").to_lowercase());
            line("Multiple profiles", "\t\t", "yes", &kinds)?;
        }
        Ok(())
    }

    /// Returns the bytes that the chunks of `group` use on a device.
    fn allocated_on(&self, device: &DeviceSizes, group: GroupType) -> u64 {
        let on_it = |a: &&Allocation| a.devid == device.devid && a.group == group;
        let sizes = self.allocations().iter().filter(on_it);
        sizes.fold(0, |sum, a| sum.saturating_add(a.bytes))
    }

    fn unallocated_on(&self, device: &DeviceSizes) -> Option<i64> {
        let allocations = self.allocations.as_ref()?;
        let on_it = allocations.iter().filter(|a| a.devid == device.devid);
        let allocated = on_it.fold(0u64, |sum, a| sum.saturating_add(a.bytes));
        Some(device.size.wrapping_sub(allocated) as i64)
    }

    fn print_linear(&self, out: &mut dyn Write, units: Units) -> anyhow::Result<()> {
        for info in &self.infos {
            writeln!(
                out,
                "{}: Size:{}, Used:{} ({:.2}%)",
                info.group,
                units.size(info.total),
                units.size(info.used),
                100.0 * info.used as f32 / (info.total.saturating_add(1)) as f32
            )?;
            for device in &self.devices {
                let bytes = self.allocated_on(device, info.group);
                if bytes > 0 {
                    writeln!(out, "   {}\t{:>10}", device.shown(), units.size(bytes))?;
                }
            }
            writeln!(out)?;
        }
        if self.allocations.is_some() {
            writeln!(out, "Unallocated:")?;
        }
        for device in &self.devices {
            if let Some(unallocated) = self.unallocated_on(device) {
                let unallocated = units.signed(unallocated);
                writeln!(out, "   {}\t{unallocated:>10}", device.shown())?;
            }
        }
        Ok(())
    }

    fn print_table(&self, out: &mut dyn Write, units: Units) -> anyhow::Result<()> {
        let columns = self.infos.len() + 5;
        let mut table = Table::default();
        let mut kinds = vec![Cell::Empty, Cell::Empty];
        kinds.extend(self.infos.iter().map(|info| left(info.group.kind_name())));
        table.push(kinds);
        let mut heads = vec![left("Id"), left("Path")];
        heads.extend(
            self.infos
                .iter()
                .map(|info| left(info.group.profile_name())),
        );
        heads.extend([left("Unallocated"), left("Total"), left("Slack")]);
        table.push(heads);
        table.rule(columns);
        let (mut unallocated, mut size, mut slack) = (Some(0i64), 0u64, 0i64);
        let or_dash = |unallocated: Option<i64>| match unallocated {
            Some(bytes) => right(units.signed(bytes)),
            None => right("-"),
        };
        for device in &self.devices {
            let mut row = vec![right(device.devid), left(device.shown())];
            for info in &self.infos {
                row.push(match self.allocated_on(device, info.group) {
                    0 => right("-"),
                    bytes => right(units.size(bytes)),
                });
            }
            let unused = self.unallocated_on(device);
            row.push(or_dash(unused));
            row.push(right(units.size(device.size)));
            row.push(match device.slack() {
                slack if slack > 0 => right(units.signed(slack)),
                _ => right("-"),
            });
            table.push(row);
            unallocated = unallocated
                .zip(unused)
                .map(|(sum, unused)| sum.saturating_add(unused));
            size = size.saturating_add(device.size);
            slack = slack.saturating_add(device.slack());
        }
        table.rule(columns);
        let mut total = vec![Cell::Empty, left("Total")];
        total.extend(self.infos.iter().map(|info| right(units.size(info.total))));
        total.push(or_dash(unallocated));
        total.push(right(units.size(size)));
        total.push(right(units.signed(slack)));
        table.push(total);
        let mut used = vec![Cell::Empty, left("Used")];
        used.extend(self.infos.iter().map(|info| right(units.size(info.used))));
        table.push(used);
        Ok(table.write(out)?)
    }
}

impl Serialize for VolumeUsage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let overall = self.overall();
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("device-size", &overall.size)?;
        map.serialize_entry("device-allocated", &overall.allocated)?;
        map.serialize_entry("device-unallocated", &overall.unallocated)?;
        map.serialize_entry("device-missing", &overall.missing)?;
        map.serialize_entry("device-slack", &overall.slack)?;
        map.serialize_entry("used", &overall.used)?;
        map.serialize_entry("free-estimated", &overall.free_estimated)?;
        map.serialize_entry("free-estimated-min", &overall.free_min)?;
        map.serialize_entry("free-statfs", &self.statfs_available)?;
        map.serialize_entry("data-ratio", &overall.data_ratio)?;
        map.serialize_entry("metadata-ratio", &overall.metadata_ratio)?;
        map.serialize_entry("global-reserve", &self.reserve.0)?;
        let groups = self.infos.iter().map(|info| GroupJson(self, info));
        map.serialize_entry("block-groups", &groups.collect::<Vec<_>>())?;
        let devices = self.devices.iter().map(|device| DeviceJson {
            devid: device.devid,
            path: device.shown(),
            size: device.size,
            unallocated: self.unallocated_on(device),
        });
        map.serialize_entry("devices", &devices.collect::<Vec<_>>())?;
        map.end()
    }
}

/// A kind of block groups in JSON.
struct GroupJson<'a>(&'a VolumeUsage, &'a GroupUsage);

impl Serialize for GroupJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let GroupJson(volume, info) = self;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("bg-type", info.group.kind_name())?;
        map.serialize_entry("bg-profile", info.group.profile_name())?;
        map.serialize_entry("total", &info.total)?;
        map.serialize_entry("used", &info.used)?;
        let devices = volume.devices.iter().map(|device| AllocationJson {
            devid: device.devid,
            allocated: volume.allocated_on(device, info.group),
        });
        let devices: Vec<_> = devices.filter(|device| device.allocated > 0).collect();
        map.serialize_entry("devices", &devices)?;
        map.end()
    }
}

#[derive(Debug, Serialize)]
struct AllocationJson {
    devid: u64,
    allocated: u64,
}

#[derive(Debug, Serialize)]
struct DeviceJson {
    devid: u64,
    path: String,
    size: u64,
    unallocated: Option<i64>,
}
