//! `ubtrfs filesystem label`: the name of a volume, shown or set.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use serde::Serialize;
use ubtrfs_format::superblock::LABEL_SIZE;

use crate::changes::{Changes, Target};
use crate::console::Console;
use crate::json;
use crate::location::{Location, VolumeOptions};
use crate::quoting::Escaped;

/// Show or set the label of a volume
#[derive(Debug, clap::Args)]
pub(crate) struct Label {
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// The new label, at most 255 bytes
    #[arg(value_name = "LABEL")]
    label: Option<OsString>,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Debug, Serialize)]
struct LabelJson {
    label: String,
}

impl Label {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if let Some(label) = &self.label {
            return self.set(label.as_bytes());
        }
        let volume = self.volume.devices.open(&self.location)?;
        let superblock = volume.superblock();
        let label = superblock.label();
        if console.is_json() {
            let label = json::text(label);
            json::write_map(&mut console.out, "filesystem-label", &LabelJson { label })?;
            return Ok(());
        }
        console.out.write_all(label)?;
        Ok(console.out.write_all(b"\n")?)
    }

    fn set(&self, label: &[u8]) -> anyhow::Result<()> {
        let mut changes = Changes::new(&self.volume);
        set_label(&changes.open(&self.location)?, label)?;
        changes.commit()
    }
}

pub(crate) fn set_label(target: &Target, label: &[u8]) -> anyhow::Result<()> {
    let shown = Escaped(label);
    let refused = || format!("cannot set the label '{shown}'");
    if let Some(rights) = target.rights() {
        rights.administer().with_context(refused)?;
    }
    if label.len() >= LABEL_SIZE {
        let max = LABEL_SIZE - 1;
        bail!("label {shown} is too long (max {max})");
    }
    // A label is shown as of the last commit.
    let volume = &target.volume;
    volume
        .set_label(label)
        .and_then(|()| volume.sync())
        .with_context(refused)
}
