//! `ubtrfs subvolume delete`: deletes subvolumes with their contents.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use rustix::io::Errno;
use rustix::process::geteuid;
use ubtrfs::Volume;
use ubtrfs_format::ids::RootId;

use super::{Subvolumes, all_below, ask_for_subvolume};
use crate::presentation::console::Console;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::control::mountpoint_of;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location, VolumeOptions};
use crate::volume_access::place::split;
use crate::volume_access::reason::Reasoned;

/// Delete subvolumes
///
/// Their space is freed before the command returns. In a shell it is freed at the shell's end or by 'subvolume sync',
/// and in a mount as time goes by.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Commit at the end (always done, but in a mount)
    #[arg(short = 'c', long, overrides_with = "commit_each")]
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
        self.check()?;
        let options = VolumeOptions::of_devices(&self.devices);
        let mut changes = Changes::new(&options);
        let mut volumes: Vec<Volume> = Vec::new();
        for location in &self.locations {
            let deleted = changes.open(location).and_then(|target| {
                if !volumes.iter().any(|known| known.is_same(&target.volume)) {
                    volumes.push(target.volume.clone());
                }
                self.delete(&target, location, console)
            });
            // Continue, because the other arguments may be on other volumes.
            if let Err(error) = deleted {
                console.failed(&error);
            }
        }
        let mut sessions = self.locations.iter().filter_map(Location::session);
        let session = sessions.next();
        changes.sync(console);
        if self.dry_run || console.dry_run {
            return Ok(());
        }
        for volume in volumes {
            match session {
                None => {
                    let freed = volume.free_deleted_subvolumes().reason();
                    let freed = freed.context("cannot free the space of deleted subvolumes");
                    if let Err(error) = freed {
                        console.failed(&error);
                    }
                }
                Some(session) if session.mount().is_some() && self.commit_after => {
                    volume.sync().reason().context("cannot commit")?;
                }
                Some(_) => {}
            }
        }
        changes.commit_all(console);
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.subvolid.is_some() && self.locations.len() > 1 {
            bail!("--subvolid takes one volume")
        } else {
            Ok(())
        }
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
                        .with_context(|| cannot_destroy(RootId(id)))?;
                }
                RootId(id)
            }
            None => target.subvolume(location)?,
        };
        let subvolumes = if self.recursive {
            Subvolumes::read_below(&target.volume, id)?
        } else {
            Subvolumes::read_one(&target.volume, id)?
        };
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
        if subvolumes.parent(id).is_none() {
            bail!("{}: it is in no directory", cannot_destroy(id));
        }
        let mut path = b"/".to_vec();
        path.extend(
            subvolumes
                .path(id, Some(RootId(target.files.id())))
                .unwrap_or_default(),
        );
        let shown = location.with_path(path);
        if target.volume.default_subvolume_id().reason()? == id.0 {
            bail!(is_default(id, &shown));
        }
        let is_of_image = location.session().is_none();
        self.announce(id, &shown, is_of_image, console)?;
        if self.dry_run || console.dry_run {
            return Ok(());
        }
        if target.is_mounted(id) {
            bail!("{}: it is mounted", cannot_destroy_at(&shown));
        }
        self.take_away(target, id)
            .with_context(|| cannot_destroy_at(&shown))
    }

    /// Prints a deletion before it happens. On an image, the command commits at the end with any options
    /// (`ends_with_a_commit`).
    fn announce(
        &self,
        id: RootId,
        shown: &Location,
        ends_with_a_commit: bool,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        if !console.quiet {
            let commit = if self.commit_each || self.commit_after {
                " (commit)"
            } else if ends_with_a_commit {
                ""
            } else {
                " (no-commit)"
            };
            writeln!(console.out, "Delete subvolume {id}{commit}: '{shown}'")?;
        }
        Ok(())
    }

    fn take_away(&self, target: &Target, id: RootId) -> anyhow::Result<()> {
        let root = target.volume.subvolume_by_id(id.0);
        let root = root.and_then(|subvolume| subvolume.open_dir("/"));
        let root = target.for_user(root.reason()?);
        let place = root.delete_itself().reason();
        let place = place.map_err(|error| match error.errno() {
            Errno::NOTEMPTY => anyhow!(HOLDS_OTHERS),
            _ => anyhow!(error),
        })?;
        target.subvolume_removed(&place, &root)?;
        if self.commit_each {
            Ok(target.volume.sync().reason()?)
        } else {
            Ok(())
        }
    }
}

/// The hint for users who lack permission.
const NEEDS_OPTION: &str =
    "the mount option user_subvol_rm_allowed lets users delete subvolumes that are theirs";
const HOLDS_OTHERS: &str = "it holds other subvolumes (-R deletes them)";

fn cannot_destroy(id: RootId) -> String {
    format!("Could not destroy subvolume {id}")
}

fn cannot_destroy_at(shown: &Location) -> String {
    format!("Could not destroy subvolume/snapshot '{shown}'")
}

