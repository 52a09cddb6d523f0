//! `ubtrfs cat`: the contents of files.

use std::io::{Read, Write};

use anyhow::{Context, bail};

use crate::presentation::console::Console;
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::{Reason, Reasoned};

const BUFFER_BYTES: usize = 1 << 20;

/// Write the contents of files to standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Cat {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Cat {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        for location in &self.locations {
            if let Err(error) = self.write(location, console) {
                if error.is::<std::io::Error>() {
                    return Err(error);
                }
                console.failed(&error);
            }
        }
        Ok(())
    }

    fn write(&self, location: &Location, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(location)?;
        // Follow a link at the end, as in cat(1).
        let file = opened.files.open_file(location.path_within());
        let mut file = file
            .reason()
            .with_context(|| format!("cannot access '{location}'"))?;
        let kind = file.metadata().reason()?.file_type();
        if kind.is_dir() {
            bail!("'{location}' is a directory");
        }
        if !kind.is_file() {
            bail!("'{location}' is not a regular file");
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = file.read(&mut buffer).map_err(Reason::of_io);
            let len = read.with_context(|| format!("cannot read '{location}'"))?;
            if len == 0 {
                return Ok(());
            }
            console.out.write_all(&buffer[..len])?;
        }
    }
}
