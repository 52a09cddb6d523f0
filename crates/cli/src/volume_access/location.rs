//! `IMAGE:/path`: a volume and a path within it.
//!
//! Not here: where an argument is split, and names of devices (`DeviceName`).

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::ValueHint;
use clap::builder::{TypedValueParser, ValueParserFactory};
use ubtrfs::{
    DeviceAccess, DeviceName, DiscardMode, Subvolume, Volume, memory_limit, sibling_devices,
};

use crate::presentation::quoting::Escaped;
use crate::volume_access::held;
use crate::volume_access::joined::{is_joined, split_joined};
use crate::volume_access::reason::{Reason, Reasoned};
use crate::volume_access::session::Session;

#[cfg(test)]
mod tests;

/// A volume and a path within it, as written on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub(crate) image: DeviceName,
    /// Further devices of the volume, named before the path.
    others: Vec<DeviceName>,
    /// Begins with a slash.
    pub(crate) path: Vec<u8>,
    /// The session of the shell or mount, if the path is in its volume.
    session: Option<Arc<Session>>,
    /// The original text of a path in a mount.
    written: Option<Vec<u8>>,
    /// Whether it is outside the mount that other arguments are in.
    is_elsewhere: bool,
}

impl Location {
    /// Creates a location from a path in the volume of a shell or a mount.
    pub(crate) fn within(session: &Arc<Session>, argument: &[u8]) -> Location {
        let path = session.absolute(argument);
        Location {
            image: session.place().into(),
            others: Vec::new(),
            is_elsewhere: path.is_none(),
            path: path.unwrap_or_else(|| argument.to_vec()),
            session: Some(Arc::clone(session)),
            written: session.mount().map(|_| argument.to_vec()),
        }
    }

    /// Returns another path in the same volume.
    pub(crate) fn with_path(&self, path: Vec<u8>) -> Location {
        Location {
            path,
            written: None,
            ..self.clone()
        }
    }

    fn of_image(image: DeviceName, path: Vec<u8>) -> Location {
        Location {
            image,
            others: Vec::new(),
            path,
            session: None,
            written: None,
            is_elsewhere: false,
        }
    }

    /// Returns the notation of a path in the same volume for use outside of it.
    pub(crate) fn outside(&self, path: &[u8]) -> Vec<u8> {
        match &self.session {
            Some(session) => session.outside(path),
            None => [self.image.as_os_str().as_bytes(), b":", path].concat(),
        }
    }

    /// Returns its own path in the original notation.
    pub(crate) fn to_outside(&self) -> Vec<u8> {
        match &self.written {
            Some(written) => written.clone(),
            None => self.outside(&self.path),
        }
    }

    /// Creates a location from a path in a mount, for a command that uses ioctls itself.
    pub(crate) fn written(path: &OsStr) -> Location {
        Location {
            written: Some(path.as_bytes().to_vec()),
            ..Location::of_image(DeviceName::Path(path.into()), b"/".to_vec())
        }
    }

    /// Returns the original path in a mount.
    pub(crate) fn written_path(&self) -> &Path {
        self.image.as_path()
    }

    /// Returns the image, or the path in a mount, for messages on the whole volume.
    pub(crate) fn shown_volume(&self) -> String {
        match &self.session {
            Some(_) => self.to_string(),
            None => Escaped::of(self.image.as_path()).to_string(),
        }
    }

    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// Refuses a location that is mounted read-only. A single bind mount may be read-only, regardless of the
    /// volume.
    pub(crate) fn must_be_writable(&self) -> anyhow::Result<()> {
        let mount = self.session.as_ref().and_then(|session| session.mount());
        let written = self.written.as_deref().unwrap_or_default();
        if mount.is_some_and(|mount| mount.is_read_only_at(written)) {
            bail!("'{self}' is mounted read-only")
        } else {
            Ok(())
        }
    }

    /// Creates the location of the root of an image.
    pub(crate) fn of_whole(image: &OsStr) -> Location {
        Location::of_image(image.into(), b"/".to_vec())
    }

    pub(crate) fn parse(argument: &OsStr) -> Location {
        let (others, last) = split_joined(argument);
        let (image, path) = DeviceName::split(last);
        Location {
            others,
            ..Location::of_image(image, path)
        }
    }

