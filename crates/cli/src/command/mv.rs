//! `ubtrfs mv`: names moved within a volume.

use anyhow::{Context, bail};
use ubtrfs::transfer::copy::{Copier, CopyOptions, FromVolume, ToVolume, Top};
use ubtrfs::transfer::removal::{Removal, Subvolumes};
use ubtrfs_engine::{Error, FileId, FileKind, RenameMode, Volume};

use crate::presentation::console::Console;
use crate::presentation::permissions::umask;
use crate::presentation::transfer_console::TransferConsole;
use crate::volume_access::changes::{Changes, Target, is_final};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::{self, Place};

/// Move or rename files within a volume
///
/// The last argument is the new name, or a directory that takes the files under their own names.
#[derive(Debug, clap::Args)]
pub(crate) struct Mv {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    sources: Vec<Location>,
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    destination: Location,
    /// Leave files that exist, without a message
    #[arg(short, long, conflicts_with = "exchange")]
    no_clobber: bool,
    /// Replace files that exist (always done)
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    /// Give each of two files the other's name
    #[arg(long)]
    exchange: bool,
    /// Take the last argument as the new name even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Mv {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut changes = Changes::new(&self.volume);
        let target = changes.open(&self.destination)?;
        let into = match self.no_target_directory {
            true => None,
            false => target.directory(&self.destination.path)?,
        };
        if into.is_none() && self.sources.len() > 1 {
            bail!("'{}' is not a directory", self.destination);
        }
        for source in &self.sources {
            if let Err(error) = self.move_one(&changes, &target, into, source, console) {
                console.failed(&error);
                if is_final(&error) {
                    break;
                }
            }
        }
        changes.commit()
    }

    fn move_one(
        &self,
        changes: &Changes<'_>,
        target: &Target,
        into: Option<FileId>,
        source: &Location,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let destination = &self.destination;
        if source.session().is_none() && changes.opened(source).is_none() {
            bail!("'{source}' and '{destination}' are not in the same volume");
        }
        let refused = || format!("cannot move '{source}' to '{destination}'");
        let from = target.place(source)?;
        let Some(moved) = from.existing else {
            return Err(Error::NotFound).with_context(refused);
        };
        let to = match into {
            Some(dir) => Place {
                dir,
                existing: target.volume.lookup(dir, &from.name)?,
                name: from.name.clone(),
            },
            None => target.place(destination)?,
        };
        if to.existing == Some(moved) && (to.dir, &to.name) == (from.dir, &from.name) {
            bail!("'{source}' and '{destination}' are the same file");
        }
        let mode = match (self.exchange, self.no_clobber) {
            (true, _) => RenameMode::Exchange,
            (_, true) => RenameMode::NoReplace,
            _ => RenameMode::Replace,
        };
        let volume = &target.volume;
        if to.existing == Some(moved) && mode == RenameMode::Replace {
            // rename(2) leaves both names of one file, and mv(1) one.
            return volume.unlink(from.dir, &from.name).with_context(refused);
        }
        match volume.rename(from.dir, &from.name, (to.dir, &to.name), mode) {
            Err(Error::Exists) if self.no_clobber => Ok(()),
            Err(Error::CrossSubvolume) if !self.exchange => self
                .copy_and_remove(volume, &from, (&to, into.is_some()), source, console)
                .with_context(refused),
            moved => moved.with_context(refused),
        }
    }

    /// A name cannot move into another subvolume: the file is copied, with its data shared, and removed.
    fn copy_and_remove(
        &self,
        volume: &Volume,
        from: &Place,
        (to, is_into): (&Place, bool),
        source: &Location,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        if let Some(existing) = to.existing {
            if self.no_clobber {
                return Ok(());
            }
            // As a move does, an empty directory is replaced, a full one refused.
            if volume.attr(existing)?.kind == FileKind::Directory {
                volume.rmdir(to.dir, &to.name)?;
            }
        }
        let Some(moved) = from.existing else {
            return Ok(());
        };
        let failed_before = console.take_failed();
        let options = CopyOptions {
            preserve: true,
            ..CopyOptions::default()
        };
        let from_volume = FromVolume { volume };
        let to_volume = ToVolume::new(volume, true, umask());
        let verbose = false;
        let mut observer = TransferConsole { console, verbose };
        let mut copier = Copier::new(&from_volume, to_volume, options, &mut observer);
        let top = Top {
            dir: to.dir,
            shown: match place::split(&self.destination.path) {
                Some((above, _)) if !is_into => self.destination.outside(above),
                _ => self.destination.to_outside(),
            },
        };
        copier.copy_as(&moved, top, &to.name, &source.path)?;
        if console.take_failed() {
            console.error_was_reported();
            bail!("not all could be copied, nothing was removed");
        }
        if failed_before {
            console.error_was_reported();
        }
        let mut observer = TransferConsole { console, verbose };
        let mut removal = Removal::new(volume, Subvolumes::Enter, &mut observer);
        Ok(removal.tree(from.dir, &from.name, &source.path)?)
    }
}
