//! `ubtrfs property`: the properties of subvolumes, volumes and files, as btrfs-progs has them.

mod get;
mod list;
mod set;

use anyhow::{Context, bail};
use clap::ValueEnum;
use ubtrfs_engine::{Error, FileId, Volume};
use ubtrfs_format::item::RootItemFlags;

use crate::console::Console;
use crate::location::Location;

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

    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match &self.command {
            PropertyCommand::Get(command) => command.run(console),
            PropertyCommand::List(command) => command.run(console),
            PropertyCommand::Set(command) => command.run(),
        }
    }
}

/// What has properties.
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

const COMPRESSION: &[u8] = b"btrfs.compression";

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

/// Something with properties.
struct Object<'a> {
    volume: &'a Volume,
    id: FileId,
    kinds: Vec<Kind>,
}

impl<'a> Object<'a> {
    /// `root` is what "/" stands for: the volume as a whole, as a mount point is for btrfs-progs.
    fn new(
        volume: &'a Volume,
        root: FileId,
        location: &Location,
        kind: Option<Kind>,
    ) -> anyhow::Result<Object<'a>> {
        let id = volume
            .resolve_following(root, &location.path)
            .with_context(|| format!("failed to detect object type of '{location}'"))?;
        let is_subvolume = !id.is_stub() && volume.root_dir(id.root)? == id;
        let kinds = match kind {
            Some(Kind::Subvol) if !is_subvolume => bail!("'{location}' is not a subvolume"),
            Some(kind) => vec![kind],
            None if id == root => vec![Kind::Subvol, Kind::Filesystem, Kind::Inode],
            None if is_subvolume => vec![Kind::Subvol, Kind::Inode],
            None => vec![Kind::Inode],
        };
        Ok(Object { volume, id, kinds })
    }

    fn has(&self, name: Name) -> bool {
        self.kinds.iter().any(|&kind| name.is_of(kind))
    }

    fn names(&self) -> impl Iterator<Item = Name> {
        Name::ALL.into_iter().filter(|&name| self.has(name))
    }

    fn check(&self, name: Name) -> anyhow::Result<()> {
        if !self.has(name) {
            bail!("object is not compatible with property: {}", name.text());
        }
        Ok(())
    }

    fn is_read_only(&self) -> Result<bool, Error> {
        let tree = self.volume.subvolume_tree(self.id.root)?;
        Ok(tree.item().flags().contains(RootItemFlags::RDONLY))
    }

    /// None for a property that is not set.
    fn value(&self, name: Name) -> Result<Option<Vec<u8>>, Error> {
        Ok(match name {
            Name::Ro => Some(self.is_read_only()?.to_string().into_bytes()),
            Name::Label => Some(self.volume.superblock().label().to_vec()),
            Name::Compression => self.volume.xattr(self.id, COMPRESSION)?,
        })
    }
}