    /// Returns whether an argument names a device and nothing in its volume.
    pub(crate) fn is_whole(&self, argument: &OsStr) -> bool {
        self.image.as_os_str() == argument
    }

    /// Returns all devices that the argument names, the one at the path first.
    pub(crate) fn images(&self) -> Vec<DeviceName> {
        let own = std::iter::once(&self.image);
        own.chain(&self.others).cloned().collect()
    }

    /// Returns whether both name a device or image in common. Locations within a session do not.
    pub(crate) fn shares_image(&self, other: &Location) -> bool {
        let others = other.images();
        self.images().iter().any(|own| {
            let is_own =
                |name: &DeviceName| name == own || is_same_file(name.as_path(), own.as_path());
            others.iter().any(is_own)
        })
    }

    /// Returns the path within the volume, for the library.
    pub(crate) fn path_within(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// Returns the last name of the path, or None for the root.
    pub(crate) fn file_name(&self) -> Option<&[u8]> {
        let mut names = self.path.split(|&byte| byte == b'/');
        names.rfind(|name| !name.is_empty() && *name != b".")
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_in_shell = self.session.as_ref().is_some_and(|s| s.mount().is_none());
        if is_in_shell {
            write!(f, "{}", Escaped(&self.path))
        } else {
            write!(f, "{}", Escaped(&self.to_outside()))
        }
    }
}

/// A parser of locations. Parsing never fails, but opening may.
#[derive(Clone, Debug, Default)]
pub(crate) enum LocationParser {
    /// An image, or a path in one.
    #[default]
    Split,
    /// Images without a path.
    Images,
    /// Paths in mounts, for commands that use ioctls themselves.
    Written,
    Within(Arc<Session>),
}

impl LocationParser {
    pub(crate) fn within(session: &Arc<Session>) -> LocationParser {
        LocationParser::Within(Arc::clone(session))
    }

    /// Returns the command line with this parser for its locations.
    pub(crate) fn put_into(&self, command: clap::Command) -> clap::Command {
        let command = command.mut_args(|arg| {
            if arg.get_value_parser().type_id() == TypeId::of::<Location>() {
                arg.value_parser(self.clone())
            } else {
                arg
            }
        });
        command.mut_subcommands(|command| self.put_into(command))
    }
}

impl TypedValueParser for LocationParser {
    type Value = Location;

    fn parse_ref(
        &self,
        _: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Location, clap::Error> {
        Ok(match self {
            LocationParser::Within(session) => Location::within(session, value.as_bytes()),
            LocationParser::Written => Location::written(value),
            LocationParser::Images if is_joined(value) => Location::parse(value),
            LocationParser::Images => Location::of_whole(value),
            LocationParser::Split => Location::parse(value),
        })
    }
}

impl ValueParserFactory for Location {
    type Parser = LocationParser;

    fn value_parser() -> LocationParser {
        LocationParser::default()
    }
}

/// Which devices a volume is opened from, besides the one that is named.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Volume")]
pub(crate) struct DeviceOptions {
    /// Another device or image of the same volume; repeat for each
    #[arg(long = "device", value_name = "DEVICE", value_hint = ValueHint::AnyPath)]
    devices: Vec<DeviceName>,
    /// Search this directory for the volume's other devices (/dev: all block devices), instead of the directory of the
    /// one that is named; repeat for more
    #[arg(long = "scan", value_name = "DIR")]
    scan: Vec<PathBuf>,
    /// Open the volume even if devices are missing, as far as the profiles allow
    #[arg(long)]
    degraded: bool,
    /// The volume to read if the disks hold several: its UUID or label, or the name of its array or LVM volume
    #[arg(long = "volume", value_name = "NAME")]
    volume: Option<String>,
    /// Searches no devices in addition to the named ones.
    #[arg(skip)]
    only_named: bool,
    /// Opens the state of the last commit, without the fsync log.
    #[arg(skip)]
    as_committed: bool,
    /// Accepts a damaged root tree or chunk tree.
    #[arg(skip)]
    for_inspection: bool,
    /// Does not discard freed space.
    #[arg(skip)]
    no_discard: bool,
    /// Does not write changes of only times to the volume.
    #[arg(skip)]
    lazy_times: bool,
}

impl DeviceOptions {
    /// Creates options for commands that name devices as arguments.
    pub(crate) fn scanning(scan: Vec<PathBuf>, degraded: bool) -> DeviceOptions {
        DeviceOptions {
            scan,
            degraded,
            ..DeviceOptions::default()
        }
    }

