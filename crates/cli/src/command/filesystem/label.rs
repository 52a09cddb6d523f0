//! `ubtrfs filesystem label`: the name of a volume.

use std::io::Write;

use serde::Serialize;

use crate::console::Console;
use crate::json;
use crate::location::{DeviceOptions, Location};

/// Show the label of a volume
#[derive(Debug, clap::Args)]
pub(crate) struct Label {
    #[arg(value_name = "IMAGE")]
    location: Location,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Debug, Serialize)]
struct LabelJson {
    label: String,
}

impl Label {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.devices.open(&self.location)?;
        let superblock = volume.superblock();
        let label = superblock.label();
        if console.is_json() {
            let label = json::text(label);
            json::write_map(&mut console.out, "filesystem-label", &LabelJson { label })?;
            return Ok(());
        }
        console.out.write_all(label)?;
        Ok(console.out.write_all(b"\n")?)
    }
}
