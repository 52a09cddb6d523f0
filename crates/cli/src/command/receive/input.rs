//! The stream to read, from this process or from the client that the command runs for.

use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::bail;

use crate::presentation::console::Console;
use crate::volume_access::stream_input;

const BUFFER_BYTES: usize = 1 << 20;

/// Opens the stream. With `is_shared`, data after the stream belongs to another process and must not be read.
pub(super) fn open(
    path: Option<&Path>,
    is_shared: bool,
    console: &mut Console,
) -> anyhow::Result<Box<dyn Read>> {
    if let Some(input) = console.take_client_input() {
        return Ok(buffered(input, is_shared));
    }
    // The client's paths and standard input differ from this process's.
    if console.is_of_client() {
        bail!("the command sent no stream");
    }
    let file = stream_input::open(path)?;
    Ok(buffered(file, is_shared))
}

fn buffered(input: impl Read + 'static, is_shared: bool) -> Box<dyn Read> {
    if is_shared {
        Box::new(input)
    } else {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, input))
    }
}
