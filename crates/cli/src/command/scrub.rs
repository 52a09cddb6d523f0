//! `ubtrfs scrub`: verifies and repairs everything that a volume stores.
//!
//! An image, or devices without a mount, are scrubbed by this process. In mounts the kernel or the server of the mount
//! does the work, and is reached through ioctls. The results are recorded in the files of btrfs-progs.

mod cancel;
mod limit;
mod mounted;
mod outcome;
mod record;
mod report;
mod serving;
mod start;
mod status;
mod summary;
mod target;

use crate::presentation::console::Console;
use crate::volume_access::ioctls::ByIoctls;

/// Verify checksums of data and metadata, and repair damaged copies
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Scrub {
    #[command(subcommand)]
    command: ScrubCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ScrubCommand {
    Start(start::Start),
    Cancel(cancel::Cancel),
    Resume(start::Resume),
    Status(status::Status),
    Limit(limit::Limit),
}

impl Scrub {
    pub(crate) fn knows_json(&self) -> bool {
        !matches!(self.command, ScrubCommand::Cancel(_))
    }

    pub(crate) fn by_ioctls(&self) -> Option<&dyn ByIoctls> {
        Some(match &self.command {
            ScrubCommand::Start(command) => command,
            ScrubCommand::Cancel(command) => command,
            ScrubCommand::Resume(command) => command,
            ScrubCommand::Status(command) => command,
            ScrubCommand::Limit(command) => command,
        })
    }

    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            ScrubCommand::Start(command) => command.run(console),
            ScrubCommand::Cancel(command) => command.run(console),
            ScrubCommand::Resume(command) => command.run(console),
            ScrubCommand::Status(command) => command.run(console),
            ScrubCommand::Limit(command) => command.run(console),
        }
    }
}
