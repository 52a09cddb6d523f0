//! `ubtrfs filesystem`: a volume as a whole.

mod df;
mod du;
mod label;
mod show;
mod usage;

use crate::console::Console;

/// Show what a volume is made of and how full it is
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Filesystem {
    #[command(subcommand)]
    command: FilesystemCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FilesystemCommand {
    Df(df::Df),
    Du(du::Du),
    Label(label::Label),
    Show(show::Show),
    Usage(usage::Usage),
}

impl Filesystem {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            FilesystemCommand::Df(command) => command.run(console),
            FilesystemCommand::Du(command) => command.run(console),
            FilesystemCommand::Label(command) => command.run(console),
            FilesystemCommand::Show(command) => command.run(console),
            FilesystemCommand::Usage(command) => command.run(console),
        }
    }
}
