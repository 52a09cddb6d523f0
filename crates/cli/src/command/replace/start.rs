//! `ubtrfs replace start`: replaces a device by another one.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context, bail};
use ubtrfs::{BlockDevice, Event, FileDevice, NewDevice, Volume};
use ubtrfs_fuse::caller::administer_mount;

use crate::presentation::console::{Console, REPLACE_PROGRESS};
use crate::presentation::units::Units;
use crate::volume_access::changes::Changes;
use crate::volume_access::device_sizes::DeviceSizes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location, VolumeOptions};
use crate::volume_access::new_device::{DeviceArgument, devid_of, open_new_device};
use crate::volume_access::reason::Reasoned;

/// Replace a device of a volume by another device or image
///
/// All data is copied and verified, and bad sectors are read from other mirrors or rebuilt. The volume stays
/// in use. Then the superblocks of the old device are erased. A missing device is named by its id. The command ends
/// when the copy is complete.
#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    /// The device to replace, by its path or id
    #[arg(value_name = "SRCDEV|DEVID")]
    source: DeviceArgument,
    /// The new device, at least as large; its contents are lost
    #[arg(value_name = "TARGETDEV")]
    target: DeviceArgument,
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Do not background; the command never does
    #[arg(short = 'B')]
    _foreground: bool,
    /// Read from the old device only if no other mirror is good
    #[arg(short = 'r')]
    prefer_mirrors: bool,
    /// Overwrite an existing file system on the new device
    #[arg(short, long)]
    force: bool,
    /// Do not discard the whole new device first
    #[arg(short = 'K', long)]
    nodiscard: bool,
    #[command(flatten)]
    devices: DeviceOptions,
}

impl Start {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if let Some(session) = self.location.session()
            && let Some(rights) = session.rights()
        {
            administer_mount(rights).context("cannot replace a device")?;
        }
        let options = VolumeOptions::of_devices(&self.devices);
        let mut changes = Changes::new(&options);
        let volume = changes.open(&self.location)?.volume;
        let devid = match self.source.devid() {
            Some(devid) => devid,
            None => devid_of(&volume, &self.source)?,
        };
        let device = self.target(DeviceSizes::of(&volume), devid, console)?;
        self.replace(&volume, devid, device, console)?;
        drop(volume);
        changes.commit()
    }

    /// Opens the new device, and checks its size.
    fn target(
        &self,
        devices: Vec<DeviceSizes>,
        devid: u64,
        console: &mut Console,
    ) -> anyhow::Result<FileDevice> {
        let mut devices = devices.into_iter();
        let Some(source) = devices.find(|device| device.devid == devid) else {
            let place = self.location.shown_volume();
            bail!("'{devid}' is not a valid devid for filesystem '{place}'");
        };
        let path = &self.target.0;
        let device = open_new_device(path, self.force, console)?;
        let required = source.size;
        if device.len_bytes() < required {
            bail!("target device smaller than source device (required {required} bytes)");
        }
        if !self.nodiscard && device.is_block() && device.discard_geometry().is_some() {
            let size = Units::default().size(device.len_bytes());
            let shown = path.display();
            writeln!(
                console.out,
                "Performing full device TRIM {shown} ({size}) ..."
            )?;
        }
        Ok(device)
    }

    fn replace(
        &self,
        volume: &Volume,
        devid: u64,
        device: FileDevice,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        let options = NewDevice::new().discard(!self.nodiscard);
        let path = &self.target.0;
        let path = path.canonicalize().unwrap_or_else(|_| path.clone());
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        console.start_progress(REPLACE_PROGRESS);
        let mut observe = |event: &Event<'_>| {
            if let (Event::Advance { bytes }, Some(bar)) = (event, console.progress()) {
                bar.inc(*bytes);
            }
            if console.client_has_gone() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let prefer = self.prefer_mirrors;
        let replaced =
            volume.replace_by_block_device(devid, &path, &device, &options, prefer, &mut observe);
        console.end_progress();
        let replaced = replaced
            .reason()
            .with_context(|| format!("cannot replace device {devid}"))?;
        let bad = replaced.uncorrectable;
        if bad > 0 {
            console.warning(format_args!(
                "{bad} sectors or tree blocks had no good copy, and were copied as they are"
            ));
        }
        Ok(())
    }
}

impl ByIoctls for Start {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        let devices = DeviceSizes::ask(&asked)?;
        let devid = match self.source.devid() {
            Some(devid) => devid,
            None => DeviceSizes::named(&devices, &self.source.0)
                .context("source device must be a block device or a devid")?,
        };
        let device = self.target(devices, devid, console)?;
        device.erase(!self.nodiscard).reason()?;
        // The kernel opens it exclusively.
        drop(device);
        asked.replace_device(devid, &self.target.0, self.prefer_mirrors)
    }
}
