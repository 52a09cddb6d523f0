//! `ubtrfs property get`: values of properties.

use std::io::Write;

use super::{InMount, Kind, Name, Object, Stored};
use crate::presentation::console::Console;
use crate::presentation::json;
use crate::volume_access::ioctls::ByIoctls;
use crate::volume_access::location::{Location, VolumeOptions};

/// Show the value of a property, or of all
#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    /// ro, label or compression
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The kind of object, if the path may mean several
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Get {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.volume.devices.open(&self.location)?;
        let files = self.volume.files_of(&volume, &self.location)?;
        self.print(
            console,
            &Stored::new(&volume, &files, &self.location, self.kind)?,
        )
    }

    fn print(&self, console: &mut Console, object: &dyn Object) -> anyhow::Result<()> {
        let names = match &self.name {
            Some(name) => {
                let name = Name::parse(name)?;
                object.check(name)?;
                vec![name]
            }
            None => object.names(),
        };
        let mut values = Vec::new();
        for name in names {
            if let Some(value) = object.value(name)? {
                values.push((name, value));
            }
        }
        if console.is_json() {
            let map: serde_json::Map<String, serde_json::Value> = values
                .iter()
                .map(|(name, value)| (name.text().to_owned(), json::text(value).into()))
                .collect();
            return Ok(json::write_map(&mut console.out, "property-get", &map)?);
        }
        for (name, value) in values {
            write!(console.out, "{}=", name.text())?;
            console.write_path(&value)?;
            writeln!(console.out)?;
        }
        Ok(())
    }
}

impl ByIoctls for Get {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        self.print(console, &InMount::new(&self.location, self.kind)?)
    }
}
