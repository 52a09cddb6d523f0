//! `ubtrfs device ready`: whether all devices of a volume are there.

use std::path::PathBuf;

use anyhow::bail;
use ubtrfs::scan;

use crate::presentation::quoting::Escaped;

/// Check whether all devices of a volume are present
///
/// The block devices of the machine and the directories of --scan are searched. Exit code 0: all devices are present;
/// 1: some are missing.
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
            bail!("not a btrfs device: '{shown}'");
        };
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
