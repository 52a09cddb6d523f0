//! The program as seen by its commands: its command line, and the way to run a command for another process.
//!
//! The command line consists of the commands, so none of them can refer to it directly. It is passed to them
//! instead.

use std::fs::File;

use clap::ArgMatches;

use crate::presentation::console::{Client, RefusalHint};

/// Functions of the whole program that commands need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// Defines the command line.
    pub(crate) definition: fn() -> clap::Command,
    /// Runs a parsed command for another process, and returns its exit code.
    pub(crate) run_for: fn(&ArgMatches, ClientOutput) -> anyhow::Result<u8>,
}

/// The output of a client process that a command runs for.
#[derive(Debug)]
pub(crate) struct ClientOutput {
    pub(crate) stdout: File,
    pub(crate) client: Client,
    /// A hint for callers whose operation is refused.
    pub(crate) if_refused: Option<RefusalHint>,
}
