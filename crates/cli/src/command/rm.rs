//! `ubtrfs rm`: removes files, and directories with their contents.

use anyhow::{Context, bail};
use ubtrfs::RemoveOptions;

use crate::presentation::console::Console;
use crate::presentation::console::REMOVAL_PROGRESS;
use crate::presentation::transfer_console::{TransferConsole, TreeWork};
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::{Named, PlaceError};
use crate::volume_access::reason::Reasoned;

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
        let files = &target.files;
        let named = match Named::of(files, &location.path) {
            Err(PlaceError::NoName) => {
                bail!("refusing to remove '.', '..' or the root: '{location}'")
            }
            Err(PlaceError::Library(error)) if self.force && error.is_missing() => return Ok(()),
            named => named.with_context(refused)?,
        };
        let Some(file) = named.existing else {
            return if self.force {
                Ok(())
            } else {
                Err(PlaceError::NotFound).with_context(refused)
            };
        };
        if file.is_dir() && !self.recursive {
            let removed = if self.dir {
                files.remove_dir(&named.path)
            } else {
                // Fails for a directory.
                files.remove_file(&named.path)
            };
            return removed.reason().with_context(refused);
        }
        let verbose = self.verbose || console.verbose > 0;
        let mut observer = TransferConsole {
            console,
            verbose,
            work: TreeWork::Remove,
        };
        let options = RemoveOptions::new().enter_subvolumes(true);
        let removed = files.remove_tree(location.path_within(), &options, &mut observer);
        removed.reason().with_context(refused)
    }
}
