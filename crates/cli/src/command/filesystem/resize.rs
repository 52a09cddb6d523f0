//! `ubtrfs filesystem resize`: the size that a volume uses of a device.

use std::io::Write;

use anyhow::{Context, bail};
use serde::Serialize;
use ubtrfs::Volume;
use ubtrfs_fuse::caller::administer_mount;

use crate::presentation::console::{Console, MOVING_PROGRESS};
use crate::presentation::json;
use crate::presentation::size_suffix::parse_size;
use crate::presentation::units::Units;
use crate::volume_access::changes::Changes;
use crate::volume_access::device_sizes::DeviceSizes;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// The kernel rounds sizes down to this unit, the smallest sector.
const SECTOR_BYTES: u64 = 4096;
/// The kernel refuses smaller sizes.
const KERNEL_MIN_BYTES: u64 = 256 << 20;

/// Resize a volume on one of its devices
///
/// An image file grows with its volume, and is truncated after the volume was made smaller. "max" is the size of the
/// device or file. Block groups beyond a smaller size are moved first.
#[derive(Debug, clap::Args)]
pub(crate) struct Resize {
    /// The new size, or a change of it with a sign; sizes may end with K, M, G, T, P or E. The device is 1 by default
    #[arg(
        value_name = "[DEVID:][+|-]SIZE|[DEVID:]max",
        allow_hyphen_values = true
    )]
    amount: String,
    #[arg(value_name = "IMAGE")]
    location: Location,
    #[command(flatten)]
    devices: DeviceOptions,
}

/// The requested size of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Max,
    Set(u64),
    Grow(u64),
    Shrink(u64),
}

#[derive(Debug, Serialize)]
struct ResizeJson {
    devid: u64,
    path: String,
    old_bytes: u64,
    new_bytes: u64,
}

impl Resize {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if let Some(session) = self.location.session()
            && let Some(rights) = session.rights()
        {
            administer_mount(rights).with_context(|| self.failure())?;
        }
        let options = VolumeOptions::of_devices(&self.devices);
        let mut changes = Changes::new(&options);
        let volume = changes.open(&self.location)?.volume;
        self.resize(&volume, console)?;
        drop(volume);
        changes.commit()
    }

    fn resize(&self, volume: &Volume, console: &mut Console) -> anyhow::Result<()> {
        let (device, amount) = self.requested(DeviceSizes::of(volume))?;
        let new_bytes = self.announce(&device, amount, console)?;
        let resized = console.count_bytes(MOVING_PROGRESS, |progress| {
            volume.resize_device(device.devid, new_bytes, progress)
        });
        resized.reason().with_context(|| self.failure())?;
        self.print_json(&device, new_bytes, console)
    }

    /// Returns the device and its requested size.
    fn requested(&self, devices: Vec<DeviceSizes>) -> anyhow::Result<(DeviceSizes, Amount)> {
        let (devid, amount) = parse(&self.amount)?;
        let mut devices = devices.into_iter();
        let device = devices.find(|device| device.devid == devid);
        let device = device.with_context(|| format!("cannot find devid: {devid}"))?;
        Ok((device, amount))
    }

    /// Prints the change, as btrfs-progs does even if it fails later. Returns the new size.
    fn announce(
        &self,
        device: &DeviceSizes,
        amount: Amount,
        console: &mut Console,
    ) -> anyhow::Result<u64> {
        let new_bytes = amount.apply(device)?;
        if !console.is_json() {
            let old = Units::default().size(device.size);
            let new = match amount {
                Amount::Max => "max".to_owned(),
                _ => Units::default().size(new_bytes),
            };
            let (devid, path) = (device.devid, device.shown());
            writeln!(
                console.out,
                "Resize device id {devid} ({path}) from {old} to {new}"
            )?;
        }
        Ok(new_bytes)
    }

    fn print_json(
        &self,
        device: &DeviceSizes,
        new_bytes: u64,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        if console.is_json() {
            let report = ResizeJson {
                devid: device.devid,
                path: device.shown(),
                old_bytes: device.size,
                new_bytes,
            };
            json::write_map(&mut console.out, "filesystem-resize", &report)?;
        }
        Ok(())
    }

    fn failure(&self) -> String {
        let shown = self.location.shown_volume();
        format!("unable to resize '{shown}'")
    }
}

impl ByIoctls for Resize {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        let (device, amount) = self.requested(DeviceSizes::ask(&asked)?)?;
        let new_bytes = self.announce(&device, amount, console)?;
        if new_bytes < KERNEL_MIN_BYTES {
            let shown = Units::default().size(new_bytes);
            console.warning(format_args!(
                "the new size {new_bytes} ({shown}) is < 256MiB, this may be rejected by kernel"
            ));
        }
        let resized = asked.resize(&self.amount);
        resized.with_context(|| self.failure())?;
        self.print_json(&device, new_bytes, console)
    }
}

impl Amount {
    fn apply(self, device: &DeviceSizes) -> anyhow::Result<u64> {
        let old = device.size;
        let new_bytes = match self {
            Amount::Max => device.device_size,
            Amount::Set(bytes) => bytes,
            Amount::Grow(bytes) => old
                .checked_add(bytes)
                .with_context(|| format!("increasing {bytes} is out of range"))?,
            Amount::Shrink(bytes) => old.checked_sub(bytes).with_context(|| {
                let size = |bytes| Units::default().size(bytes);
                let (old, bytes) = (size(old), size(bytes));
                format!("current size is {old} which is smaller than {bytes}")
            })?,
        };
        Ok(new_bytes - new_bytes % SECTOR_BYTES)
    }
}

/// Splits an argument into the devid and the size.
fn parse(text: &str) -> anyhow::Result<(u64, Amount)> {
    let (devid, size) = match text.split_once(':') {
        None => (1, text),
        Some((devid, size)) => match devid.parse() {
            Ok(devid) => (devid, size),
            Err(_) => bail!("failed to parse devid {devid}"),
        },
    };
    if size == "max" {
        return Ok((devid, Amount::Max));
    }
    let parsed = |digits: &str| {
        let bytes = parse_size(digits).ok();
        bytes.with_context(|| format!("failed to parse size {digits}"))
    };
    let amount = if let Some(digits) = size.strip_prefix('+') {
        Amount::Grow(parsed(digits)?)
    } else if let Some(digits) = size.strip_prefix('-') {
        Amount::Shrink(parsed(digits)?)
    } else {
        Amount::Set(parsed(size)?)
    };
    Ok((devid, amount))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_has_an_optional_device_and_sign() {
        let cases = [
            ("max", (1, Amount::Max)),
            ("3:max", (3, Amount::Max)),
            ("+1g", (1, Amount::Grow(1 << 30))),
            ("2:-4096", (2, Amount::Shrink(4096))),
            ("300m", (1, Amount::Set(300 << 20))),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_in_the_words_of_btrfs_progs() {
        let refusal = |text| parse(text).unwrap_err().to_string();
        assert_eq!(refusal("1:xyz"), "failed to parse size xyz");
        assert_eq!(refusal("cancel"), "failed to parse size cancel");
        assert_eq!(refusal("x:1g"), "failed to parse devid x");
    }
}
