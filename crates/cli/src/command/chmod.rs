//! `ubtrfs chmod`: permissions of files.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use anyhow::Context;
use ubtrfs::Metadata;

use crate::arguments::mode_change::ModeChange;
use crate::presentation::console::Console;
use crate::presentation::permissions::umask;
use crate::volume_access::changes::Changes;
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Change permissions
///
/// MODE is an octal number, or clauses such as u+x,go-w. Symbolic links are followed; those below a directory
/// with -R are passed over.
#[derive(Debug, clap::Args)]
pub(crate) struct Chmod {
    /// Octal mode or symbolic changes
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: ModeChange,
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Change all below directories as well
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Chmod {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let umask = umask();
        let mode_of = |file: &Metadata| {
            let mode = self.mode.apply(file.mode(), file.is_dir(), umask);
            Permissions::from_mode(mode)
        };
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, console| {
                let refused = || format!("cannot change '{location}'");
                let path = location.path_within();
                let metadata = target.files.metadata(path);
                let metadata = metadata
                    .reason()
                    .with_context(|| format!("cannot access '{location}'"))?;
                let changed = target.files.set_permissions(path, mode_of(&metadata));
                changed.reason().with_context(refused)?;
                if !self.recursive || !metadata.is_dir() {
                    return Ok(());
                }
                target
                    .each_below(location, console, &mut |entry| {
                        if entry.file_type().is_symlink() {
                            Ok(())
                        } else {
                            entry.set_permissions(mode_of(&entry.metadata()?))
                        }
                    })
                    .with_context(refused)
            },
        )
    }
}
