//! `ubtrfs subvolume get-default`: prints the default subvolume.

use std::io::Write;

use anyhow::Context;
use serde::Serialize;
use ubtrfs_format::ids::RootId;

use super::{Subvolumes, mountpoint};
use crate::presentation::console::Console;
use crate::presentation::json;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location};
use crate::volume_access::reason::Reasoned;

/// Show which subvolume is mounted if none is named
#[derive(Debug, clap::Args)]
pub(crate) struct GetDefault {
    #[arg(value_name = "IMAGE")]
    location: Location,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Debug, Serialize)]
struct DefaultJson {
    #[serde(rename = "ID")]
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#gen: Option<u64>,
    #[serde(rename = "top level", skip_serializing_if = "Option::is_none")]
    top_level: Option<u64>,
    path: String,
}

impl GetDefault {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.devices.open(&self.location)?;
        let id = volume.default_subvolume_id().reason()?;
        print(console, RootId(id), || {
            Subvolumes::read_one(&volume, RootId(id))
        })
    }
}

impl ByIoctls for GetDefault {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        let id = asked.default_subvolume();
        let id = id.context("cannot read the default subvolume")?;
        print(console, id, || {
            let mountpoint = mountpoint(&self.location)?;
            Subvolumes::ask_some(&asked, &mountpoint, |_| Ok(vec![id]))
        })
    }
}

fn print(
    console: &mut Console,
    id: RootId,
    subvolumes: impl FnOnce() -> anyhow::Result<Subvolumes>,
) -> anyhow::Result<()> {
    if id == RootId::FS_TREE {
        if console.is_json() {
            let default = DefaultJson {
                id: id.0,
                r#gen: None,
                top_level: None,
                path: "<FS_TREE>".to_owned(),
            };
            json::write_map(&mut console.out, "subvolume-get-default", &default)?;
        } else {
            writeln!(console.out, "ID {id} (FS_TREE)")?;
        }
        return Ok(());
    }
    let subvolumes = subvolumes()?;
    let listed = subvolumes
        .get(id)
        .with_context(|| format!("default subvolume {id} does not exist"))?;
    let generation = listed.info.generation;
    let top_level = subvolumes.parent(id).unwrap_or(RootId(0));
    let path = subvolumes.path(id, None).unwrap_or_default();
    if console.is_json() {
        let default = DefaultJson {
            id: id.0,
            r#gen: Some(generation),
            top_level: Some(top_level.0),
            path: json::text(&path),
        };
        json::write_map(&mut console.out, "subvolume-get-default", &default)?;
        return Ok(());
    }
    write!(
        console.out,
        "ID {id} gen {generation} top level {top_level} path "
    )?;
    console.write_path(&path)?;
    Ok(writeln!(console.out)?)
}
