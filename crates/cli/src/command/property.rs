//! `ubtrfs property`: properties of subvolumes, volumes and files, as in btrfs-progs.

mod get;
mod list;
mod set;

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::ValueEnum;
use rustix::fs::getxattr;
use rustix::io::Errno;
use ubtrfs::{File, Subvolume, Volume};

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::volume_access::control::mountpoint_of;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::Location;
use crate::volume_access::place::is_same;
use crate::volume_access::reason::Reasoned;

/// Show or set properties: ro, label, compression
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Property {
    #[command(subcommand)]
    command: PropertyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PropertyCommand {
    Get(get::Get),
    List(list::List),
    Set(set::Set),
}

impl Property {
    pub(crate) fn knows_json(&self) -> bool {
        !matches!(self.command, PropertyCommand::Set(_))
    }

    pub(crate) fn by_ioctls(&self) -> Option<&dyn ByIoctls> {
        Some(match &self.command {
            PropertyCommand::Get(command) => command,
            PropertyCommand::List(command) => command,
            PropertyCommand::Set(command) => command,
        })
    }

    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            PropertyCommand::Get(command) => command.run(console),
            PropertyCommand::List(command) => command.run(console),
            PropertyCommand::Set(command) => command.run(),
        }
    }
}

/// The kinds of objects that have properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kind {
    #[value(alias = "i")]
    Inode,
    #[value(alias = "s")]
    Subvol,
    #[value(alias = "f")]
    Filesystem,
    #[value(alias = "d")]
    Device,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name {
    Ro,
    Label,
    Compression,
}

const COMPRESSION: &str = "btrfs.compression";

impl Name {
    const ALL: [Name; 3] = [Name::Ro, Name::Label, Name::Compression];

    fn parse(text: &str) -> anyhow::Result<Name> {
        match Name::ALL.into_iter().find(|name| name.text() == text) {
            Some(name) => Ok(name),
            None => bail!("unknown property: {text}"),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Name::Ro => "ro",
            Name::Label => "label",
            Name::Compression => "compression",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Name::Ro => "read-only status of a subvolume",
            Name::Label => "label of the filesystem",
            Name::Compression => "compression algorithm for the file or directory",
        }
    }

    fn is_of(self, kind: Kind) -> bool {
        match self {
            Name::Ro => kind == Kind::Subvol,
            Name::Label => matches!(kind, Kind::Filesystem | Kind::Device),
            Name::Compression => kind == Kind::Inode,
        }
    }
}

/// An object with properties.
trait Object {
    fn kinds(&self) -> &[Kind];

    fn is_read_only(&self) -> anyhow::Result<bool>;

    fn label(&self) -> anyhow::Result<Vec<u8>>;

    /// Returns the compression, or None if it is not set.
    fn compression(&self) -> anyhow::Result<Option<Vec<u8>>>;

    fn has(&self, name: Name) -> bool {
        self.kinds().iter().any(|&kind| name.is_of(kind))
    }

    fn names(&self) -> Vec<Name> {
        let names = Name::ALL.into_iter();
        names.filter(|&name| self.has(name)).collect()
    }

    fn check(&self, name: Name) -> anyhow::Result<()> {
        if !self.has(name) {
            bail!("object is not compatible with property: {}", name.text());
        }
        Ok(())
    }

    /// Returns the value of a property, or None if it is not set.
    fn value(&self, name: Name) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(match name {
            Name::Ro => Some(self.is_read_only()?.to_string().into_bytes()),
            Name::Label => Some(self.label()?),
            Name::Compression => self.compression()?,
        })
    }
}

/// Returns the kinds of a path: the top of a volume (a mount point in btrfs-progs), a subvolume, or a plain
/// inode.
fn kinds_of(
    location: &Location,
    asked_for: Option<Kind>,
    is_top: bool,
    is_subvolume: bool,
) -> anyhow::Result<Vec<Kind>> {
    Ok(match asked_for {
        Some(Kind::Subvol) if !is_subvolume => bail!("'{location}' is not a subvolume"),
        Some(kind) => vec![kind],
        None if is_top => vec![Kind::Subvol, Kind::Filesystem, Kind::Inode],
        None if is_subvolume => vec![Kind::Subvol, Kind::Inode],
        None => vec![Kind::Inode],
    })
}

fn not_detected(location: &Location) -> String {
    format!("failed to detect object type of '{location}'")
}

/// An object in an open volume.
struct Stored {
    volume: Volume,
    file: File,
    /// The subvolume that contains the file.
    subvolume: Subvolume,
    kinds: Vec<Kind>,
}

impl Stored {
    /// Opens the file of a location, and determines its kinds. `files` are the volume's files below the
    /// directory displayed as "/".
    fn new(
        volume: &Volume,
        files: &Subvolume,
        location: &Location,
        kind: Option<Kind>,
    ) -> anyhow::Result<Stored> {
        let file = files.open_file(location.path_within()).reason();
        let file = file.with_context(|| not_detected(location))?;
        let (found, top) = (file.metadata().reason()?, files.metadata("/").reason()?);
        let subvolume = volume.subvolume_by_id(found.subvolume_id()).reason()?;
        let root = subvolume.metadata("/").reason()?;
        let (is_top, is_subvolume) = (is_same(&found, &top), is_same(&found, &root));
        let kinds = kinds_of(location, kind, is_top, is_subvolume)?;
        Ok(Stored {
            volume: volume.clone(),
            file,
            subvolume,
            kinds,
        })
    }
}

impl Object for Stored {
    fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    fn is_read_only(&self) -> anyhow::Result<bool> {
        Ok(self.subvolume.is_read_only().reason()?)
    }

    fn label(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.volume.label().into_vec())
    }

    fn compression(&self) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(self.file.xattr(COMPRESSION).reason()?)
    }
}

/// An object in a mount.
struct InMount {
    path: PathBuf,
    kinds: Vec<Kind>,
}

impl InMount {
    fn new(location: &Location, asked_for: Option<Kind>) -> anyhow::Result<InMount> {
        let path = location.written_path().canonicalize();
        let path = path.with_context(|| not_detected(location))?;
        let is_top = mountpoint_of(&path).with_context(|| not_detected(location))? == path;
        let is_subvolume =
            path.is_dir() && Asked::at(&path).is_ok_and(|at| at.is_subvolume() == Ok(true));
        let kinds = kinds_of(location, asked_for, is_top, is_subvolume)?;
        Ok(InMount { path, kinds })
    }

    fn ask(&self) -> anyhow::Result<Asked> {
        let path = Escaped::of(&self.path);
        Asked::at(&self.path).with_context(|| format!("cannot access '{path}'"))
    }
}

impl Object for InMount {
    fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    fn is_read_only(&self) -> anyhow::Result<bool> {
        Ok(self.ask()?.is_read_only()?)
    }

    fn label(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.ask()?.label()?)
    }

    fn compression(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut value = [0; 256];
        match getxattr(&self.path, COMPRESSION, &mut value) {
            Ok(len) => Ok(Some(value[..len].to_vec())),
            Err(Errno::NODATA) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
