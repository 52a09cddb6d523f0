//! `ubtrfs filesystem stats`: live statistics of a mount.

use std::io::Write;

use anyhow::bail;

use crate::presentation::console::{Console, Format};
use crate::presentation::json;
use crate::volume_access::location::Location;

/// Show live statistics of a mount
///
/// The counts begin when the volume was mounted: requests by kind with how long they took, bytes, commits and their
/// phases, waits, and cache hits. With --format prometheus as Prometheus reads them.
#[derive(Debug, clap::Args)]
pub(crate) struct Stats {
    /// A path in a mount of ubtrfs
    #[arg(value_name = "DIR")]
    location: Location,
}

impl Stats {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let session = self.location.session();
        let mounted = session.and_then(|session| Some((session, session.mount()?)));
        let Some((session, stats)) =
            mounted.and_then(|(session, mount)| Some((session, mount.served.stats.as_ref()?)))
        else {
            bail!("'{}' is not in a mount of ubtrfs", self.location);
        };
        let report = stats.report(session.engine());
        match console.format {
            Format::Json => json::write_map(&mut console.out, "filesystem-stats", &report.json())?,
            Format::Text => console.out.write_all(report.text().as_bytes())?,
            Format::Prometheus => {
                let text = report.prometheus(&session.place().to_string_lossy());
                console.out.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    }
}
