//! `ubtrfs subvolume`: subvolumes and snapshots.

mod create;
mod delete;
mod diff;
mod find_new;
mod get_default;
mod list;
mod set_default;
mod show;
mod snapshot;
mod sync;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail};
use ubtrfs_engine::{FileId, SubvolumeInfo, Volume};
use ubtrfs_format::ids::RootId;

use crate::presentation::console::Console;
use crate::volume_access::control::mountpoint_of;
use crate::volume_access::ioctls::{self, Asked, ByIoctls};
use crate::volume_access::location::Location;

/// Show, make and delete subvolumes and snapshots
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Subvolume {
    #[command(subcommand)]
    command: SubvolumeCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SubvolumeCommand {
    Create(create::Create),
    Delete(delete::Delete),
    Diff(diff::DiffSnapshots),
    FindNew(find_new::FindNew),
    GetDefault(get_default::GetDefault),
    List(list::List),
    SetDefault(set_default::SetDefault),
    Show(show::Show),
    Snapshot(snapshot::Snapshot),
    Sync(sync::Sync),
}

impl Subvolume {
    pub(crate) fn knows_json(&self) -> bool {
        matches!(
            self.command,
            SubvolumeCommand::Diff(_)
                | SubvolumeCommand::FindNew(_)
                | SubvolumeCommand::GetDefault(_)
                | SubvolumeCommand::List(_)
                | SubvolumeCommand::Show(_)
        )
    }

    pub(crate) fn knows_dry_run(&self) -> bool {
        matches!(self.command, SubvolumeCommand::Delete(_))
    }

    pub(crate) fn by_ioctls(&self) -> Option<&dyn ByIoctls> {
        match &self.command {
            SubvolumeCommand::Create(command) => Some(command),
            SubvolumeCommand::Delete(command) => Some(command),
            SubvolumeCommand::Diff(_) => None,
            SubvolumeCommand::GetDefault(command) => Some(command),
            SubvolumeCommand::List(command) => Some(command),
            SubvolumeCommand::SetDefault(command) => Some(command),
            SubvolumeCommand::Show(command) => Some(command),
            SubvolumeCommand::Snapshot(command) => Some(command),
            SubvolumeCommand::FindNew(command) => Some(command),
            SubvolumeCommand::Sync(command) => Some(command),
        }
    }

    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            SubvolumeCommand::Create(command) => command.run(console),
            SubvolumeCommand::Delete(command) => command.run(console),
            SubvolumeCommand::Diff(command) => command.run(console),
            SubvolumeCommand::FindNew(command) => command.run(console),
            SubvolumeCommand::GetDefault(command) => command.run(console),
            SubvolumeCommand::List(command) => command.run(console),
            SubvolumeCommand::SetDefault(command) => command.run(console),
            SubvolumeCommand::Show(command) => command.run(console),
            SubvolumeCommand::Snapshot(command) => command.run(console),
            SubvolumeCommand::Sync(command) => command.run(console),
        }
    }
}

/// A new subvolume is put into no quota group.
fn refuse_qgroups(qgroups: &[OsString]) -> anyhow::Result<()> {
    match qgroups.is_empty() {
        true => Ok(()),
        false => bail!("-i is not supported: ubtrfs does not write quota groups"),
    }
}

/// The root directory of one in a mount.
fn ask_for_subvolume(location: &Location) -> anyhow::Result<Asked> {
    let asked = Asked::open(location)?;
    let is_one = asked.is_subvolume();
    match is_one.with_context(|| format!("cannot access '{location}'"))? {
        true => Ok(asked),
        false => bail!("Not a Btrfs subvolume: '{location}'"),
    }
}

/// The subvolumes of a volume with their places, and their paths.
#[derive(Debug)]
struct Subvolumes {
    by_id: BTreeMap<RootId, SubvolumeInfo>,
    /// The path of each within the subvolume that holds it; none for one that stands nowhere.
    paths: BTreeMap<RootId, Vec<u8>>,
    /// Where paths begin.
    top: RootId,
    /// Whether there are no others; of those that are deleted nobody is told who does not see all.
    is_all: bool,
}

