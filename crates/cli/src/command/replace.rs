//! `ubtrfs replace`: puts another device in the place of one.

mod cancel;
mod start;
mod status;

use crate::presentation::console::Console;
use crate::volume_access::ioctls::ByIoctls;

/// Replace a device of a volume
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Replace {
    #[command(subcommand)]
    command: ReplaceCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ReplaceCommand {
    Cancel(cancel::Cancel),
    Start(start::Start),
    Status(status::Status),
}

impl Replace {
    pub(crate) fn knows_json(&self) -> bool {
        matches!(self.command, ReplaceCommand::Status(_))
    }

    pub(crate) fn by_ioctls(&self) -> Option<&dyn ByIoctls> {
        match &self.command {
            ReplaceCommand::Cancel(command) => Some(command),
            ReplaceCommand::Start(command) => Some(command),
            ReplaceCommand::Status(command) => Some(command),
        }
    }

    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            ReplaceCommand::Cancel(command) => command.run(console),
            ReplaceCommand::Start(command) => command.run(console),
            ReplaceCommand::Status(command) => command.run(console),
        }
    }
}
