//! `ubtrfs import`: an archive unpacked into a directory of a volume.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use ubtrfs::transfer::unpack::{Members, Unpacker};

use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::presentation::permissions::umask;
use crate::presentation::quoting::Escaped;
use crate::presentation::transfer_console::TransferConsole;
use crate::volume_access::changes::Changes;
use crate::volume_access::location::{Location, VolumeOptions};

/// Unpack a tar archive into a directory of a volume
///
/// Archives of GNU tar, POSIX (pax, ustar) and older ones are read. Owners are kept by their numbers, as are modes,
/// times, extended attributes, ACLs, hard links, devices and sparse files. Files that exist are replaced. Nothing
/// outside the directory is touched. Links on the way are followed as if it were the root, and a member whose path has
/// ".." is refused. A member that cannot be unpacked is reported, and the others are unpacked. An archive may be
/// compressed by gzip, zstd, xz or bzip2.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The archive is a tar archive (the only kind)
    #[arg(long)]
    tar: bool,
    /// The archive; - is standard input
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,
    #[arg(value_name = "IMAGE:/DIR")]
    location: Location,
    /// Name each file that is unpacked
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Import {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let shown = Escaped(self.archive.as_os_str().as_bytes());
        let file = self.open()?;
        let mut changes = Changes::new(&self.volume);
        let target = changes.open(&self.location)?;
        let Some(top) = target.directory(&self.location.path)? else {
            bail!("'{}' is not a directory", self.location);
        };
        let refused = || format!("cannot unpack '{shown}'");
        let mut members = Members::open(file).with_context(refused)?;
        console.start_progress(COPY_PROGRESS);
        let verbose = self.verbose || console.verbose > 0;
        let shown_top = self.location.to_outside();
        let top = (top, &*shown_top);
        let mut observer = TransferConsole { console, verbose };
        let mut unpacker = Unpacker::new(target.engine(), top, umask(), &mut observer);
        let unpacked = unpacker.all(&mut members);
        console.end_progress();
        if let Err(error) = unpacked {
            let error = anyhow::Error::from(error).context(refused());
            console.failed(&error);
        }
        // What was unpacked before an error stays.
        changes.commit()
    }

    fn open(&self) -> anyhow::Result<File> {
        let shown = Escaped(self.archive.as_os_str().as_bytes());
        if self.archive.as_os_str() == "-" {
            if self.location.session().is_some() {
                bail!("standard input is the shell's own");
            }
            if io::stdin().is_terminal() {
                bail!("refusing to read an archive from a terminal");
            }
            return Ok(File::from(rustix::io::dup(io::stdin())?));
        }
        File::open(&self.archive).with_context(|| format!("cannot open '{shown}'"))
    }
}
