//! `IMAGE:/path`: which volume is meant, and what in it.
//!
//! An image's name may hold colons and a path within a volume may hold `:/`. Of the places where the
//! argument could be split, the last one counts whose left part exists and is not a folder.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::builder::{MapValueParser, OsStringValueParser, TypedValueParser, ValueParserFactory};
use ubtrfs_engine::{FileId, OpenOptions, Volume};
use ubtrfs_format::ids::RootId;

use crate::quoting::Escaped;

#[cfg(test)]
mod tests;

/// A volume and a path within it, as written on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    pub(crate) image: PathBuf,
    /// Begins with a slash.
    pub(crate) path: Vec<u8>,
}

impl Location {
    pub(crate) fn parse(argument: &OsStr) -> Location {
        Location::parse_with(argument, &|path| path.exists() && !path.is_dir())
    }

    fn parse_with(argument: &OsStr, is_image: &dyn Fn(&Path) -> bool) -> Location {
        let bytes = argument.as_bytes();
        let split_at = |at: usize| Location {
            image: PathBuf::from(OsStr::from_bytes(&bytes[..at])),
            path: bytes[at + 1..].to_vec(),
        };
        let whole = Location {
            image: PathBuf::from(argument),
            path: b"/".to_vec(),
        };
        if is_image(&whole.image) {
            return whole;
        }
        let splits: Vec<usize> = (1..bytes.len())
            .rev()
            .filter(|&at| bytes[at..].starts_with(b":/"))
            .collect();
        splits
            .iter()
            .map(|&at| split_at(at))
            .find(|split| is_image(&split.image))
            .or_else(|| splits.first().map(|&at| split_at(at)))
            .unwrap_or(whole)
    }

    /// The last name of the path; None for the root.
    pub(crate) fn file_name(&self) -> Option<&[u8]> {
        let mut names = self.path.split(|&byte| byte == b'/');
        names.rfind(|name| !name.is_empty() && *name != b".")
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = Escaped(self.image.as_os_str().as_bytes());
        write!(f, "{image}:{}", Escaped(&self.path))
    }
}

/// Parsing never fails, opening does.
impl ValueParserFactory for Location {
    type Parser = MapValueParser<OsStringValueParser, fn(OsString) -> Location>;

    fn value_parser() -> Self::Parser {
        OsStringValueParser::new().map(|argument| Location::parse(&argument))
    }
}

/// Which devices a volume is opened from, besides the one that is named.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Volume")]
pub(crate) struct DeviceOptions {
    /// Another device or image of the same volume; repeat for each
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// Look for the volume's other devices in this folder (/dev: among the block devices); repeat for more
    #[arg(long = "scan", value_name = "DIR")]
    scan: Vec<PathBuf>,
    /// Go on although devices are missing, as far as the profiles allow
    #[arg(long)]
    degraded: bool,
}

impl DeviceOptions {
    /// For commands that name all devices as arguments.
    pub(crate) fn scanning(scan: Vec<PathBuf>, degraded: bool) -> DeviceOptions {
        DeviceOptions {
            devices: Vec::new(),
            scan,
            degraded,
        }
    }

    pub(crate) fn open(&self, image: &Path) -> anyhow::Result<Arc<Volume>> {
        self.open_all(std::slice::from_ref(&image.to_owned()))
    }

    pub(crate) fn open_all(&self, images: &[PathBuf]) -> anyhow::Result<Arc<Volume>> {
        for image in images {
            check_accessible(image)?;
        }
        let mut paths = images.to_vec();
        paths.extend(self.devices.iter().cloned());
        let options = OpenOptions::new()
            .degraded(self.degraded)
            .scan(self.scan.clone());
        Volume::open(&paths, &options).with_context(|| {
            format!(
                "cannot open '{}'",
                Escaped(images[0].as_os_str().as_bytes())
            )
        })
    }

    /// The same, with missing devices allowed if these options or `degraded` say so.
    pub(crate) fn or_degraded(self, degraded: bool) -> DeviceOptions {
        DeviceOptions {
            degraded: self.degraded || degraded,
            ..self
        }
    }

    pub(crate) fn scan_places(&self) -> &[PathBuf] {
        &self.scan
    }

    pub(crate) fn devices(&self) -> &[PathBuf] {
        &self.devices
    }
}

/// Says what a script's author most likely did wrong, before the volume layer says what it found.
fn check_accessible(image: &Path) -> anyhow::Result<()> {
    let shown = Escaped(image.as_os_str().as_bytes());
    let metadata = std::fs::metadata(image).with_context(|| format!("cannot access '{shown}'"))?;
    if metadata.is_dir() {
        bail!(
            "'{shown}' is a directory, not an image or a device; a path within one is IMAGE:/path"
        );
    }
    Ok(())
}

/// Which subvolume paths begin at.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Volume")]
pub(crate) struct VolumeOptions {
    #[command(flatten)]
    pub(crate) devices: DeviceOptions,
    /// Paths begin at the subvolume at this path (from the top level) instead of at the default one
    #[arg(long, value_name = "PATH", conflicts_with = "subvolid")]
    subvol: Option<OsString>,
    /// Paths begin at the subvolume of this id instead of at the default one; 5 is the top level
    #[arg(long, value_name = "ID")]
    subvolid: Option<u64>,
}

/// An open volume and what was named in it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) volume: Arc<Volume>,
    /// The directory that stands for "/".
    pub(crate) root: FileId,
    /// What the path leads to. A link at its end is not followed.
    pub(crate) target: FileId,
}

impl VolumeOptions {
    pub(crate) fn open(&self, location: &Location) -> anyhow::Result<Opened> {
        let volume = self.devices.open(&location.image)?;
        self.find(volume, location)
    }

    /// What `location` means in a volume that is open already.
    pub(crate) fn find(&self, volume: Arc<Volume>, location: &Location) -> anyhow::Result<Opened> {
        let root = self.root(&volume)?;
        let target = volume
            .resolve(root, &location.path)
            .with_context(|| format!("cannot access '{location}'"))?;
        Ok(Opened {
            volume,
            root,
            target,
        })
    }

    /// The root directory of the subvolume that the options name.
    pub(crate) fn root(&self, volume: &Volume) -> anyhow::Result<FileId> {
        if let Some(path) = &self.subvol {
            let shown = Escaped(path.as_bytes());
            let top = volume.root_dir(RootId::FS_TREE)?;
            let found = volume
                .resolve(top, path.as_bytes())
                .with_context(|| format!("cannot find subvolume '{shown}'"))?;
            if found.is_stub() || volume.root_dir(found.root)? != found {
                bail!("'{shown}' is not a subvolume");
            }
            return Ok(found);
        }
        let id = match self.subvolid {
            // The kernel takes 0 as the top level as well.
            Some(0) => RootId::FS_TREE,
            Some(id) => RootId(id),
            None => volume.default_subvolume()?,
        };
        Ok(volume.root_dir(id)?)
    }
}
