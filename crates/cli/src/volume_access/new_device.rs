//! Devices and images that a command overwrites, or names by their path.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParserFactory};
use rustix::io::Errno;
use ubtrfs::{DeviceAccess, FileDevice, Volume};

use crate::presentation::console::Console;
use crate::volume_access::location::is_same_file;
use crate::volume_access::reason::Reasoned;

/// The path or the devid of a device. A relative path is one of the user's directory, also if the server of a mount
/// runs the command.
#[derive(Clone, Debug)]
pub(crate) struct DeviceArgument(pub(crate) PathBuf);

impl DeviceArgument {
    /// Returns the devid, if it is one.
    pub(crate) fn devid(&self) -> Option<u64> {
        self.0.to_str()?.parse().ok()
    }

    pub(crate) fn is(&self, word: &str) -> bool {
        self.0.as_os_str() == word
    }

    /// Returns the argument as an absolute path, unless it is no path.
    pub(crate) fn resolve(argument: &OsStr) -> PathBuf {
        let path = PathBuf::from(argument);
        if DeviceArgument(path.clone()).devid().is_some() || !path.exists() {
            return path;
        }
        std::path::absolute(&path).unwrap_or(path)
    }
}

impl ValueParserFactory for DeviceArgument {
    type Parser = clap::builder::MapValueParser<
        OsStringValueParser,
        fn(std::ffi::OsString) -> DeviceArgument,
    >;

    fn value_parser() -> Self::Parser {
        OsStringValueParser::new().map(|argument| DeviceArgument(argument.into()))
    }
}

/// Returns the devid of a device of the volume.
pub(crate) fn devid_of(volume: &Volume, device: &DeviceArgument) -> anyhow::Result<u64> {
    let devices = volume.devices().into_iter();
    let mut own = devices.filter_map(|known| Some((known.path?, known.id)));
    match own.find(|(path, _)| is_same_file(path, &device.0)) {
        Some((_, devid)) => Ok(devid),
        None if device.0.exists() => bail!("it is no device of the volume"),
        None => Err(Errno::NOENT.into()),
    }
}

/// Opens a device for writing. Refuses one with known contents, unless it may be overwritten.
pub(crate) fn open_new_device(
    path: &Path,
    force: bool,
    console: &mut Console,
) -> anyhow::Result<FileDevice> {
    // Opened for writing, as this detects whether another process uses it.
    let device = FileDevice::open(path, DeviceAccess::Write).reason()?;
    if !force {
        refuse_to_overwrite(path, &device, console)?;
    }
    Ok(device)
}

fn refuse_to_overwrite(
    path: &Path,
    device: &FileDevice,
    console: &mut Console,
) -> anyhow::Result<()> {
    let shown = path.display();
    let found = device.signature().reason();
    let found = found
        .with_context(|| format!("probe of {shown} failed, cannot detect existing filesystem"))?;
    if let Some(signature) = found {
        console.error(format_args!("{shown} appears to contain {signature}"));
        bail!("use the -f option to force overwrite of {shown}");
    }
    Ok(())
}
