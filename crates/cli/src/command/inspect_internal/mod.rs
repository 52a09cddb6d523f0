//! `ubtrfs inspect-internal`: how a volume is made inside.

use crate::console::Console;

/// Look at the insides of a volume
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct InspectInternal {
    #[command(subcommand)]
    command: InspectCommand,
}

#[derive(Debug, clap::Subcommand)]
enum InspectCommand {}

impl InspectInternal {
    pub(crate) fn run(&self, _console: &mut Console) -> anyhow::Result<()> {
        match self.command {}
    }
}
