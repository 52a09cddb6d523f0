//! `ubtrfs device scan`: which devices have btrfs on them.
//!
//! For scripts that call it before they mount: ubtrfs keeps no register of devices, it looks for those of a volume
//! when it opens one.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;
use ubtrfs::scan_devices;

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;

/// Look for devices with btrfs on them
///
/// Nothing is registered: the devices of a volume are looked for when it is opened, where --device and --scan say.
#[derive(Debug, clap::Args)]
pub(crate) struct Scan {
    /// Look at these devices or images instead of at all block devices
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// Look at all block devices
    #[arg(short = 'd', long)]
    all_devices: bool,
    /// Accepted for scripts: there is nothing to forget
    #[arg(short = 'u', long)]
    forget: bool,
}

impl Scan {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if self.forget {
            return Ok(());
        }
        if self.devices.is_empty() || self.all_devices {
            if !console.quiet {
                writeln!(console.out, "Scanning for Btrfs filesystems")?;
            }
            for device in scan_devices(&["/dev"]) {
                if !console.quiet {
                    writeln!(console.out, "found: {}", shown(&device.path))?;
                }
            }
            return Ok(());
        }
        for device in &self.devices {
            if !console.quiet {
                let shown = shown(device);
                writeln!(console.out, "Scanning for btrfs filesystems on '{shown}'")?;
            }
            if device.is_dir() || scan_devices(&[device]).is_empty() {
                bail!("not a btrfs device: '{}'", shown(device));
            }
        }
        Ok(())
    }
}

fn shown(path: &Path) -> Escaped<'_> {
    Escaped::of(path)
}
