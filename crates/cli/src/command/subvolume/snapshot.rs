//! `ubtrfs subvolume snapshot`: snapshots made.

use std::ffi::OsString;
use std::io::Write;

use anyhow::{Context, bail};

use super::refuse_qgroups;
use crate::changes::{Changes, Target};
use crate::console::Console;
use crate::location::{Location, VolumeOptions};
use crate::place::{Place, split};

/// Make a snapshot of a subvolume
///
/// The destination is the new name, or a directory that takes the snapshot under the name of its source.
#[derive(Debug, clap::Args)]
pub(crate) struct Snapshot {
    #[arg(value_name = "IMAGE[:/SUBVOLUME]")]
    source: Location,
    #[arg(value_name = "IMAGE:/PATH")]
    destination: Location,
    /// Make the snapshot read-only
    #[arg(short = 'r')]
    read_only: bool,
    /// Not done: ubtrfs does not write quota groups
    #[arg(short = 'i', value_name = "QGROUP", hide = true)]
    qgroups: Vec<OsString>,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Snapshot {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        refuse_qgroups(&self.qgroups)?;
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
        let source = target.subvolume(&self.source)?;
        let (place, shown) = self.place(&target)?;
        let volume = &target.volume;
        if let (Some(rights), None) = (target.rights(), place.existing) {
            rights
                .add_to(place.dir)
                .and_then(|()| rights.own(volume.root_dir(source)?))
                .with_context(|| format!("Could not create snapshot '{shown}'"))?;
        }
        volume
            .snapshot(source, place.dir, &place.name, self.read_only)
            .with_context(|| format!("Could not create snapshot '{shown}'"))?;
        target.entry_changed(place.dir, &place.name)?;
        if !console.quiet {
            let kind = match self.read_only {
                true => "readonly snapshot",
                false => "snapshot",
            };
            writeln!(
                console.out,
                "Create {kind} of '{}' in '{shown}'",
                self.source
            )?;
        }
        changes.commit()
    }

    fn place(&self, target: &Target) -> anyhow::Result<(Place, Location)> {
        let destination = &self.destination;
        let Some(dir) = target.directory(&destination.path)? else {
            let place = target.place(destination)?;
            if place.existing.is_some() {
                bail!("'{destination}' exists and it is not a directory");
            }
            return Ok((place, destination.clone()));
        };
        let Some((_, name)) = split(&self.source.path) else {
            bail!("'{}' has no name that the snapshot could take", self.source);
        };
        let mut path = destination.path.clone();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let place = Place {
            dir,
            name: name.to_vec(),
            existing: target.volume.lookup(dir, name)?,
        };
        Ok((place, destination.with_path(path)))
    }
}
