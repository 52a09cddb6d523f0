//! `ubtrfs device stats`: the error counts of devices.
//!
//! For a mounted device or image, only that device is queried, through ioctls on the mount.

use std::io::Write;

use anyhow::Context;
use serde::Serialize;
use ubtrfs::{DeviceErrors, Volume};

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::table::{Table, left, right};
use crate::volume_access::changes::Changes;
use crate::volume_access::device_sizes::DeviceSizes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

const NAMES: [&str; 5] = [
    "write_io_errs",
    "read_io_errs",
    "flush_io_errs",
    "corruption_errs",
    "generation_errs",
];
const HEADS: [&str; 5] = [
    "Write errors",
    "Read errors",
    "Flush errors",
    "Corruption errors",
    "Generation errors",
];
/// The exit code of btrfs-progs if errors were counted.
const ERRORS_COUNTED: u8 = 64;

/// Show the errors of devices that were counted
///
/// Of a device that is mounted, its own are shown alone. A device with errors of writes, flushes or generations is read
/// last.
#[derive(Debug, clap::Args)]
pub(crate) struct Stats {
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// End with exit code 64 if a number is not 0
    #[arg(short, long)]
    check: bool,
    /// Print a table
    #[arg(short = 'T')]
    tabular: bool,
    /// Count from 0 again
    #[arg(short = 'z', long)]
    reset: bool,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Debug, Serialize)]
struct StatsJson {
    device: String,
    devid: u64,
    write_io_errs: u64,
    read_io_errs: u64,
    flush_io_errs: u64,
    corruption_errs: u64,
    generation_errs: u64,
}

impl Stats {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if self.location.session().is_none()
            && let Some((asked, devid)) = Asked::mount_of_device(self.location.image.as_path())
        {
            let mut devices = DeviceSizes::ask(&asked)?;
            devices.retain(|device| device.devid == devid);
            return self.print_asked(console, &asked, devices);
        }
        if !self.reset {
            return self.print_opened(console, &self.devices.open(&self.location)?);
        }
        let options = VolumeOptions::of_devices(&self.devices);
        let mut changes = Changes::new(&options);
        let target = changes.open(&self.location)?;
        self.print_opened(console, &target.volume)?;
        target.volume.reset_device_errors().reason()?;
        changes.commit()
    }

    fn print_opened(&self, console: &mut Console, volume: &Volume) -> anyhow::Result<()> {
        let errors = volume.device_errors().reason()?;
        self.print(console, DeviceSizes::of(volume), |devid| {
            let mut errors = errors.iter();
            let errors = errors.find(|errors| errors.device_id == devid);
            Ok(errors.map_or([0; 5], counts))
        })
    }

    fn print_asked(
        &self,
        console: &mut Console,
        asked: &Asked,
        devices: Vec<DeviceSizes>,
    ) -> anyhow::Result<()> {
        self.print(console, devices, |devid| {
            let counted = asked.device_errors(devid, self.reset);
            counted.with_context(|| format!("cannot get the errors of device {devid}"))
        })
    }

    fn print(
        &self,
        console: &mut Console,
        devices: Vec<DeviceSizes>,
        counts: impl Fn(u64) -> anyhow::Result<[u64; 5]>,
    ) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        for device in devices {
            let devid = device.devid;
            let name = if device.is_missing() {
                format!("devid:{devid}")
            } else {
                device.shown()
            };
            rows.push((name, devid, counts(devid)?));
        }
        if self.check && rows.iter().any(|(.., counts)| *counts != [0; 5]) {
            console.end_with(ERRORS_COUNTED);
        }
        if console.is_json() {
            let rows = rows.into_iter().map(to_json);
            return Ok(json::write_list(&mut console.out, "device-stats", rows)?);
        }
        if self.tabular {
            return Ok(table(&rows).write(&mut console.out)?);
        }
        for (device, _, counts) in rows {
            for (name, count) in NAMES.iter().zip(counts) {
                writeln!(console.out, "[{device}].{name:<16} {count}")?;
            }
        }
        Ok(())
    }
}

impl ByIoctls for Stats {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        let devices = DeviceSizes::ask(&asked)?;
        self.print_asked(console, &asked, devices)
    }
}

/// Returns the numbers in the order of `NAMES`.
fn counts(errors: &DeviceErrors) -> [u64; 5] {
    [
        errors.write_errors,
        errors.read_errors,
        errors.flush_errors,
        errors.corruption_errors,
        errors.generation_errors,
    ]
}

fn to_json((device, devid, counts): (String, u64, [u64; 5])) -> StatsJson {
    let [write, read, flush, corruption, generation] = counts;
    StatsJson {
        device,
        devid,
        write_io_errs: write,
        read_io_errs: read,
        flush_io_errs: flush,
        corruption_errs: corruption,
        generation_errs: generation,
    }
}

fn table(rows: &[(String, u64, [u64; 5])]) -> Table {
    let mut table = Table::default();
    let mut heads = vec![left("Id"), left("Path")];
    heads.extend(HEADS.into_iter().map(left));
    let columns = heads.len();
    table.push(heads);
    table.rule(columns);
    for (device, devid, counts) in rows {
        let mut row = vec![right(devid), left(device)];
        row.extend(counts.iter().map(right));
        table.push(row);
    }
    table
}
