//! `ubtrfs chmod`: permissions of files.

use anyhow::Context;
use ubtrfs_engine::{Error, FileId, FileKind, SetAttr, Volume};

use crate::arguments::mode_change::ModeChange;
use crate::presentation::console::Console;
use crate::presentation::permissions::umask;
use crate::volume_access::changes::Changes;
use crate::volume_access::location::{Location, VolumeOptions};

/// Change permissions
///
/// MODE is an octal number, or clauses such as u+x,go-w. Symbolic links are followed; those below a directory
/// with -R are passed over.
#[derive(Debug, clap::Args)]
pub(crate) struct Chmod {
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
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, console| {
                let refused = || format!("cannot change '{location}'");
                let volume = &*target.volume;
                let id = target.find_following(location)?;
                self.change(volume, id, umask).with_context(refused)?;
                if !self.recursive || volume.attr(id)?.kind != FileKind::Directory {
                    return Ok(());
                }
                target
                    .each_below(id, &location.path, console, &mut |entry| match entry.kind {
                        FileKind::Symlink => Ok(()),
                        _ => self.change(volume, entry.id, umask),
                    })
                    .with_context(refused)
            },
        )
    }

    fn change(&self, volume: &Volume, id: FileId, umask: u32) -> Result<(), Error> {
        let attr = volume.attr(id)?;
        let is_dir = attr.kind == FileKind::Directory;
        let mode = Some(self.mode.apply(attr.mode, is_dir, umask));
        volume.set_attr(
            id,
            &SetAttr {
                mode,
                ..SetAttr::default()
            },
        )
    }
}
