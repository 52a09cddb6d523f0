//! `ubtrfs completions`: a shell's completions, made from the command line's definition.

use clap_complete::Shell;

use crate::command_line;
use crate::console::Console;

/// Print the completions for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut command_line::definition(),
            "ubtrfs",
            &mut script,
        );
        Ok(std::io::Write::write_all(&mut console.out, &script)?)
    }
}
