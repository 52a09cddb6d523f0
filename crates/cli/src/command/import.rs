//! `ubtrfs import`: unpacks an archive into a directory of a volume.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use ubtrfs::ImportOptions;

use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::presentation::permissions::umask;
use crate::presentation::quoting::Escaped;
use crate::presentation::transfer_console::{TransferConsole, TreeWork};
use crate::volume_access::changes::Changes;
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

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
    /// Directory to unpack into
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
        let shown = Escaped::of(&self.archive);
        let file = self.open()?;
        let mut changes = Changes::new(&self.volume);
        let target = changes.open(&self.location)?;
        if target.find_dir(&self.location)?.is_none() {
            bail!("'{}' is not a directory", self.location);
        }
        console.start_progress(COPY_PROGRESS);
        let verbose = self.verbose || console.verbose > 0;
        let shown_top = OsString::from_vec(self.location.to_outside());
        let options = ImportOptions::new().umask(umask()).shown_as(shown_top);
        let mut observer = TransferConsole {
            console,
            verbose,
            work: TreeWork::Unpack,
        };
        let top = self.location.path_within();
        let unpacked = target.files.import_tar(file, top, &options, &mut observer);
        console.end_progress();
        if let Err(error) = unpacked.reason() {
            let error = anyhow::Error::from(error).context(format!("cannot unpack '{shown}'"));
            console.failed(&error);
        }
        // Files unpacked before an error are kept.
        changes.commit()
    }

    fn open(&self) -> anyhow::Result<File> {
        let shown = Escaped::of(&self.archive);
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
