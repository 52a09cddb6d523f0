//! `ubtrfs filesystem`: commands for a whole volume.

mod df;
mod discard;
mod du;
pub(crate) mod label;
mod remount;
mod resize;
mod show;
mod stats;
mod sync;
mod trim;
mod usage;

use crate::presentation::console::Console;
use crate::volume_access::ioctls::ByIoctls;

/// Show what a volume is made of and how full it is, label, resize and trim it
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Filesystem {
    #[command(subcommand)]
    command: FilesystemCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FilesystemCommand {
    Df(df::Df),
    Discard(discard::Discard),
    Du(du::Du),
    Label(label::Label),
    #[command(hide = true)]
    Remount(remount::Remount),
    Resize(resize::Resize),
    Show(show::Show),
    Stats(stats::Stats),
    Sync(sync::Sync),
    Trim(trim::Trim),
    Usage(usage::Usage),
}

impl Filesystem {
    pub(crate) fn knows_json(&self) -> bool {
        !matches!(
            self.command,
            FilesystemCommand::Remount(_) | FilesystemCommand::Sync(_)
        )
    }

    /// Returns whether it supports the Prometheus format.
    pub(crate) fn knows_prometheus(&self) -> bool {
        matches!(self.command, FilesystemCommand::Stats(_))
    }

    pub(crate) fn by_ioctls(&self) -> Option<&dyn ByIoctls> {
        match &self.command {
            FilesystemCommand::Df(command) => Some(command),
            FilesystemCommand::Du(command) => Some(command),
            FilesystemCommand::Label(command) => Some(command),
            FilesystemCommand::Resize(command) => Some(command),
            FilesystemCommand::Show(command) => Some(command),
            FilesystemCommand::Sync(command) => Some(command),
            FilesystemCommand::Trim(command) => Some(command),
            FilesystemCommand::Usage(command) => Some(command),
            _ => None,
        }
    }

    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            FilesystemCommand::Df(command) => command.run(console),
            FilesystemCommand::Discard(command) => command.run(console),
            FilesystemCommand::Du(command) => command.run(console),
            FilesystemCommand::Label(command) => command.run(console),
            FilesystemCommand::Remount(command) => command.run(),
            FilesystemCommand::Resize(command) => command.run(console),
            FilesystemCommand::Show(command) => command.run(console),
            FilesystemCommand::Stats(command) => command.run(console),
            FilesystemCommand::Sync(command) => command.run(),
            FilesystemCommand::Trim(command) => command.run(console),
            FilesystemCommand::Usage(command) => command.run(console),
        }
    }
}
