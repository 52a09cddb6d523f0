//! `ubtrfs rm`: files removed, and directories with all below.

use anyhow::{Context, bail};
use ubtrfs::transfer::removal::{Removal, Subvolumes};
use ubtrfs_engine::{Error, FileKind};

use crate::presentation::console::Console;
use crate::presentation::console::REMOVAL_PROGRESS;
use crate::presentation::transfer_console::TransferConsole;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::{Place, PlaceError};

/// Remove files and directories
///
/// A subvolume below counts as a directory; 'subvolume delete' is the faster way.
#[derive(Debug, clap::Args)]
pub(crate) struct Rm {
    #[arg(required_unless_present = "force", value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Remove directories and all below
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    force: bool,
    /// Name each file that is removed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Rm {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        console.start_progress(REMOVAL_PROGRESS);
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, console| self.remove(target, location, console),
        )
    }

    fn remove(
        &self,
        target: &Target,
        location: &Location,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let refused = || format!("cannot remove '{location}'");
        let volume = &**target.engine();
        let place = match Place::of(volume, target.root, &location.path) {
            Err(PlaceError::NoName) => {
                bail!("refusing to remove '.', '..' or the root: '{location}'")
            }
            Err(PlaceError::Engine(Error::NotFound)) if self.force => return Ok(()),
            place => place.with_context(refused)?,
        };
        let Some(id) = place.existing else {
            return match self.force {
                true => Ok(()),
                false => Err(Error::NotFound).with_context(refused),
            };
        };
        let is_dir = volume.attr(id).with_context(refused)?.kind == FileKind::Directory;
        if is_dir && !self.recursive {
            if !self.dir {
                return Err(Error::IsADirectory(id)).with_context(refused);
            }
            return volume.rmdir(place.dir, &place.name).with_context(refused);
        }
        let verbose = self.verbose || console.verbose > 0;
        let mut observer = TransferConsole { console, verbose };
        let mut removal = Removal::new(volume, Subvolumes::Enter, &mut observer);
        let removed = removal.tree(place.dir, &place.name, &location.path);
        removed.with_context(refused)
    }
}
