//! `ubtrfs rescue zero-log`: drops a pending fsync log that cannot be replayed.
//!
//! As in btrfs-progs, devices may be missing. A missing device keeps its log, which extends the same commit.
//! If the device returns before the next commit, the log can still be replayed.

use std::io::Write;

use anyhow::Context;
use clap::ValueHint;
use ubtrfs::{ClearedLog, DeviceAccess, DeviceName, Volume, memory_limit};

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::volume_access::held;
use crate::volume_access::location::DeviceOptions;
use crate::volume_access::reason::Reasoned;

/// Clear the fsync log of a volume that is not mounted
///
/// Data that was synced since the last commit is lost. Only a volume whose log is damaged needs this: no other mount
/// than a read-only one without the log is possible then.
#[derive(Debug, clap::Args)]
pub(crate) struct ZeroLog {
    /// A device or an image of the volume
    #[arg(value_name = "DEVICE", value_hint = ValueHint::AnyPath)]
    device: DeviceName,
    #[command(flatten)]
    devices: DeviceOptions,
}

impl ZeroLog {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let shown = Escaped::of(self.device.as_path()).to_string();
        let cleared = self
            .clear()
            .with_context(|| format!("cannot clear the log on '{shown}'"))?;
        for devid in &cleared.missing_devices {
            console.warning(format_args!(
                "device {devid} is missing: its copy of the log remains"
            ));
        }
        if !console.quiet {
            let (root, level) = (cleared.log_root.unwrap_or(0), cleared.level);
            writeln!(
                console.out,
                "Clearing log on {shown}, previous log_root {root}, level {level}"
            )?;
        }
        Ok(())
    }

    fn clear(&self) -> anyhow::Result<ClearedLog> {
        let names = self.devices.all_named(std::slice::from_ref(&self.device))?;
        let places = self.devices.places(&names, DeviceAccess::Write)?;
        let builder = Volume::builder()
            .memory_bytes(memory_limit())
            .degraded(true)
            .scan(places);
        let clear = || Ok(builder.clone().clear_log(&names).reason()?);
        held::when_free(held::FOR_COMMANDS, clear).map_err(held::name_the_mount)
    }
}
