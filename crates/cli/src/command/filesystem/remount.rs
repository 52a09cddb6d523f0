//! `ubtrfs filesystem remount`: runs in the server of a mount for `mount -o remount`.

use std::ffi::OsString;

use anyhow::bail;

use crate::volume_access::location::{Location, VolumeOptions};

/// Take other options for a mount
#[derive(Debug, clap::Args)]
pub(crate) struct Remount {
    /// Options, separated by commas
    #[arg(value_name = "OPTIONS")]
    words: OsString,
    /// A path in a mount of ubtrfs
    #[arg(value_name = "DIR")]
    location: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Remount {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let session = self.location.session();
        let Some((session, mount)) = session.and_then(|session| Some((session, session.mount()?)))
        else {
            bail!("'{}' is not in a mount", self.location);
        };
        Ok(mount.served.live.change(&self.words, session.engine())?)
    }
}
