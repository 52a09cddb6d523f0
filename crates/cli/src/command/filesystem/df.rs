//! `ubtrfs filesystem df`: space by type and profile.

use std::io::Write;

use serde::Serialize;
use ubtrfs_engine::Volume;
use ubtrfs_engine::inspect::SpaceInfo;

use crate::console::Console;
use crate::json;
use crate::location::{DeviceOptions, Location};
use crate::profiles::{profile_name, warn_multiple_profiles};
use crate::units::ShortUnits;

/// Show how much space data and metadata have and use
#[derive(Debug, clap::Args)]
pub(crate) struct Df {
    #[arg(value_name = "IMAGE")]
    location: Location,
    #[command(flatten)]
    units: ShortUnits,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    bg_type: &'static str,
    bg_profile: &'static str,
    total: u64,
    used: u64,
}

impl Df {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.devices.open(&self.location)?;
        let infos = volume.space_infos()?;
        let rows = rows(&volume, &infos)?;
        warn_multiple_profiles(console, &infos);
        if console.is_json() {
            json::write_list(&mut console.out, "filesystem-df", &rows)?;
            return Ok(());
        }
        let units = self.units.units();
        for row in rows {
            writeln!(
                console.out,
                "{}, {}: total={}, used={}",
                row.bg_type,
                row.bg_profile,
                units.size(row.total),
                units.size(row.used)
            )?;
        }
        Ok(())
    }
}

fn rows(volume: &Volume, infos: &[SpaceInfo]) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = infos
        .iter()
        .map(|info| Row {
            bg_type: info.flags.type_name(),
            bg_profile: profile_name(info.flags),
            total: info.total,
            used: info.used,
        })
        .collect();
    rows.push(Row {
        bg_type: "GlobalReserve",
        bg_profile: "single",
        total: volume.global_reserve_bytes()?,
        used: 0,
    });
    Ok(rows)
}
