//! `ubtrfs ln`: hard and symbolic links.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use ubtrfs_engine::{Error, FileId, FileKind, NewInode};

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::volume_access::changes::{Changes, Target, is_final};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::{Place, split};

/// Make links
///
/// The last argument is the new name, or a directory that takes links under the names of the targets.
#[derive(Debug, clap::Args)]
pub(crate) struct Ln {
    /// The target: a path IMAGE:/PATH in the same volume, or with -s any text
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    link: Location,
    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,
    /// Replace a file that has the name
    #[arg(short, long)]
    force: bool,
    /// Take the last argument as the new name even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Ln {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut changes = Changes::new(&self.volume);
        let target = changes.open(&self.link)?;
        let into = match self.no_target_directory {
            true => None,
            false => target.directory(&self.link.path)?,
        };
        if into.is_none() && self.targets.len() > 1 {
            bail!("'{}' is not a directory", self.link);
        }
        for to in &self.targets {
            if let Err(error) = self.link(&changes, &target, into, to) {
                console.failed(&error);
                if is_final(&error) {
                    break;
                }
            }
        }
        changes.commit()
    }

    fn link(
        &self,
        changes: &Changes<'_>,
        target: &Target,
        into: Option<FileId>,
        to: &OsString,
    ) -> anyhow::Result<()> {
        let shown = Escaped(to.as_bytes());
        let existing = match self.symbolic {
            true => None,
            false => Some(self.existing(changes, target, to)?),
        };
        let path = match &existing {
            Some((location, _)) => &location.path,
            None => to.as_bytes(),
        };
        let place = match into {
            Some(dir) => {
                let Some((_, name)) = split(path) else {
                    bail!("cannot link to '{shown}': it has no name");
                };
                Place {
                    dir,
                    name: name.to_vec(),
                    existing: target.volume.lookup(dir, name)?,
                }
            }
            None => target.place(&self.link)?,
        };
        let refused = || format!("cannot link '{}' to '{shown}'", Escaped(&place.name));
        let replaced = match place.existing.filter(|_| self.force) {
            Some(old) if existing.as_ref().is_some_and(|(_, id)| *id == old) => return Ok(()),
            old => old,
        };
        if let Some(old) = replaced {
            if target.volume.attr(old)?.kind == FileKind::Directory {
                return Err(Error::IsADirectory(old)).with_context(refused);
            }
            target
                .volume
                .unlink(place.dir, &place.name)
                .with_context(refused)?;
        }
        let linked = match existing {
            Some((_, id)) => target.volume.link(id, place.dir, &place.name),
            None => {
                let new = NewInode::symlink(to.as_bytes());
                let made = target.volume.create(place.dir, &place.name, &new);
                made.map(drop)
            }
        };
        linked.with_context(refused)
    }

    /// What a hard link is to be one of.
    fn existing(
        &self,
        changes: &Changes<'_>,
        target: &Target,
        to: &OsString,
    ) -> anyhow::Result<(Location, FileId)> {
        let location = match self.link.session() {
            Some(session) => Location::within(session, to.as_bytes()),
            None => Location::parse(to),
        };
        if location.session().is_none() && changes.opened(&location).is_none() {
            bail!(
                "'{location}' and '{}' are not in the same volume",
                self.link
            );
        }
        let id = target.find(&location)?;
        if target.volume.attr(id)?.kind == FileKind::Directory {
            bail!("'{location}' is a directory, which has one name");
        }
        Ok((location, id))
    }
}
