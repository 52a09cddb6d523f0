//! `ubtrfs filesystem trim`: discards free space, like fstrim(8) on a mount.

use std::io::Write;

use anyhow::Context;
use serde::Serialize;
use ubtrfs::{TrimOptions, Volume};
use ubtrfs_fuse::caller::administer_mount;

use crate::presentation::console::{Console, TRIM_PROGRESS};
use crate::presentation::json;
use crate::presentation::quoting::Escaped;
use crate::presentation::size_suffix::parse_size;
use crate::presentation::units::Units;
use crate::volume_access::changes::Changes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Discard all free space, in images as holes and on SSDs by TRIM
///
/// Free space in the range is discarded, and then all space outside chunks, whatever the range is. The total that is
/// printed counts each copy of a profile. On a mount, root and the user who mounted may trim; fstrim(8) does the same
/// there.
#[derive(Debug, clap::Args)]
pub(crate) struct Trim {
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Begin at this logical address; sizes may end with K, M, G, T, P or E
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "0")]
    start: u64,
    /// Discard in this many bytes from there; without it, up to the end
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    length: Option<u64>,
    /// Skip free extents that are shorter
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "0")]
    minimum: u64,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Debug, Serialize)]
struct TrimJson {
    start: u64,
    length: Option<u64>,
    minimum: u64,
    trimmed_bytes: u64,
}

impl Trim {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let bytes = match self.location.session() {
            Some(session) => {
                if let Some(rights) = session.rights() {
                    self.volume.refuse_for_mount()?;
                    administer_mount(rights).with_context(|| self.not_trimmed())?;
                }
                self.trim(session.volume(), console)?
            }
            None => {
                let mut changes = Changes::new(&self.volume);
                let target = changes.open(&self.location)?;
                let bytes = self.trim(&target.volume, console)?;
                drop(target);
                changes.commit()?;
                bytes
            }
        };
        self.print(bytes, console)
    }

    fn trim(&self, volume: &Volume, console: &mut Console) -> anyhow::Result<u64> {
        let mut options = TrimOptions::new().start(self.start).min_bytes(self.minimum);
        if let Some(length) = self.length {
            options = options.len(length);
        }
        let trimmed =
            console.count_bytes(TRIM_PROGRESS, |progress| volume.trim(&options, progress));
        trimmed.reason().with_context(|| self.not_trimmed())
    }

    fn not_trimmed(&self) -> String {
        format!("cannot trim '{}'", self.shown())
    }

    /// Returns the image, or the path in a mount.
    fn shown(&self) -> String {
        match self.location.session() {
            Some(_) => self.location.to_string(),
            None => Escaped::of(self.location.image.as_path()).to_string(),
        }
    }

    fn print(&self, bytes: u64, console: &mut Console) -> anyhow::Result<()> {
        if console.is_json() {
            let report = TrimJson {
                start: self.start,
                length: self.length,
                minimum: self.minimum,
                trimmed_bytes: bytes,
            };
            json::write_map(&mut console.out, "filesystem-trim", &report)?;
            return Ok(());
        }
        let shown = Units::default().size(bytes);
        let place = self.shown();
        Ok(writeln!(
            console.out,
            "{place}: {shown} ({bytes} bytes) trimmed"
        )?)
    }
}

impl ByIoctls for Trim {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        let len = self.length.unwrap_or(u64::MAX);
        let bytes = asked
            .trim(self.start, len, self.minimum)
            .with_context(|| self.not_trimmed())?;
        self.print(bytes, console)
    }
}
