//! Where a stream comes from: a file, or standard input.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail};

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;

const BUFFER_BYTES: usize = 1 << 20;

/// Opens the stream for reading.
pub(super) fn open(path: Option<&Path>, _console: &mut Console) -> anyhow::Result<Box<dyn Read>> {
    let Some(path) = path else {
        if io::stdin().is_terminal() {
            bail!("refusing to read a stream from a terminal");
        }
        let file = File::from(rustix::io::dup(io::stdin())?);
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, file)));
    };
    let shown = Escaped(path.as_os_str().as_bytes());
    let file = File::open(path).with_context(|| format!("cannot open '{shown}'"))?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, file)))
}
