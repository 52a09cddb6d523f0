//! `ubtrfs rmdir`: removes empty directories.

use anyhow::Context;
use rustix::io::Errno;

use crate::presentation::console::Console;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

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

    /// Removes a directory. Returns false if it is not empty and that is not an error.
    fn remove(&self, target: &Target, location: &Location) -> anyhow::Result<bool> {
        let named = target.named(location)?;
        match target.files.remove_dir(&named.path).reason() {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == Errno::NOTEMPTY && self.ignore_fail_on_non_empty => {
                Ok(false)
            }
            Err(error) => Err(error).with_context(|| format!("cannot remove '{location}'")),
        }
    }
}
