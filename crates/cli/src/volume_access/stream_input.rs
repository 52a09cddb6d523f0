//! The input of a command that reads a stream: a file, or standard input.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, bail};

use crate::presentation::quoting::Escaped;

pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<File> {
    let Some(path) = path else {
        if io::stdin().is_terminal() {
            bail!("refusing to read a stream from a terminal");
        }
        return Ok(File::from(rustix::io::dup(io::stdin())?));
    };
    let shown = Escaped::of(path);
    File::open(path).with_context(|| format!("cannot open '{shown}'"))
}
