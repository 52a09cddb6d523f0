//! The destination of a stream: a file, or standard output unless it is a terminal.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{anyhow, bail};
use indicatif::ProgressBar;
use ubtrfs::Volume;

use crate::presentation::console::Console;
use crate::volume_access::reason::Reason;
use crate::volume_access::stream_output;

const BUFFER_BYTES: usize = 1 << 20;

pub(super) enum Output {
    File(BufWriter<File>),
    Standard,
}

/// Writes the bytes of a stream, and displays their number.
pub(super) struct Sink<'o> {
    out: &'o mut (dyn Write + Send),
    progress: Option<ProgressBar>,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.out.write(bytes)?;
        if let Some(bar) = &self.progress {
            bar.inc(len as u64);
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Output {
    pub(super) fn open(path: Option<&Path>, console: &Console) -> anyhow::Result<Output> {
        match path {
            Some(path) => Ok(Output::File(BufWriter::with_capacity(
                BUFFER_BYTES,
                stream_output::create(path)?,
            ))),
            None if console.is_terminal() => {
                bail!("not dumping send stream into a terminal, redirect it into a file")
            }
            None => Ok(Output::Standard),
        }
    }

    pub(super) fn sink<'o>(&'o mut self, console: &'o mut Console) -> Sink<'o> {
        let progress = console.progress().cloned();
        let out: &mut (dyn Write + Send) = match self {
            Output::File(file) => file,
            Output::Standard => &mut console.out,
        };
        Sink { out, progress }
    }

    pub(super) fn finish(&mut self, console: &mut Console) -> anyhow::Result<()> {
        self.sink(console).flush().map_err(stream_failure)
    }
}

/// Truncates the file that the client of a mount has opened, unless it is an image of the volume.
pub(super) fn cut(file: &File, path: &Path, volume: &Volume) -> anyhow::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(());
    }
    let is_read = volume.devices().iter().any(|device| {
        let image = device.path.as_deref().and_then(|path| path.metadata().ok());
        image.is_some_and(|image| (image.dev(), image.ino()) == (metadata.dev(), metadata.ino()))
    });
    if is_read {
        bail!("cannot write the stream to the image that is read");
    }
    stream_output::refuse_volume(file, path)?;
    stream_output::cut(file)
}

/// Checks that standard output is not a terminal.
pub(super) fn refuse_terminal() -> anyhow::Result<()> {
    if io::stdout().is_terminal() {
        bail!("not dumping send stream into a terminal, redirect it into a file")
    } else {
        Ok(())
    }
}

/// Returns the error of a failed write. Other commands end silently when the reader goes away. Here the
/// stream is incomplete, so it is an error.
pub(super) fn stream_failure(cause: impl fmt::Display) -> anyhow::Error {
    anyhow!("failed to write the stream: {cause}")
}

pub(super) fn send_failure(error: ubtrfs::Error) -> anyhow::Error {
    if !error.is_of_stream() {
        return Reason::from(error).into();
    }
    let source = error.source();
    match source.and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(source) => stream_failure(source),
        None => stream_failure(error.reason()),
    }
}