impl Subvolumes {
    fn read(volume: &Volume) -> anyhow::Result<Subvolumes> {
        let infos = volume.subvolumes()?;
        let dir_path = |dir| volume.path_in_subvolume(dir).ok();
        Ok(Subvolumes::of(infos, RootId::FS_TREE, dir_path))
    }

    /// Those of a mount, as far as the caller may know of them; `asked` is what a location leads to.
    fn ask_at(asked: &Asked, location: &Location) -> anyhow::Result<Subvolumes> {
        let path = location.written_path().canonicalize();
        let mountpoint = path.and_then(|path| mountpoint_of(&path));
        let mountpoint = mountpoint.with_context(|| format!("cannot access '{location}'"))?;
        Subvolumes::ask(asked, &mountpoint)
    }

    /// Asks a mount from any place in it. A caller who may not see all subvolumes gets those below `top`.
    fn ask(asked: &Asked, top: &Path) -> anyhow::Result<Subvolumes> {
        let found =
            ioctls::Subvolumes::ask(asked, top).context("cannot see which subvolumes there are")?;
        let dir_path = |dir| found.dirs.get(&dir).cloned();
        let seen = Subvolumes::of(found.infos, found.top, dir_path);
        Ok(Subvolumes {
            is_all: found.is_all,
            ..seen
        })
    }

    /// `dir_path` gives the path of a directory in its subvolume.
    fn of(
        infos: Vec<SubvolumeInfo>,
        top: RootId,
        dir_path: impl Fn(FileId) -> Option<Vec<u8>>,
    ) -> Subvolumes {
        let mut by_id = BTreeMap::new();
        let mut paths = BTreeMap::new();
        for info in infos {
            if let Some(place) = &info.place
                && let Some(mut path) = dir_path(place.dir)
            {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&place.name);
                paths.insert(info.id, path);
            }
            by_id.insert(info.id, info);
        }
        Subvolumes {
            by_id,
            paths,
            top,
            is_all: true,
        }
    }

    /// The one that a directory is the root of, if it was not seen: a directory above may not be for the caller to read.
    fn add(&mut self, root: &Asked) -> anyhow::Result<()> {
        let info = ioctls::info_of(&root.subvolume_info()?);
        self.by_id.entry(info.id).or_insert(info);
        Ok(())
    }

    fn get(&self, id: RootId) -> Option<&SubvolumeInfo> {
        self.by_id.get(&id)
    }

    fn all(&self) -> impl Iterator<Item = &SubvolumeInfo> {
        self.by_id.values()
    }

    /// The path from `from` if that holds the subvolume, else from the top; None if it stands
    /// nowhere, being deleted.
    fn path(&self, id: RootId, from: Option<RootId>) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = id;
        // A loop of subvolumes would come back to one that was seen.
        for _ in 0..=self.by_id.len() {
            names.push(self.paths.get(&at)?.as_slice());
            let parent = self.parent(at)?;
            if parent == self.top || Some(parent) == from {
                names.reverse();
                return Some(names.join(&b'/'));
            }
            at = parent;
        }
        None
    }

    /// All that are below a subvolume, each before the one that holds it.
    fn below(&self, id: RootId) -> Vec<RootId> {
        let mut found = vec![id];
        let mut seen = 0;
        while let Some(&above) = found.get(seen) {
            seen += 1;
            for info in self.all() {
                if self.parent(info.id) == Some(above) && !found.contains(&info.id) {
                    found.push(info.id);
                }
            }
        }
        found.split_off(1).into_iter().rev().collect()
    }

    /// The subvolume that holds this one.
    fn parent(&self, id: RootId) -> Option<RootId> {
        Some(self.get(id)?.place.as_ref()?.dir.root)
    }
}

/// The transaction that made a subvolume; volumes of old kernels know it of snapshots only.
fn made_in(info: &SubvolumeInfo) -> u64 {
    match (info.item.otransid.get(), info.snapshot_transid) {
        (0, Some(transid)) => transid.0,
        (otransid, _) => otransid,
    }
}
