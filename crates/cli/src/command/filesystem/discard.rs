//! `ubtrfs filesystem discard`: the background discards of a mount, and their limits.
//!
//! The figures are a part of the mount's statistics (`filesystem stats`). The command runs only in the server
//! of a mount.

use std::io::Write;

use anyhow::{Context, bail};
use ubtrfs::Volume;
use ubtrfs_fuse::caller::administer_mount;
use ubtrfs_fuse::stats::DiscardReport;

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::size_suffix::parse_size;
use crate::volume_access::location::Location;
use crate::volume_access::reason::Reasoned;

/// Show how a mount discards freed space, and set the limits of that
///
/// Names and units are those of /sys/fs/btrfs/FSID/discard. The limits are of the background (discard=async), from its
/// next discard on, until the volume is unmounted. Root and the user who mounted may set them.
#[derive(Debug, clap::Args)]
pub(crate) struct Discard {
    /// A path in a mount of ubtrfs
    #[arg(value_name = "DIR")]
    location: Location,
    /// Discards a second; with 0, what waits is spread over six hours
    #[arg(long, value_name = "COUNT")]
    iops: Option<u32>,
    /// KiB a second; 0 is no limit
    #[arg(long, value_name = "KIB")]
    kbps: Option<u32>,
    /// Bytes of a discard, which may end with K, M, G, T, P or E; 0 is no limit
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    max_size: Option<u64>,
}

impl Discard {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let session = self.location.session();
        let mounted = session.filter(|session| session.mount().is_some());
        let Some(session) = mounted else {
            bail!("'{}' is not in a mount of ubtrfs", self.location);
        };
        if self.sets_limits() {
            let refused = || format!("cannot set the limits of '{}'", self.location);
            if let Some(rights) = session.rights() {
                administer_mount(rights).with_context(refused)?;
            }
            self.set_limits(session.volume())
                .reason()
                .with_context(refused)?;
        }
        let report = DiscardReport::of(session.engine());
        if console.is_json() {
            json::write_map(&mut console.out, "filesystem-discard", &report.json())?;
            return Ok(());
        }
        console.out.write_all(report.text().as_bytes())?;
        Ok(console.out.write_all(report.limits_text().as_bytes())?)
    }

    fn sets_limits(&self) -> bool {
        self.iops.is_some() || self.kbps.is_some() || self.max_size.is_some()
    }

    fn set_limits(&self, volume: &Volume) -> ubtrfs::Result<()> {
        let mut limits = volume.discard_limits();
        limits.discards_per_second = self.iops.unwrap_or(limits.discards_per_second);
        limits.kib_per_second = self.kbps.unwrap_or(limits.kib_per_second);
        limits.max_bytes = self.max_size.unwrap_or(limits.max_bytes);
        volume.set_discard_limits(limits)
    }
}
