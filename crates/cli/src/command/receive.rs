//! `ubtrfs receive`: the commands of a send stream as text. Receiving itself is not supported.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use jiff::tz::TimeZone;
use ubtrfs_stream::DumpError;

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::print::IsoTime;

const BUFFER_BYTES: usize = 1 << 20;

/// Show the commands of a stream that 'btrfs send' made
///
/// Only --dump is supported: nothing is received. Streams of version 1 and 2 are read, up to their end. The text is that of
/// 'btrfs receive --dump'.
#[derive(Debug, clap::Args)]
pub(crate) struct Receive {
    /// Print a line for each command of the stream
    #[arg(long)]
    dump: bool,
    /// Read the stream from FILE and not from standard input
    #[arg(short, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    receiving: Receiving,
}

/// Options of btrfs-progs that have a meaning only when a stream is received. They are known so that the refusal is about
/// receiving, and not about them.
#[derive(Debug, clap::Args)]
struct Receiving {
    #[arg(short = 'e', hide = true)]
    end_at_end: bool,
    #[arg(short = 'C', long, hide = true)]
    chroot: bool,
    #[arg(short = 'E', long, hide = true)]
    max_errors: Option<OsString>,
    #[arg(short = 'm', hide = true)]
    root_mount: Option<OsString>,
    #[arg(long, hide = true)]
    force_decompress: bool,
    #[arg(hide = true, conflicts_with = "dump")]
    destination: Vec<OsString>,
}

impl Receive {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if !self.dump {
            bail!("'receive' is not supported by ubtrfs, except 'receive --dump'");
        }
        let zone = TimeZone::system();
        let local_time = |seconds| IsoTime(seconds, &zone);
        match ubtrfs_stream::dump(self.open()?, &mut console.out, local_time) {
            Ok(()) => Ok(()),
            Err(DumpError::Write(error)) => Err(error.into()),
            Err(DumpError::Stream(error)) => {
                Err(anyhow::Error::from(error).context("failed to dump the send stream"))
            }
        }
    }

    fn open(&self) -> anyhow::Result<Box<dyn Read>> {
        let Some(path) = &self.file else {
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
}
