//! `ubtrfs device scan`: finds devices with btrfs, and registers them with the kernel.
//!
//! ubtrfs itself has no register: it searches for the devices of a volume when it opens one. The kernel's
//! btrfs needs its register for mounts, and scripts fill it in advance.

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ubtrfs::scan_devices;
use ubtrfs_device::KernelRegister;

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;

#[cfg(test)]
mod tests;

/// Look for devices with btrfs on them, and register them with the kernel
///
/// The kernel's btrfs mounts a volume of several devices once all are registered. Images are looked at and not
/// registered: ubtrfs finds the devices of a volume when it is opened, where --device and --scan say.
#[derive(Debug, clap::Args)]
pub(crate) struct Scan {
    /// Look at these devices or images instead of at all block devices
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// Look at all block devices
    #[arg(short = 'd', long)]
    all_devices: bool,
    /// Have the kernel forget these devices, or all that are not mounted
    #[arg(short = 'u', long, conflicts_with = "all_devices")]
    forget: bool,
}

impl Scan {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if self.forget {
            self.forget()
        } else if self.devices.is_empty() || self.all_devices {
            scan_all(console)
        } else {
            self.scan_named(console)
        }
    }

    fn scan_named(&self, console: &mut Console) -> anyhow::Result<()> {
        for device in &self.devices {
            if !console.quiet {
                let shown = shown(device);
                writeln!(console.out, "Scanning for btrfs filesystems on '{shown}'")?;
            }
            refuse_other(device)?;
            if is_block(device)
                && let Some(register) = open_register()?
            {
                let registered = register.add(device);
                registered.with_context(|| format!("device scan failed on '{}'", shown(device)))?;
            }
        }
        Ok(())
    }

    fn forget(&self) -> anyhow::Result<()> {
        for device in self.devices.iter().filter(|device| !is_block(device)) {
            refuse_other(device)?;
        }
        let Some(register) = open_register()? else {
            return Ok(());
        };
        if self.devices.is_empty() {
            return register.forget(None).context("cannot unregister devices");
        }
        for device in self.devices.iter().filter(|device| is_block(device)) {
            let forgotten = register.forget(Some(device));
            forgotten.with_context(|| format!("cannot unregister device '{}'", shown(device)))?;
        }
        Ok(())
    }
}

fn scan_all(console: &mut Console) -> anyhow::Result<()> {
    if !console.quiet {
        writeln!(console.out, "Scanning for Btrfs filesystems")?;
    }
    let found = scan_devices(&["/dev"]);
    let register = if found.is_empty() {
        None
    } else {
        open_register()?
    };
    let mut failed = 0;
    for device in &found {
        let shown = shown(&device.path);
        let add = |register: &KernelRegister| {
            register_if_present(&device.path, |path| register.add(path))
        };
        let did = match register.as_ref().map(add) {
            Some(Ok(true)) => "registered",
            Some(Ok(false)) => continue,
            None => "found",
            Some(Err(error)) => {
                console.warning(format_args!("device scan failed on '{shown}': {error}"));
                failed += 1;
                continue;
            }
        };
        if !console.quiet {
            writeln!(console.out, "{did}: {shown}")?;
        }
    }
    if failed > 0 {
        bail!("{failed} devices could not be registered");
    }
    Ok(())
}

/// Registers a device that a scan found. Returns false if it has no btrfs any longer.
///
/// A loop device or a disk may go away after the scan has read it. Then the kernel's error says nothing about a volume.
fn register_if_present(device: &Path, add: impl Fn(&Path) -> io::Result<()>) -> io::Result<bool> {
    let is_present = || !scan_devices(&[device]).is_empty();
    match add(device) {
        Ok(()) => return Ok(true),
        Err(_) if !is_present() => return Ok(false),
        // The path may have another device since: only a second error is certainly its own.
        Err(_) => {}
    }
    match add(device) {
        Ok(()) => Ok(true),
        Err(_) if !is_present() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens the kernel's register. Returns None if the kernel has no btrfs.
pub(super) fn open_register() -> anyhow::Result<Option<KernelRegister>> {
    KernelRegister::open().context("cannot open /dev/btrfs-control")
}

pub(super) fn is_block(path: &Path) -> bool {
    let metadata = path.metadata();
    metadata.is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Refuses a path without btrfs.
fn refuse_other(device: &Path) -> anyhow::Result<()> {
    if device.is_dir() || scan_devices(&[device]).is_empty() {
        bail!("'{}' is not a btrfs device", shown(device));
    }
    Ok(())
}

fn shown(path: &Path) -> Escaped<'_> {
    Escaped::of(path)
}
