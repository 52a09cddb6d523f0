//! The program as its commands know it: its command line, and how it runs a command for another process.
//!
//! The command line is made of the commands, so none of them can name it: it is passed to them.

use std::fs::File;

use clap::ArgMatches;

use crate::presentation::console::{Client, RefusalHint};

/// Functions of the whole program that commands need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// Defines the command line.
    pub(crate) definition: fn() -> clap::Command,
    /// Runs the command that was parsed for another process, and returns its exit code.
    pub(crate) run_for: fn(&ArgMatches, ClientOutput) -> anyhow::Result<u8>,
}

/// Output of a process that a command is run for.
#[derive(Debug)]
pub(crate) struct ClientOutput {
    pub(crate) stdout: File,
    pub(crate) client: Client,
    /// Advice for a caller who may not do something.
    pub(crate) if_refused: Option<RefusalHint>,
}
