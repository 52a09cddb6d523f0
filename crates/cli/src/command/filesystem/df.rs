//! `ubtrfs filesystem df`: space by type and profile.

use std::io::Write;

use serde::Serialize;

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::profiles::{GroupUsage, warn_multiple_profiles};
use crate::presentation::units::ShortUnits;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location};
use crate::volume_access::reason::Reasoned;

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
        let space = self.devices.open(&self.location)?.space().reason()?;
        let infos: Vec<_> = space.block_groups.iter().map(GroupUsage::from).collect();
        self.print(console, &infos, (space.reserve_bytes, 0))
    }

    fn print(
        &self,
        console: &mut Console,
        infos: &[GroupUsage],
        reserve: (u64, u64),
    ) -> anyhow::Result<()> {
        let rows = rows(infos, reserve);
        warn_multiple_profiles(console, infos);
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

impl ByIoctls for Df {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let spaces = Asked::open(&self.location)?.spaces()?;
        self.print(console, &spaces.infos, spaces.reserve)
    }
}

/// Returns the rows of the table. `reserve` is the size of the global reserve and its used part.
fn rows(infos: &[GroupUsage], (total, used): (u64, u64)) -> Vec<Row> {
    let rows = infos.iter().map(|info| Row {
        bg_type: info.group.kind_name(),
        bg_profile: info.group.profile_name(),
        total: info.total,
        used: info.used,
    });
    let reserve = Row {
        bg_type: "GlobalReserve",
        bg_profile: "single",
        total,
        used,
    };
    rows.chain([reserve]).collect()
}
