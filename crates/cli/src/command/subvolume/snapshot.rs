//! `ubtrfs subvolume snapshot`: creates snapshots.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use ubtrfs::Access;

use super::{Qgroups, ask_for_subvolume};
use crate::presentation::console::Console;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::{NameIn, PlaceError, split};
use crate::volume_access::reason::Reasoned;

/// Make a snapshot of a subvolume
///
/// The destination is the new name, or a directory that takes the snapshot under the name of its source.
#[derive(Debug, clap::Args)]
pub(crate) struct Snapshot {
    #[arg(value_name = "IMAGE[:/SUBVOLUME]")]
    source: Location,
    /// Name of the snapshot, or directory to make it in
    #[arg(value_name = "IMAGE:/PATH")]
    destination: Location,
    /// Make the snapshot read-only
    #[arg(short = 'r')]
    read_only: bool,
    #[command(flatten)]
    qgroups: Qgroups,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Snapshot {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.qgroups.refuse()?;
        let mut changes = Changes::new(&self.volume);
        let target = changes.open(&self.destination)?;
        let is_there = changes.opened(&self.source).is_some();
        if self.source.session().is_none() && !is_there {
            bail!(
                "'{}' and '{}' are not in the same volume",
                self.source,
                self.destination
            );
        }
        let source = target.find_subvolume(&self.source)?;
        let (NameIn { dir, name, .. }, shown) = self.place(&target)?;
        let access = if self.read_only {
            Access::ReadOnly
        } else {
            Access::Writable
        };
        let made = dir.snapshot(&source, &name, access).reason();
        made.with_context(|| format!("Could not create snapshot '{shown}'"))?;
        target.entry_changed(&dir, name.as_bytes())?;
        self.report(&shown, console)?;
        changes.commit()
    }

    fn report(&self, made: &Location, console: &mut Console) -> anyhow::Result<()> {
        if !console.quiet {
            let kind = if self.read_only {
                "readonly snapshot"
            } else {
                "snapshot"
            };
            let source = &self.source;
            writeln!(console.out, "Create {kind} of '{source}' in '{made}'")?;
        }
        Ok(())
    }

    fn place(&self, target: &Target) -> anyhow::Result<(NameIn, Location)> {
        let destination = &self.destination;
        let Some(dir) = target.find_dir(destination)? else {
            let place = target.name_in(destination)?;
            if place.is_taken {
                bail!(self.no_directory());
            }
            return Ok((place, destination.clone()));
        };
        let (_, name) = split(&self.source.path).with_context(|| self.no_name())?;
        let mut path = destination.path.clone();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let place = NameIn::in_directory(dir, name)?;
        Ok((place, destination.with_path(path)))
    }
}

impl Snapshot {
    fn no_directory(&self) -> String {
        format!("'{}' exists and it is not a directory", self.destination)
    }

    fn no_name(&self) -> String {
        format!("'{}' has no name that the snapshot could take", self.source)
    }

    /// Returns the directory, the name in it, and the displayed path.
    fn place_outside(&self) -> anyhow::Result<(PathBuf, OsString, Location)> {
        let destination = self.destination.written_path();
        if destination.is_dir() {
            let source = self.source.written_path().canonicalize()?;
            let name = source.file_name().with_context(|| self.no_name())?;
            let shown = Location::written(destination.join(name).as_os_str());
            return Ok((destination.to_owned(), name.to_owned(), shown));
        }
        if destination.exists() {
            bail!(self.no_directory());
        }
        let (dir, name) = split(destination.as_os_str().as_bytes()).ok_or(PlaceError::NoName)?;
        let path = |bytes| OsStr::from_bytes(bytes).to_owned();
        Ok((path(dir).into(), path(name), self.destination.clone()))
    }
}

impl ByIoctls for Snapshot {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let source = ask_for_subvolume(&self.source)?;
        let (dir, name, shown) = self.place_outside()?;
        let dir = Asked::at(&dir).with_context(|| format!("cannot access '{shown}'"))?;
        let qgroups = self.qgroups.inherited_in(&dir)?;
        dir.snapshot(&source, name.as_bytes(), self.read_only, &qgroups)
            .with_context(|| format!("Could not create snapshot '{shown}'"))?;
        self.report(&shown, console)
    }
}
