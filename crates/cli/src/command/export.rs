//! `ubtrfs export --tar`: writes a directory or file as a tar archive to standard output.

use std::io::IsTerminal;

use anyhow::bail;

use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::presentation::transfer_console::{TransferConsole, TreeWork};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Write a directory or file as an archive to standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Write a tar archive (POSIX PAX, with extended attributes, ACLs, times in ns and sparse files)
    #[arg(long, required = true)]
    tar: bool,
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Export {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if std::io::stdout().is_terminal() {
            bail!("refusing to write an archive to a terminal");
        }
        let opened = self.volume.open(&self.location)?;
        let out = console.data_out()?;
        console.start_progress(COPY_PROGRESS);
        let mut observer = TransferConsole {
            console,
            verbose: false,
            work: TreeWork::Archive,
        };
        let path = self.location.path_within();
        let archived = opened.files.export_tar(path, out, &mut observer);
        Ok(archived.reason()?)
    }
}
