//! `ubtrfs filesystem df`: space by type and profile.

use std::io::Write;

use serde::Serialize;
use ubtrfs_engine::inspect::ProfileUsage;
use ubtrfs_format::block_group_flags::BlockGroupFlags;

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::profiles::{profile_name, warn_multiple_profiles};
use crate::presentation::units::ShortUnits;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location};

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
        let volume = volume.engine();
        let reserve = ProfileUsage {
            flags: BlockGroupFlags::METADATA,
            total: volume.global_reserve_bytes()?,
            used: 0,
        };
        self.print(console, &volume.profile_usages()?, &reserve)
    }

    fn print(
        &self,
        console: &mut Console,
        infos: &[ProfileUsage],
        reserve: &ProfileUsage,
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
        self.print(console, &spaces.infos, &spaces.reserve)
    }
}

fn rows(infos: &[ProfileUsage], reserve: &ProfileUsage) -> Vec<Row> {
    let row = |info: &ProfileUsage, bg_type, bg_profile| Row {
        bg_type,
        bg_profile,
        total: info.total,
        used: info.used,
    };
    let mut rows: Vec<Row> = infos
        .iter()
        .map(|info| row(info, info.flags.type_name(), profile_name(info.flags)))
        .collect();
    rows.push(row(reserve, "GlobalReserve", "single"));
    rows
}
