//! `ubtrfs cat`: the contents of files.

use std::io::Write;

use anyhow::{Context, bail};
use ubtrfs_engine::FileKind;

use crate::presentation::console::Console;
use crate::volume_access::location::{Location, VolumeOptions};

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
        // As cat(1), follow a link at the end.
        let file = opened
            .volume
            .resolve_following(opened.root, &location.path)
            .with_context(|| format!("cannot access '{location}'"))?;
        match opened.volume.attr(file)?.kind {
            FileKind::Regular => {}
            FileKind::Directory => bail!("'{location}' is a directory"),
            _ => bail!("'{location}' is not a regular file"),
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut offset = 0;
        loop {
            let len = opened
                .volume
                .read(file, offset, &mut buffer)
                .with_context(|| format!("cannot read '{location}'"))?;
            if len == 0 {
                return Ok(());
            }
            console.out.write_all(&buffer[..len])?;
            offset += len as u64;
        }
    }
}
