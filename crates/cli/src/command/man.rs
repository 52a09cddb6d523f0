//! `ubtrfs man`: the manual pages, made from the command line's definition.

use std::path::PathBuf;

use anyhow::Context;

use crate::command_line;

/// Write the manual pages into a folder
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Man {
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.dir)
            .and_then(|()| clap_mangen::generate_to(command_line::definition(), &self.dir))
            .with_context(|| format!("cannot write manual pages to '{}'", self.dir.display()))
    }
}
