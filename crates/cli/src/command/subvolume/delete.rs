//! `ubtrfs subvolume delete`: subvolumes deleted, with all that is in them.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use ubtrfs_engine::{Error, SubvolumePlace, Volume};
use ubtrfs_format::ids::RootId;

use super::Subvolumes;
use crate::changes::{Changes, Target, is_final};
use crate::console::Console;
use crate::location::{DeviceOptions, Location, VolumeOptions};

/// Delete subvolumes
///
/// Their space is freed before the command returns, in a shell at its end or by 'subvolume sync', and in a mount
/// as time goes by.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Commit at the end (always done, but in a mount)
    #[arg(short = 'c', long, conflicts_with = "commit_each")]
    commit_after: bool,
    /// Commit after each
    #[arg(short = 'C', long)]
    commit_each: bool,
    /// The subvolume of this id, instead of the one at the path
    #[arg(short = 'i', long, value_name = "ID")]
    subvolid: Option<u64>,
    /// Delete the subvolumes below as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Only show what would be deleted
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    devices: DeviceOptions,
}

impl Delete {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if self.subvolid.is_some() && self.locations.len() > 1 {
            bail!("one id is of one volume");
        }
        let options = VolumeOptions::of_devices(&self.devices);
        let mut changes = Changes::new(&options);
        let mut volumes: Vec<Arc<Volume>> = Vec::new();
        for location in &self.locations {
            let deleted = changes.open(location).and_then(|target| {
                if !volumes
                    .iter()
                    .any(|known| Arc::ptr_eq(known, &target.volume))
                {
                    volumes.push(Arc::clone(&target.volume));
                }
                self.delete(&target, location, console)
            });
            if let Err(error) = deleted {
                console.error(format_args!("{error:#}"));
                if is_final(&error) {
                    break;
                }
            }
        }
        let mut sessions = self.locations.iter().filter_map(Location::session);
        let session = sessions.next();
        changes.commit()?;
        if self.dry_run || console.dry_run {
            return Ok(());
        }
        for volume in volumes {
            match session {
                None => {
                    let freed = volume.free_deleted_subvolumes();
                    freed.context("cannot free the space of deleted subvolumes")?;
                }
                Some(session) if session.mount().is_some() && self.commit_after => {
                    volume.sync().context("cannot commit")?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn delete(
        &self,
        target: &Target,
        location: &Location,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let id = match self.subvolid {
            Some(id) => {
                if let Some(rights) = target.rights() {
                    rights
                        .administer()
                        .with_context(|| format!("Could not destroy subvolume {id}"))?;
                }
                RootId(id)
            }
            None => target.subvolume(location)?,
        };
        let subvolumes = Subvolumes::read(&target.volume)?;
        if self.recursive {
            for below in subvolumes.below(id) {
                self.delete_one(target, location, &subvolumes, below, console)?;
            }
        }
        self.delete_one(target, location, &subvolumes, id, console)
    }

    fn delete_one(
        &self,
        target: &Target,
        location: &Location,
        subvolumes: &Subvolumes,
        id: RootId,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let place = subvolumes.get(id).and_then(|info| info.place.as_ref());
        let Some(place) = place else {
            bail!("Could not destroy subvolume {id}: it stands in no directory");
        };
        let mut path = b"/".to_vec();
        path.extend(
            subvolumes
                .path(id, Some(target.root.root))
                .unwrap_or_default(),
        );
        let shown = location.with_path(path);
        if target.volume.default_subvolume()? == id {
            bail!("not deleting default subvolume id {id} '{shown}'");
        }
        if !console.quiet {
            let commit = match self.commit_each || self.commit_after {
                true => "commit",
                false => "no-commit",
            };
            writeln!(console.out, "Delete subvolume {id} ({commit}): '{shown}'")?;
        }
        if self.dry_run || console.dry_run {
            return Ok(());
        }
        if let Some(rights) = target.rights() {
            rights
                .delete_subvolume(place.dir, target.volume.root_dir(id)?)
                .with_context(|| format!("Could not destroy subvolume/snapshot '{shown}'"))?;
        }
        if target.is_mounted(id) {
            bail!("Could not destroy subvolume/snapshot '{shown}': it is mounted");
        }
        self.take_away(target, id, place)
            .map_err(|error| match error {
                Error::NotEmpty(_) => anyhow!(
                    "Could not destroy subvolume/snapshot '{shown}': it holds other subvolumes (-R \
                 deletes them)"
                ),
                error => anyhow!(error)
                    .context(format!("Could not destroy subvolume/snapshot '{shown}'")),
            })
    }

    fn take_away(&self, target: &Target, id: RootId, place: &SubvolumePlace) -> Result<(), Error> {
        let root = target.volume.root_dir(id)?;
        target.volume.delete_subvolume(place.dir, &place.name)?;
        target.entry_removed(place.dir, &place.name, root)?;
        match self.commit_each {
            true => target.volume.sync(),
            false => Ok(()),
        }
    }
}
