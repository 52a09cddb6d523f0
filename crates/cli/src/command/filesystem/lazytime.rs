//! `ubtrfs filesystem lazytime`: what `mount -o remount` has the process that serves a mount do.

use anyhow::bail;
use clap::ValueEnum;

use crate::location::{Access, Location, VolumeOptions};

/// Keep changes of times alone in memory, or write them
#[derive(Debug, clap::Args)]
pub(crate) struct Lazytime {
    #[arg(value_name = "WHETHER")]
    whether: Whether,
    #[arg(value_name = "DIR")]
    location: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whether {
    On,
    Off,
}

impl Lazytime {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let Some(session) = self.location.session() else {
            bail!("'{}' is not in a mount", self.location);
        };
        let volume = session.volume_for(Access::Read)?;
        if volume.is_writable() {
            volume.set_lazy_times(self.whether == Whether::On)?;
        }
        Ok(())
    }
}
