//! `ubtrfs filesystem label`: displays or sets the label of a volume.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use serde::Serialize;

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::quoting::Escaped;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

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

/// The exit code of a failure, as in `btrfs filesystem label`.
const FAILURE: u8 = 255;
/// The most bytes of a label.
const MAX_LABEL_BYTES: usize = 255;

#[derive(Debug, Serialize)]
struct LabelJson {
    label: String,
}

impl Label {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        console.fail_with(FAILURE);
        if let Some(label) = &self.label {
            return self.set(label.as_bytes());
        }
        let volume = self.volume.devices.open(&self.location)?;
        print(console, volume.label().as_bytes())
    }

    fn set(&self, label: &[u8]) -> anyhow::Result<()> {
        let mut changes = Changes::new(&self.volume);
        set_label(&changes.open(&self.location)?, label)?;
        changes.commit()
    }
}

impl ByIoctls for Label {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        console.fail_with(FAILURE);
        self.volume.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        match &self.label {
            Some(label) => ask_to_set_label(&asked, label.as_bytes()),
            None => print(console, &asked.label()?),
        }
    }
}

fn print(console: &mut Console, label: &[u8]) -> anyhow::Result<()> {
    if console.is_json() {
        let label = json::text(label);
        json::write_map(&mut console.out, "filesystem-label", &LabelJson { label })?;
        return Ok(());
    }
    console.out.write_all(label)?;
    Ok(console.out.write_all(b"\n")?)
}

pub(crate) fn set_label(target: &Target, label: &[u8]) -> anyhow::Result<()> {
    if let Some(rights) = target.rights() {
        rights.administer().with_context(|| not_set(label))?;
    }
    check(label)?;
    // Displayed labels are from the last commit.
    let volume = &target.volume;
    let set = volume.set_label(OsStr::from_bytes(label));
    set.and_then(|()| volume.sync())
        .reason()
        .with_context(|| not_set(label))
}

/// Sets the label of a mount.
pub(crate) fn ask_to_set_label(asked: &Asked, label: &[u8]) -> anyhow::Result<()> {
    check(label)?;
    asked.set_label(label).with_context(|| not_set(label))
}

fn not_set(label: &[u8]) -> String {
    format!("cannot set the label '{}'", Escaped(label))
}

fn check(label: &[u8]) -> anyhow::Result<()> {
    if label.len() > MAX_LABEL_BYTES {
        bail!(
            "label {} is too long (max {MAX_LABEL_BYTES})",
            Escaped(label)
        );
    }
    Ok(())
}
