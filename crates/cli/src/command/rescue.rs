//! `ubtrfs rescue`: repairs for damaged volumes.

mod zero_log;

use crate::presentation::console::Console;

/// Make a damaged volume usable
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Rescue {
    #[command(subcommand)]
    command: RescueCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RescueCommand {
    ZeroLog(zero_log::ZeroLog),
}

impl Rescue {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            RescueCommand::ZeroLog(command) => command.run(console),
        }
    }
}
