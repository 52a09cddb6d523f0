//! `ubtrfs device add`: adds devices or images to a volume.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use ubtrfs::{BlockDevice, FileDevice, NewDevice, Volume};
use ubtrfs_fuse::caller::administer_mount;

use crate::presentation::console::Console;
use crate::presentation::units::Units;
use crate::volume_access::changes::Changes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location, VolumeOptions};
use crate::volume_access::new_device::{DeviceArgument, open_new_device};
use crate::volume_access::reason::Reasoned;

/// Add one or more devices or images to a volume
#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// The devices or image files to add; their contents are lost
    #[arg(required = true, value_name = "DEVICE")]
    new: Vec<DeviceArgument>,
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Do not discard the whole device first
    #[arg(short = 'K', long)]
    nodiscard: bool,
    /// Overwrite an existing file system
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    devices: DeviceOptions,
}

impl Add {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if let Some(session) = self.location.session()
            && let Some(rights) = session.rights()
        {
            administer_mount(rights).context("cannot add devices")?;
        }
        let options = VolumeOptions::of_devices(&self.devices);
        let mut changes = Changes::new(&options);
        let target = changes.open(&self.location)?;
        let volume = target.volume.clone();
        drop(target);
        for DeviceArgument(path) in &self.new {
            let added = open_new_device(path, self.force, console)
                .and_then(|device| self.add(&volume, path, device, console));
            if let Err(error) = added {
                console.failed(&error);
            }
        }
        drop(volume);
        changes.commit()
    }

    fn add(
        &self,
        volume: &Volume,
        path: &Path,
        device: FileDevice,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        self.announce(path, &device, console)?;
        let options = NewDevice::new().discard(!self.nodiscard);
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let added = volume.add_block_device(&path, Arc::new(device), &options);
        let shown = path.display();
        added
            .reason()
            .with_context(|| format!("error adding device '{shown}'"))?;
        Ok(())
    }

    /// Announces the discard of a whole block device, which may take long.
    fn announce(
        &self,
        path: &Path,
        device: &FileDevice,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        if self.nodiscard || !device.is_block() || device.discard_geometry().is_none() {
            return Ok(());
        }
        let size = Units::default().size(device.len_bytes());
        let shown = path.display();
        Ok(writeln!(
            console.out,
            "Performing full device TRIM {shown} ({size}) ..."
        )?)
    }
}

impl ByIoctls for Add {
    /// Adds devices to a mount of the kernel, which only writes superblocks. So the old contents are erased here.
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        for DeviceArgument(path) in &self.new {
            let added = open_new_device(path, self.force, console).and_then(|device| {
                if !device.is_block() {
                    bail!("{} is not a block device", path.display());
                }
                self.announce(path, &device, console)?;
                device.erase(!self.nodiscard).reason()?;
                // The kernel opens it exclusively.
                drop(device);
                let shown = path.display();
                let added = asked.add_device(path);
                added.with_context(|| format!("error adding device '{shown}'"))
            });
            if let Err(error) = added {
                console.failed(&error);
            }
        }
        Ok(())
    }
}
