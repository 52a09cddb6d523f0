//! `ubtrfs subvolume`: subvolumes and snapshots.

mod create;
mod delete;
mod diff;
mod find_new;
mod get_default;
mod list;
mod listed;
mod set_default;
mod show;
mod snapshot;
mod sync;

use anyhow::{Context, bail};

use self::listed::{Listed, Subvolumes, all_below, mountpoint};
use crate::arguments::qgroup_id::QgroupId;
use crate::presentation::console::Console;
use crate::volume_access::ioctls::{Asked, ByIoctls, Inherited};
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

/// Quota groups that a new subvolume is put into, by the kernel alone.
#[derive(Clone, Debug, clap::Args)]
struct Qgroups {
    /// Put the new subvolume into a quota group, on a mount of the kernel's btrfs; repeat for more
    #[arg(short = 'i', value_name = "LEVEL/ID")]
    qgroups: Vec<QgroupId>,
}

impl Qgroups {
    fn refuse(&self) -> anyhow::Result<()> {
        if self.qgroups.is_empty() {
            Ok(())
        } else {
            bail!("-i is not supported: ubtrfs does not write quota groups")
        }
    }

    /// Returns them in the form for the file system of `dir`.
    fn inherited_in(&self, dir: &Asked) -> anyhow::Result<Inherited> {
        if !dir.is_kernels()? {
            self.refuse()?;
        }
        Ok(Inherited::of(&self.qgroups))
    }
}

/// Opens the root directory of a subvolume in a mount.
fn ask_for_subvolume(location: &Location) -> anyhow::Result<Asked> {
    let asked = Asked::open(location)?;
    let is_one = asked.is_subvolume();
    if is_one.with_context(|| format!("cannot access '{location}'"))? {
        Ok(asked)
    } else {
        bail!("'{location}' is not a subvolume")
    }
}
