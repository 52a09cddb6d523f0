//! `ubtrfs device remove`: removes devices from a volume.

use anyhow::Context;
use ubtrfs::Volume;
use ubtrfs_fuse::caller::administer_mount;

use crate::presentation::console::{Console, MOVING_PROGRESS};
use crate::volume_access::changes::Changes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location, VolumeOptions};
use crate::volume_access::new_device::{DeviceArgument, devid_of};
use crate::volume_access::reason::Reasoned;

/// The word for the first device that is missing.
const MISSING: &str = "missing";

/// Remove devices from a volume
///
/// Their block groups are moved to the devices that are left, and their superblocks are erased. The profiles of the
/// volume must do with the devices that are left.
#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    /// The paths or ids of the devices; "missing" is the first one that is missing
    #[arg(required = true, value_name = "DEVICE|DEVID")]
    removed: Vec<DeviceArgument>,
    #[arg(value_name = "IMAGE")]
    location: Location,
    #[command(flatten)]
    devices: DeviceOptions,
}

impl Remove {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if let Some(session) = self.location.session()
            && let Some(rights) = session.rights()
        {
            administer_mount(rights).context("cannot remove devices")?;
        }
        let options = VolumeOptions::of_devices(&self.devices);
        let mut changes = Changes::new(&options);
        let volume = changes.open(&self.location)?.volume;
        for device in &self.removed {
            if let Err(error) = remove(&volume, device, console).with_context(|| failure(device)) {
                console.failed(&error);
            }
        }
        drop(volume);
        changes.commit()
    }
}

impl ByIoctls for Remove {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        for device in &self.removed {
            let removed = match device.devid() {
                Some(devid) => asked.remove_device_by_id(devid),
                None => asked.remove_device(&device.0),
            };
            if let Err(error) = removed.with_context(|| failure(device)) {
                console.failed(&error);
            }
        }
        Ok(())
    }
}

fn remove(volume: &Volume, device: &DeviceArgument, console: &mut Console) -> anyhow::Result<()> {
    let devid = match device.devid() {
        Some(devid) => devid,
        None if device.is(MISSING) => volume.missing_device_id().reason()?,
        None => devid_of(volume, device)?,
    };
    let removed = console.count_bytes(MOVING_PROGRESS, |progress| {
        volume.remove_device(devid, progress)
    });
    Ok(removed.reason()?)
}

fn failure(device: &DeviceArgument) -> String {
    match device.devid() {
        Some(devid) => format!("error removing devid {devid}"),
        None => format!("error removing device '{}'", device.0.display()),
    }
}