    /// Uses only the named devices.
    pub(crate) fn only_named(self, only_named: bool) -> DeviceOptions {
        DeviceOptions { only_named, ..self }
    }

    /// Returns options for commands that display the contents of devices, even if the fsync log cannot be
    /// replayed.
    pub(crate) fn as_committed(&self) -> DeviceOptions {
        DeviceOptions {
            as_committed: true,
            ..self.clone()
        }
    }

    /// Returns options for commands that display tree blocks, even if the top trees are damaged.
    pub(crate) fn for_inspection(&self) -> DeviceOptions {
        DeviceOptions {
            for_inspection: true,
            ..self.clone()
        }
    }

    pub(crate) fn open(&self, location: &Location) -> anyhow::Result<Volume> {
        self.open_for(location, DeviceAccess::Read)
    }

    pub(crate) fn open_for(
        &self,
        location: &Location,
        access: DeviceAccess,
    ) -> anyhow::Result<Volume> {
        let Some(session) = location.session() else {
            return self.open_images(&location.images(), access);
        };
        if location.is_elsewhere {
            bail!("'{}' is not in the same volume", Escaped(&location.path));
        }
        match session.rights() {
            None if self.names_devices() => {
                bail!(
                    "the shell's volume is open already: name its devices when the shell is started"
                );
            }
            Some(_) => {
                self.refuse_for_mount()?;
                session
                    .check_reach(&location.path)
                    .with_context(|| format!("cannot access '{location}'"))?;
            }
            None => {}
        }
        session.volume_for(access)
    }

    fn names_devices(&self) -> bool {
        let names_some = !self.devices.is_empty() || !self.scan.is_empty();
        names_some || self.degraded || self.volume.is_some()
    }

    pub(crate) fn refuse_for_mount(&self) -> anyhow::Result<()> {
        if self.names_devices() {
            bail!("the volume is mounted already: name its devices when it is mounted")
        } else {
            Ok(())
        }
    }

    /// Opens a volume from all of its images.
    pub(crate) fn open_locations(&self, locations: &[Location]) -> anyhow::Result<Volume> {
        match locations {
            [location] if location.session().is_some() => self.open(location),
            [first, ..] if first.session().is_some() => {
                bail!("only one volume can be named if it is mounted")
            }
            locations => {
                let images: Vec<_> = locations.iter().flat_map(Location::images).collect();
                self.open_all(&images)
            }
        }
    }

    pub(crate) fn open_all(&self, images: &[DeviceName]) -> anyhow::Result<Volume> {
        self.open_images(images, DeviceAccess::Read)
    }

    fn open_images(&self, images: &[DeviceName], access: DeviceAccess) -> anyhow::Result<Volume> {
        let builder = match access {
            DeviceAccess::Read => Volume::builder().read_only(true),
            // A command commits at its end.
            DeviceAccess::Write => Volume::builder().commit_interval(None),
        };
        let builder = if self.no_discard {
            builder.discard(Some(DiscardMode::None))
        } else {
            builder
        };
        let builder = if self.for_inspection {
            builder.for_inspection()
        } else if self.as_committed {
            builder.as_committed(true)
        } else {
            builder
        };
        let builder = builder.lazy_times(self.lazy_times);
        let builder = match &self.volume {
            Some(volume) => builder.volume(volume),
            None => builder,
        };
        let builder = builder.degraded(self.degraded).memory_bytes(memory_limit());
        let open = || {
            self.open_with(images, access, |names, places| {
                Ok(builder.clone().scan(places).open(names).reason()?)
            })
        };
        held::when_free(held::FOR_COMMANDS, open).map_err(held::name_the_mount)
    }

