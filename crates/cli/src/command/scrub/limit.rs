//! `ubtrfs scrub limit`: the speed limits of the devices of a mount of the kernel's btrfs.

use std::io::{self, Write};

use anyhow::{Context, bail};
use serde::Serialize;

use super::mounted::MountScrub;
use super::target;
use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::size_suffix::parse_size;
use crate::presentation::units::{LongUnits, Units};
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::Location;

/// Show or set the scrub limits of the devices of a mount
///
/// The kernel keeps them until it unmounts the volume. Scrubs of images and of mounts of ubtrfs take a limit when they start:
/// 'scrub start --limit'.
#[derive(Debug, clap::Args)]
pub(crate) struct Limit {
    /// A path in a mount
    #[arg(value_name = "PATH")]
    location: Location,
    /// Set the limit of all devices
    #[arg(short, long, requires = "limit", conflicts_with = "devid")]
    all: bool,
    /// Set the limit of this device
    #[arg(short, long, value_name = "DEVID", requires = "limit")]
    devid: Option<u64>,
    /// Bytes per second; may end with K, M, G, T, P or E; 0 for no limit
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    limit: Option<u64>,
    #[command(flatten)]
    units: LongUnits,
}

#[derive(Debug, Serialize)]
struct LimitJson {
    devid: u64,
    limit: u64,
    path: String,
}

impl Limit {
    pub(super) fn run(&self, _: &mut Console) -> anyhow::Result<()> {
        bail!(
            "'{}' is not in a mount: give the limit to 'scrub start --limit'",
            target::shown(&self.location)
        )
    }

    fn set(&self, console: &mut Console, mount: &MountScrub, limit: u64) -> anyhow::Result<()> {
        let devices = mount.devices.iter();
        let wanted = devices.filter(|(id, _)| self.all || self.devid == Some(*id));
        let wanted: Vec<u64> = wanted.map(|(id, _)| *id).collect();
        if wanted.is_empty() {
            match self.devid {
                Some(id) => bail!("there is no device {id}"),
                None => bail!("a limit needs a device (--devid) or all (--all)"),
            }
        }
        for id in wanted {
            let before = mount.limit(id);
            let set = mount.set_limit(id, limit);
            set.with_context(|| format!("cannot set the scrub limit of devid {id}"))?;
            let (before, now) = (shown(before), shown(limit));
            writeln!(
                console.out,
                "Set scrub limit of devid {id} from {before} to {now}"
            )?;
        }
        Ok(())
    }
}

fn shown(limit: u64) -> String {
    match limit {
        0 => "unlimited".to_owned(),
        limit => format!("{}/s", Units::default().size(limit)),
    }
}

/// Writes right-aligned columns below their heads, as btrfs-progs does here.
fn write_table(out: &mut dyn Write, rows: &[[String; 3]]) -> io::Result<()> {
    let heads = ["Id", "Limit", "Path"].map(str::to_owned);
    let all = || std::iter::once(&heads).chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max();
    let [id, limit, path] = [0, 1, 2].map(|column| width(column).unwrap_or(0));
    let line = |row: &[String; 3]| {
        let [a, b, c] = row;
        format!("{a:>id$}  {b:>limit$}  {c:>path$}")
    };
    writeln!(out, "{}", line(&heads))?;
    writeln!(
        out,
        "{}",
        line(&[id, limit, path].map(|width| "-".repeat(width)))
    )?;
    for row in rows {
        writeln!(out, "{}", line(row))?;
    }
    Ok(())
}

impl ByIoctls for Limit {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        let mount = MountScrub::new(Asked::open(&self.location)?, None)?;
        if console.is_json() && self.limit.is_none() {
            let rows = mount.devices.iter().map(|(id, path)| LimitJson {
                devid: *id,
                limit: mount.limit(*id),
                path: path.clone(),
            });
            return Ok(json::write_list(&mut console.out, "scrub-limit", rows)?);
        }
        writeln!(console.out, "UUID: {}", mount.fsid)?;
        if let Some(limit) = self.limit {
            return self.set(console, &mount, limit);
        }
        let units = self.units.units();
        let rows = mount.devices.iter().map(|(id, path)| {
            let limit = match mount.limit(*id) {
                0 => "-".to_owned(),
                limit => units.size(limit),
            };
            [id.to_string(), limit, path.clone()]
        });
        Ok(write_table(&mut console.out, &rows.collect::<Vec<_>>())?)
    }
}
