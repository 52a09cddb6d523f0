//! `ubtrfs inspect-internal subvolid-resolve`: the path of a subvolume.

use std::io::Write;

use anyhow::{Context, bail};
use serde::Serialize;
use ubtrfs_format::ids::RootId;

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location};

/// Show the path of a subvolume from the top level
#[derive(Debug, clap::Args)]
pub(crate) struct SubvolidResolve {
    /// Id of the subvolume
    subvolid: u64,
    #[arg(value_name = "IMAGE")]
    location: Location,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Debug, Serialize)]
struct PathJson {
    path: String,
}

impl SubvolidResolve {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.devices.open(&self.location)?;
        let volume = volume.engine();
        let id = RootId(self.subvolid);
        volume.subvolume_tree(id)?;
        let path = volume.subvolume_path(id)?;
        if path.is_empty() && id != RootId::FS_TREE {
            bail!("subvolume {id} has no path");
        }
        print(console, &path)
    }
}

impl ByIoctls for SubvolidResolve {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let id = RootId(self.subvolid);
        let found = Asked::open(&self.location)?.subvolume_path(id, RootId::FS_TREE);
        let (_, path) = found.with_context(|| format!("cannot find subvolume {id}"))?;
        print(console, &path)
    }
}

fn print(console: &mut Console, path: &[u8]) -> anyhow::Result<()> {
    if console.is_json() {
        let path = json::text(path);
        json::write_map(&mut console.out, "subvolid-resolve", &PathJson { path })?;
        return Ok(());
    }
    console.write_path(path)?;
    Ok(writeln!(console.out)?)
}
