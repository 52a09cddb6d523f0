//! `ubtrfs device`: the devices of a volume.

mod add;
mod ready;
mod remove;
mod scan;
mod stats;
mod usage;

use super::replace::Replace;
use crate::presentation::console::Console;
use crate::volume_access::ioctls::ByIoctls;

/// Show the devices of a volume, add and remove them
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Device {
    #[command(subcommand)]
    command: DeviceCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DeviceCommand {
    Add(add::Add),
    Ready(ready::Ready),
    Replace(Replace),
    #[command(visible_alias = "delete")]
    Remove(remove::Remove),
    Scan(scan::Scan),
    Stats(stats::Stats),
    Usage(usage::Usage),
}

impl Device {
    pub(crate) fn knows_json(&self) -> bool {
        match &self.command {
            DeviceCommand::Stats(_) | DeviceCommand::Usage(_) => true,
            DeviceCommand::Replace(group) => group.knows_json(),
            _ => false,
        }
    }

    pub(crate) fn by_ioctls(&self) -> Option<&dyn ByIoctls> {
        match &self.command {
            DeviceCommand::Add(command) => Some(command),
            DeviceCommand::Remove(command) => Some(command),
            DeviceCommand::Replace(group) => group.by_ioctls(),
            DeviceCommand::Stats(command) => Some(command),
            DeviceCommand::Usage(command) => Some(command),
            _ => None,
        }
    }

    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            DeviceCommand::Add(command) => command.run(console),
            DeviceCommand::Ready(command) => command.run(),
            DeviceCommand::Remove(command) => command.run(console),
            DeviceCommand::Replace(group) => group.run(console),
            DeviceCommand::Scan(command) => command.run(console),
            DeviceCommand::Stats(command) => command.run(console),
            DeviceCommand::Usage(command) => command.run(console),
        }
    }
}
