//! `ubtrfs scrub status`: the running or the last scrub.

use std::io::Write;

use anyhow::Context;

use super::mounted::MountScrub;
use super::record::{DeviceRecord, Record};
use super::report::{ScrubJson, write_state};
use super::serving::Running;
use super::summary::{Limit, Shown, Style};
use super::target::fsid_of;
use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::quoting::Escaped;
use crate::presentation::units::LongUnits;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::Location;

/// Show the running or the last scrub
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// An image, a device, or a path in a mount
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Show each device
    #[arg(short = 'd')]
    by_device: bool,
    /// Print all counts instead of a summary
    #[arg(short = 'R')]
    raw_counts: bool,
    #[command(flatten)]
    units: LongUnits,
}

impl Status {
    pub(super) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let image = match self.location.session() {
            Some(session) => session.place(),
            None => self.location.image.as_path(),
        };
        if let Some((asked, devid)) = Asked::mount_of_device(image) {
            let mount = MountScrub::new(asked, Some(devid))?;
            return self.show_mount(console, &mount);
        }
        let fsid = fsid_of(image)?;
        let found = ubtrfs::scan_with_siblings(&[image]);
        let volume = found.into_iter().find(|of| of.uuid.to_string() == fsid);
        let devices = volume.map(|volume| {
            let devices = volume.devices.iter();
            let named = devices.map(|of| (of.id, Escaped::of(&of.path).to_string()));
            named.collect::<Vec<_>>()
        });
        self.show(console, &fsid, devices.unwrap_or_default(), None)
    }

    fn show_mount(&self, console: &mut Console, mount: &MountScrub) -> anyhow::Result<()> {
        self.show(console, &mount.fsid, mount.devices.clone(), Some(mount))
    }

    fn show(
        &self,
        console: &mut Console,
        fsid: &str,
        devices: Vec<(u64, String)>,
        mount: Option<&MountScrub>,
    ) -> anyhow::Result<()> {
        let running = Running::find(fsid);
        let is_running = running.is_some();
        let mut record = match running {
            Some(running) => running.record,
            None => Record::read(fsid).context("cannot read the record of the last scrub")?,
        };
        let devices = known(devices, &record);
        if let Some(mount) = mount {
            for (id, device) in &mut record.0 {
                device.total_bytes = device.total_bytes.max(mount.used_bytes(*id));
            }
        }
        if console.is_json() {
            let json = ScrubJson::new(fsid, &devices, &record, is_running, None);
            return Ok(json::write_map(&mut console.out, "scrub-status", &json)?);
        }
        writeln!(console.out, "UUID:             {fsid}")?;
        let style = Style {
            is_raw: self.raw_counts,
            units: self.units.units(),
        };
        let shown = |device: DeviceRecord, id: Option<u64>| Shown {
            device,
            is_running: is_running && !device.is_finished,
            limit: match (mount, id) {
                (None, _) => Limit::Unlimited,
                (Some(mount), None) => mount.shown_limit(),
                (Some(mount), Some(id)) => match mount.limit(id) {
                    0 => Limit::Unlimited,
                    limit => Limit::Bytes(limit),
                },
            },
            total: mount
                .filter(|_| id.is_none())
                .and_then(|mount| mount.total_bytes),
        };
        let state = if is_running { "status" } else { "history" };
        let by_device = self.by_device.then_some(state);
        Ok(write_state(
            &mut console.out,
            &devices,
            &record,
            by_device,
            shown,
            style,
        )?)
    }
}

/// Adds the devices that only the record has.
fn known(mut devices: Vec<(u64, String)>, record: &Record) -> Vec<(u64, String)> {
    if devices.is_empty() {
        let ids = record.0.keys();
        devices.extend(ids.map(|id| (*id, "missing".to_owned())));
    }
    devices
}

impl ByIoctls for Status {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        let mount = MountScrub::new(Asked::open(&self.location)?, None)?;
        self.show_mount(console, &mount)
    }
}
