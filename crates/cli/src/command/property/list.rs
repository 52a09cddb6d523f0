//! `ubtrfs property list`: the available properties.

use std::io::Write;

use super::{InMount, Kind, Object, Stored};
use crate::presentation::console::Console;
use crate::presentation::json;
use crate::volume_access::ioctls::ByIoctls;
use crate::volume_access::location::{Location, VolumeOptions};

/// List the properties that an object can have
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    /// The kind of object, if the path may mean several
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Debug, serde::Serialize)]
struct PropertyJson {
    name: &'static str,
    description: &'static str,
}

impl List {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.volume.devices.open(&self.location)?;
        let files = self.volume.files_of(&volume, &self.location)?;
        print(
            console,
            &Stored::new(&volume, &files, &self.location, self.kind)?,
        )
    }
}

impl ByIoctls for List {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        print(console, &InMount::new(&self.location, self.kind)?)
    }
}

fn print(console: &mut Console, object: &dyn Object) -> anyhow::Result<()> {
    if console.is_json() {
        let list = object.names().into_iter().map(|name| PropertyJson {
            name: name.text(),
            description: name.description(),
        });
        return Ok(json::write_list(&mut console.out, "property-list", list)?);
    }
    for name in object.names() {
        writeln!(console.out, "{:<20}{}", name.text(), name.description())?;
    }
    Ok(())
}
