//! `ubtrfs filesystem sync`: what was done is committed.

use crate::changes::Changes;
use crate::location::{Location, VolumeOptions};

/// Commit what was done so far
///
/// Commands commit when they are done: this is of use in a shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Sync {
    #[arg(value_name = "IMAGE")]
    location: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Sync {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut changes = Changes::new(&self.volume);
        changes.open(&self.location)?.volume.sync()?;
        changes.commit()
    }
}
