//! `ubtrfs inspect-internal rootid`: the id of a path's subvolume.

use std::io::Write;

use serde::Serialize;
use ubtrfs_format::ids::RootId;

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};

/// Show the id of the subvolume that a path is in
#[derive(Debug, clap::Args)]
pub(crate) struct Rootid {
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Debug, Serialize)]
struct RootidJson {
    rootid: u64,
}

impl Rootid {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(&self.location)?;
        print(console, RootId(opened.subvolume_id))
    }
}

impl ByIoctls for Rootid {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        print(console, Asked::open(&self.location)?.root_id()?)
    }
}

fn print(console: &mut Console, id: RootId) -> anyhow::Result<()> {
    let rootid = id.0;
    if console.is_json() {
        json::write_map(&mut console.out, "rootid", &RootidJson { rootid })?
    } else {
        writeln!(console.out, "{rootid}")?
    }
    Ok(())
}
