//! `ubtrfs inspect-internal rootid`: the tree that a path is in.

use std::io::Write;

use serde::Serialize;

use crate::console::Console;
use crate::json;
use crate::location::{Location, VolumeOptions};

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
        let rootid = self.volume.open(&self.location)?.target.root.0;
        match console.is_json() {
            true => json::write_map(&mut console.out, "rootid", &RootidJson { rootid })?,
            false => writeln!(console.out, "{rootid}")?,
        }
        Ok(())
    }
}