fn is_default(id: RootId, shown: &Location) -> String {
    format!("not deleting default subvolume id {id} '{shown}'")
}

/// A subvolume to delete through ioctls.
struct Victim {
    id: RootId,
    path: PathBuf,
    /// Some if it was found by its path.
    root: Option<Asked>,
}

impl ByIoctls for Delete {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.check()?;
        self.devices.refuse_for_mount()?;
        let mut volumes = BTreeMap::new();
        for location in &self.locations {
            if let Err(error) = self.ask(location, &mut volumes, console) {
                console.failed(&error);
            }
        }
        if self.commit_after && !self.dry_run && !console.dry_run {
            for volume in volumes.values() {
                volume.sync().context("cannot commit")?;
            }
        }
        Ok(())
    }
}

impl Delete {
    /// Deletes through ioctls. Adds a directory to `volumes`, keyed by UUID, for each volume that changed.
    fn ask(
        &self,
        location: &Location,
        volumes: &mut BTreeMap<[u8; 16], Asked>,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let not_there = || format!("cannot access '{location}'");
        let path = location.written_path().canonicalize();
        let path = path.with_context(not_there)?;
        let mountpoint = mountpoint_of(&path).with_context(not_there)?;
        let (place, victim) = match self.subvolid {
            Some(id) => {
                let place = Asked::open(location)?;
                let victim = by_id(&place, RootId(id), &mountpoint)?;
                (place, victim)
            }
            None => {
                let root = ask_for_subvolume(location)?;
                let id = root.root_id()?;
                let above = path.parent().filter(|_| path != mountpoint);
                let Some(above) = above else {
                    let shown = Location::written(path.as_os_str());
                    bail!("{}: it is mounted", cannot_destroy_at(&shown));
                };
                let place = Asked::at(above).with_context(not_there)?;
                let root = Some(root);
                (place, Victim { id, path, root })
            }
        };
        let deleted = self.ask_for_all(&place, &victim, console);
        volumes.insert(place.volume_info()?.fsid, place);
        deleted
    }

    /// Deletes a subvolume through ioctls and, if requested, those below it. `place` is its parent directory
    /// or, for a subvolume given by id, any directory.
    fn ask_for_all(
        &self,
        place: &Asked,
        victim: &Victim,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        if self.recursive {
            let below = |asked: &Asked| all_below(victim.id, |id| asked.nested_subvolumes(id));
            let subvolumes = Subvolumes::ask_some(place, &victim.path, below)?;
            for id in subvolumes.below(victim.id) {
                let below = subvolumes.path(id, Some(victim.id)).unwrap_or_default();
                let path = victim.path.join(OsStr::from_bytes(&below));
                self.ask_for_one(place, (id, &path), console, || match &victim.root {
                    Some(root) => {
                        let (dir, name) = split(&below).ok_or(Errno::INVAL)?;
                        root.below(dir)?.destroy(name)
                    }
                    None => place.destroy_by_id(id),
                })?;
            }
        }
        let (id, path) = (victim.id, &victim.path);
        self.ask_for_one(place, (id, path), console, || match &victim.root {
            Some(_) => place.destroy(path.file_name().ok_or(Errno::INVAL)?.as_bytes()),
            None => place.destroy_by_id(id),
        })
    }

    fn ask_for_one(
        &self,
        place: &Asked,
        (id, path): (RootId, &Path),
        console: &mut Console,
        destroy: impl FnOnce() -> Result<(), Errno>,
    ) -> anyhow::Result<()> {
        let shown = Location::written(path.as_os_str());
        // A caller that may not read the default subvolume leaves the check to the kernel.
        if place.default_subvolume() == Ok(id) {
            bail!(is_default(id, &shown));
        }
        self.announce(id, &shown, false, console)?;
        if self.dry_run || console.dry_run {
            return Ok(());
        }
        destroy()
            .map_err(|error| match error {
                Errno::NOTEMPTY => anyhow!(HOLDS_OTHERS),
                Errno::PERM if !geteuid().is_root() => anyhow!("{error} ({NEEDS_OPTION})"),
                error => anyhow!(error),
            })
            .with_context(|| cannot_destroy_at(&shown))?;
        if self.commit_each {
            place.sync().context("cannot commit")?;
        }
        Ok(())
    }
}

fn by_id(place: &Asked, id: RootId, mountpoint: &Path) -> anyhow::Result<Victim> {
    let subvolumes = Subvolumes::ask_some(place, mountpoint, |_| Ok(vec![id]))?;
    let top = Asked::at(mountpoint).and_then(|top| top.root_id()).ok();
    let path = subvolumes.path(id, top);
    let path = path.with_context(|| format!("{}: it is in no directory", cannot_destroy(id)))?;
    let path = mountpoint.join(OsStr::from_bytes(&path));
    let root = None;
    Ok(Victim { id, path, root })
}
