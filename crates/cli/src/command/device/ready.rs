//! `ubtrfs device ready`: checks whether all devices of a volume are present.

use std::path::PathBuf;

use anyhow::{Context, bail};
use ubtrfs::scan;

use super::scan::{is_block, open_register};
use crate::presentation::quoting::Escaped;

/// Check whether all devices of a volume are present
///
/// A block device is registered with the kernel's btrfs, which knows the devices of its volume. For an image, with
/// --scan, or without btrfs in the kernel, the block devices of the machine and the directories of --scan are searched.
/// Exit code 0: all devices are present; 1: some are missing.
#[derive(Debug, clap::Args)]
pub(crate) struct Ready {
    /// One of the devices or images
    device: PathBuf,
    /// Search this directory as well; repeat for more
    #[arg(long = "scan", value_name = "DIR")]
    scan: Vec<PathBuf>,
}

impl Ready {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let shown = Escaped::of(&self.device);
        let named = scan(&[&self.device]).into_iter().next();
        let Some(named) = named.filter(|_| !self.device.is_dir()) else {
            bail!("'{shown}' is not a btrfs device");
        };
        if self.scan.is_empty()
            && is_block(&self.device)
            && let Some(register) = open_register()?
        {
            let is_ready = register.is_ready(&self.device).with_context(|| {
                format!("unable to determine if device '{shown}' is ready for mounting")
            })?;
            if !is_ready {
                bail!("not all devices of volume {} are registered", named.uuid);
            }
            return Ok(());
        }
        let mut places = vec![self.device.clone(), PathBuf::from("/dev")];
        places.extend(self.scan.iter().cloned());
        let mut found = scan(&places).into_iter();
        let volume = found.find(|volume| volume.uuid == named.uuid);
        let volume = volume.unwrap_or(named);
        if volume.missing_devices() > 0 {
            bail!(
                "volume {} has {} devices, and {} are present",
                volume.uuid,
                volume.total_devices,
                volume.devices.len()
            );
        }
        Ok(())
    }
}
