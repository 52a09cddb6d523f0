//! `ubtrfs rmdir`: empty directories removed.

use anyhow::Context;
use ubtrfs_engine::Error;

use crate::presentation::console::Console;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};

/// Remove empty directories
///
/// An empty subvolume is deleted.
#[derive(Debug, clap::Args)]
pub(crate) struct Rmdir {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Remove the directories above as well that become empty
    #[arg(short, long)]
    parents: bool,
    /// Leave a directory that is not empty, without an error
    #[arg(long)]
    ignore_fail_on_non_empty: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Rmdir {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, _| {
                let mut location = location.clone();
                while self.remove(target, &location)? && self.parents {
                    match crate::volume_access::place::split(&location.path) {
                        Some((dir, _)) if crate::volume_access::place::split(dir).is_some() => {
                            location = location.with_path(dir.to_vec());
                        }
                        _ => break,
                    }
                }
                Ok(())
            },
        )
    }

    /// False if it is not empty, and that is no error.
    fn remove(&self, target: &Target, location: &Location) -> anyhow::Result<bool> {
        let place = target.place(location)?;
        match target.volume.rmdir(place.dir, &place.name) {
            Ok(()) => Ok(true),
            Err(Error::NotEmpty(_)) if self.ignore_fail_on_non_empty => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot remove '{location}'")),
        }
    }
}
