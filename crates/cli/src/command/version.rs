//! `ubtrfs version`

use std::io::Write;

use crate::presentation::console::Console;

/// Print the version
#[derive(Debug, clap::Args)]
pub(crate) struct Version {}

impl Version {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        Ok(writeln!(
            console.out,
            "ubtrfs v{}",
            env!("CARGO_PKG_VERSION")
        )?)
    }
}