    /// Opens the volume on `images` and on the devices named by these options. `open` gets all of them, and
    /// the places of further devices.
    pub(crate) fn open_with<T>(
        &self,
        images: &[DeviceName],
        access: DeviceAccess,
        open: impl FnOnce(&[DeviceName], Vec<PathBuf>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let names = self.all_named(images)?;
        let not_open = || {
            let shown = Escaped::of(images[0].as_path());
            format!("cannot open '{shown}'")
        };
        let places = self.places(&names, access).with_context(not_open)?;
        open(&names, places).with_context(not_open)
    }

    /// Returns the name of the volume to read if the disks hold several.
    pub(crate) fn chosen_volume(&self) -> Option<&str> {
        self.volume.as_deref()
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Returns the images, and the devices named by these options.
    pub(crate) fn all_named(&self, images: &[DeviceName]) -> anyhow::Result<Vec<DeviceName>> {
        let mut names = images.to_vec();
        names.extend(self.devices.iter().cloned());
        for name in &names {
            if let DeviceName::Path(path) = name {
                check_accessible(path)?;
            }
        }
        Ok(names)
    }

    /// Returns the places of a volume's other devices: those of these options, or the folders of the named
    /// devices.
    pub(crate) fn places(
        &self,
        named: &[DeviceName],
        access: DeviceAccess,
    ) -> Result<Vec<PathBuf>, Reason> {
        if self.only_named || !self.scan.is_empty() {
            return Ok(self.scan.clone());
        }
        let paths: Vec<_> = named.iter().map(DeviceName::as_path).collect();
        sibling_devices(&paths, access).reason()
    }

    /// Returns these options, with missing devices allowed if they or `degraded` allow it.
    pub(crate) fn or_degraded(self, degraded: bool) -> DeviceOptions {
        DeviceOptions {
            degraded: self.degraded || degraded,
            ..self
        }
    }

    pub(crate) fn scan_places(&self) -> &[PathBuf] {
        &self.scan
    }

    pub(crate) fn devices(&self) -> &[DeviceName] {
        &self.devices
    }
}

/// Returns whether two paths lead to the same file or device.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = path.metadata().ok()?;
        Some(match metadata.rdev() {
            0 => (metadata.dev(), metadata.ino(), 0),
            // All nodes of a device lead to the same device.
            rdev => (0, 0, rdev),
        })
    };
    matches!((identity(a), identity(b)), (Some(a), Some(b)) if a == b)
}

/// Checks for common mistakes first, as the errors of the volume layer are less helpful.
fn check_accessible(image: &Path) -> anyhow::Result<()> {
    let shown = Escaped::of(image);
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
    /// Begin paths at the subvolume of this path (from the top level) instead of the default one
    #[arg(long, value_name = "PATH", conflicts_with = "subvolid")]
    subvol: Option<OsString>,
    /// Begin paths at the subvolume of this id instead of the default one; 5 is the top level
    #[arg(long, value_name = "ID")]
    subvolid: Option<u64>,
    /// Do not discard the space that a command frees in the image or on the device
    #[arg(long)]
    nodiscard: bool,
}

const ROOT_OF_MOUNT: &str = "a mount shows the subvolume that it was made for";

/// An open volume and the named file in it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) volume: Volume,
    /// The files below the directory displayed as "/", by path.
    pub(crate) files: Subvolume,
    /// The subvolume that contains the file at the path. A link at its end is not followed.
    pub(crate) subvolume_id: u64,
    /// Whether the path leads to the root directory of that subvolume.
    is_subvolume: bool,
}

impl Opened {
    /// Returns the subvolume at the path, or None if there is something else.
    pub(crate) fn subvolume(&self) -> anyhow::Result<Option<Subvolume>> {
        if self.is_subvolume {
            Ok(Some(
                self.volume.subvolume_by_id(self.subvolume_id).reason()?,
            ))
        } else {
            Ok(None)
        }
    }
}

impl VolumeOptions {
    /// Creates options for commands whose paths begin at the default subvolume.
    pub(crate) fn of_devices(devices: &DeviceOptions) -> VolumeOptions {
        VolumeOptions {
            devices: devices.clone(),
            subvol: None,
            subvolid: None,
            nodiscard: false,
        }
    }

