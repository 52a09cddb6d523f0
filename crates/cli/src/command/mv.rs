//! `ubtrfs mv`: renames files within a volume.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use anyhow::{Context, bail};
use rustix::io::Errno;
use ubtrfs::{CopyOptions, RemoveOptions};

use crate::presentation::console::Console;
use crate::presentation::permissions::umask;
use crate::presentation::transfer_console::{TransferConsole, TreeWork};
use crate::volume_access::changes::{Changes, Target, is_final};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::{Named, PlaceError};
use crate::volume_access::reason::Reasoned;

/// Move or rename files within a volume
///
/// The last argument is the new name, or a directory that takes the files under their own names.
#[derive(Debug, clap::Args)]
pub(crate) struct Mv {
    /// Files and directories to move
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    sources: Vec<Location>,
    /// New name, or directory to move into
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
        let is_into = !self.no_target_directory && target.is_directory(&self.destination)?;
        if !is_into && self.sources.len() > 1 {
            bail!("'{}' is not a directory", self.destination);
        }
        for source in &self.sources {
            if let Err(error) = self.move_one(&changes, &target, is_into, source, console) {
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
        is_into: bool,
        source: &Location,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let destination = &self.destination;
        if source.session().is_none() && changes.opened(source).is_none() {
            bail!("'{source}' and '{destination}' are not in the same volume");
        }
        let refused = || format!("cannot move '{source}' to '{destination}'");
        let files = &target.files;
        let from = target.named(source)?;
        let Some(moved) = from.existing else {
            return Err(PlaceError::NotFound).with_context(refused);
        };
        let to = if is_into {
            Named::in_directory(files, destination.path_within(), from.name())?
        } else {
            target.named(destination)?
        };
        if to.is(&moved) && from.is_same_name(&to, files)? {
            bail!("'{source}' and '{destination}' are the same file");
        }
        let moved = match (self.exchange, self.no_clobber) {
            (true, _) => files.rename_exchange(&from.path, &to.path),
            (_, true) => files.rename_no_replace(&from.path, &to.path),
            // rename(2) keeps both names of the same file, but mv(1) keeps one.
            _ if to.is(&moved) && !moved.is_dir() => files.remove_file(&from.path),
            _ => files.rename(&from.path, &to.path),
        };
        match moved.reason() {
            Err(error) if error.errno() == Errno::EXIST && self.no_clobber => Ok(()),
            Err(error) if error.errno() == Errno::XDEV && !self.exchange => self
                .copy_and_remove(target, source, (&to, is_into), console)
                .with_context(refused),
            moved => moved.with_context(refused),
        }
    }

    /// Copies a file with shared data, and removes the source: a rename cannot cross subvolumes.
    fn copy_and_remove(
        &self,
        target: &Target,
        source: &Location,
        (to, is_into): (&Named, bool),
        console: &mut Console,
    ) -> anyhow::Result<()> {
        if let Some(existing) = to.existing {
            if self.no_clobber {
                return Ok(());
            }
            // As in a rename, an empty directory is replaced and a full one is refused.
            if existing.is_dir() {
                target.files.remove_dir(&to.path).reason()?;
            }
        }
        let files = &target.files;
        let failed_before = console.take_failed();
        let mut shown = PathBuf::from(OsString::from_vec(self.destination.to_outside()));
        if is_into {
            shown.push(OsStr::from_bytes(to.name()));
        }
        let options = CopyOptions::new().umask(umask()).shown_as(shown);
        let verbose = false;
        let mut observer = TransferConsole {
            console,
            verbose,
            work: TreeWork::Copy,
        };
        let path = source.path_within();
        let copied = files.copy_tree(path, files, &to.path, &options, &mut observer);
        copied.reason()?;
        if console.take_failed() {
            console.error_was_reported();
            bail!("not all could be copied, nothing was removed");
        }
        if failed_before {
            console.error_was_reported();
        }
        let mut observer = TransferConsole {
            console,
            verbose,
            work: TreeWork::Remove,
        };
        let options = RemoveOptions::new().enter_subvolumes(true);
        let removed = files.remove_tree(path, &options, &mut observer);
        Ok(removed.reason()?)
    }
}
