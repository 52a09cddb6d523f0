//! The commands: a file each, a folder for each group.
//!
//! A command is a struct of options, whose doc comment is its help, with a `run`.

mod completions;
mod inspect_internal;
mod man;

use crate::console::Console;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Completions(completions::Completions),
    InspectInternal(inspect_internal::InspectInternal),
    Man(man::Man),
}

impl Command {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match self {
            Command::Completions(command) => command.run(console),
            Command::InspectInternal(group) => group.run(console),
            Command::Man(command) => command.run(),
        }
    }
}