    pub(crate) fn open_for_writing(&self, location: &Location) -> anyhow::Result<Volume> {
        if location.session().is_some() {
            self.refuse_nodiscard()?;
        }
        let devices = DeviceOptions {
            no_discard: self.nodiscard,
            ..self.devices.clone()
        };
        devices.open_for(location, DeviceAccess::Write)
    }

    pub(crate) fn open(&self, location: &Location) -> anyhow::Result<Opened> {
        let volume = self.devices.open(location)?;
        self.find(volume, location)
    }

    /// Looks up `location` in an open volume.
    pub(crate) fn find(&self, volume: Volume, location: &Location) -> anyhow::Result<Opened> {
        let files = self.files_of(&volume, location)?;
        // The file itself is not read, as it may be damaged.
        let found = files.find_subvolume(location.path_within()).reason();
        let (subvolume_id, is_subvolume) =
            found.with_context(|| format!("cannot access '{location}'"))?;
        Ok(Opened {
            volume,
            files,
            subvolume_id,
            is_subvolume,
        })
    }

    /// Returns the options for commands with several volumes: each finds its own among the additional
    /// devices.
    pub(crate) fn of_several(&self) -> VolumeOptions {
        let mut options = self.clone();
        let devices = std::mem::take(&mut options.devices.devices);
        for device in devices {
            match device {
                DeviceName::Path(path) => options.devices.scan.push(path),
                uri @ DeviceName::Uri(_) => options.devices.devices.push(uri),
            }
        }
        options
    }

    /// Opens the volume of a file for reading, or uses `open`. Returns it with the files below the directory
    /// displayed as "/".
    pub(crate) fn open_beside(
        &self,
        location: &Location,
        open: Option<Volume>,
    ) -> anyhow::Result<(Volume, Subvolume)> {
        let volume = match open {
            Some(volume) => volume,
            None => self.devices.open(location)?,
        };
        let files = self.files_of(&volume, location)?;
        Ok((volume, files))
    }

    /// Returns the files below the start directory of `location`'s path.
    pub(crate) fn files_of(
        &self,
        volume: &Volume,
        location: &Location,
    ) -> anyhow::Result<Subvolume> {
        match location.session() {
            Some(session) if !self.names_root() => Ok(session.files().clone()),
            Some(session) if session.mount().is_some() => bail!(ROOT_OF_MOUNT),
            _ => self.root(volume),
        }
    }

    fn names_root(&self) -> bool {
        self.subvol.is_some() || self.subvolid.is_some()
    }

    pub(crate) fn refuse_for_mount(&self) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        self.refuse_nodiscard()?;
        if self.names_root() {
            bail!(ROOT_OF_MOUNT)
        } else {
            Ok(())
        }
    }

    /// Refuses --nodiscard for a volume that is open already.
    fn refuse_nodiscard(&self) -> anyhow::Result<()> {
        if self.nodiscard {
            bail!("--nodiscard has no effect on a volume that is open already")
        } else {
            Ok(())
        }
    }

    /// Returns the subvolume that the options name.
    pub(crate) fn root(&self, volume: &Volume) -> anyhow::Result<Subvolume> {
        if let Some(path) = &self.subvol {
            let shown = Escaped::of(path);
            // As in a mount, a link at the end is not followed.
            let found = volume.root().find_subvolume(path).reason();
            return match found.with_context(|| format!("cannot find subvolume '{shown}'"))? {
                (id, true) => Ok(volume.subvolume_by_id(id).reason()?),
                (_, false) => bail!("'{shown}' is not a subvolume"),
            };
        }
        let found = match self.subvolid {
            // As in the kernel, 0 means the top level.
            Some(0) => volume.subvolume_by_id(volume.root().id()),
            Some(id) => volume.subvolume_by_id(id),
            None => volume.default_subvolume(),
        };
        Ok(found.reason()?)
    }

    /// Returns options for a volume that stays open for many commands.
    pub(crate) fn with_lazy_times(&self, lazy_times: bool) -> VolumeOptions {
        let mut options = self.clone();
        options.devices.lazy_times = lazy_times;
        options
    }
}
