//! `ubtrfs mkdir`: new directories.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ubtrfs::{DirBuilder, Subvolume};

use crate::arguments::mode_change::ModeChange;
use crate::presentation::console::Console;
use crate::presentation::permissions::umask;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::PlaceError;
use crate::volume_access::reason::{Reason, Reasoned};

/// Make directories
#[derive(Debug, clap::Args)]
pub(crate) struct Mkdir {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Make the directories above as well, and accept those that exist
    #[arg(short, long)]
    parents: bool,
    /// The mode, as for chmod
    #[arg(short, long, value_name = "MODE")]
    mode: Option<ModeChange>,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// The mode of a new directory before the umask.
const EVERYTHING: u32 = 0o777;
/// Permissions of parent directories regardless of the umask, so that entries can be created in them.
const FOR_OWNER: u32 = 0o300;

impl Mkdir {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, _| {
                if self.parents {
                    self.make_all(target, location)
                } else {
                    self.make(target, location)
                }
            },
        )
    }

    fn make(&self, target: &Target, location: &Location) -> anyhow::Result<()> {
        let named = target.named(location)?;
        self.make_last(&target.files, &named.path)
            .with_context(|| format!("cannot make directory '{location}'"))
    }

    /// Creates the named directory, perhaps with a given mode.
    fn make_last(&self, files: &Subvolume, path: &Path) -> Result<(), Reason> {
        let umask = umask();
        mkdir(files, path, umask)?;
        match &self.mode {
            Some(mode) => {
                let mode = Permissions::from_mode(mode.apply(EVERYTHING, true, umask));
                files.set_permissions(path, mode).reason()
            }
            None => Ok(()),
        }
    }

    fn make_all(&self, target: &Target, location: &Location) -> anyhow::Result<()> {
        self.make_missing(&target.files, &location.path)
            .with_context(|| format!("cannot make directory '{location}'"))
    }

    /// Walks along a path and creates the missing directories.
    fn make_missing(&self, files: &Subvolume, path: &[u8]) -> Result<(), PlaceError> {
        let umask = umask() & !FOR_OWNER;
        let names = path.split(|&byte| byte == b'/');
        let mut names = names.filter(|name| !name.is_empty()).peekable();
        let mut at = PathBuf::from("/");
        while let Some(name) = names.next() {
            at.push(OsStr::from_bytes(name));
            match files.metadata(&at).reason() {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(PlaceError::NotADirectory),
                // A dangling link is an error.
                Err(error) if !error.is_missing() || files.symlink_metadata(&at).is_ok() => {
                    return Err(error.into());
                }
                Err(_) if names.peek().is_some() => mkdir(files, &at, umask)?,
                Err(_) => self.make_last(files, &at)?,
            }
        }
        Ok(())
    }
}

fn mkdir(files: &Subvolume, path: &Path, umask: u32) -> Result<(), Reason> {
    let builder = DirBuilder::new().mode(EVERYTHING).umask(umask);
    files.create_dir_with(path, &builder).reason()
}
