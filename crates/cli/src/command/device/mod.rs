//! `ubtrfs device`: the devices of a volume.

mod usage;

use crate::console::Console;

/// Show the devices of a volume
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Device {
    #[command(subcommand)]
    command: DeviceCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DeviceCommand {
    Usage(usage::Usage),
}

impl Device {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            DeviceCommand::Usage(command) => command.run(console),
        }
    }
}
