//! `ubtrfs ln`: hard and symbolic links.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use anyhow::{Context, bail};
use ubtrfs::Metadata;

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::volume_access::changes::{Changes, Target, is_final};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::place::{Named, split};
use crate::volume_access::reason::Reasoned;

/// Make links
///
/// The last argument is the new name, or a directory that takes links under the names of the targets.
#[derive(Debug, clap::Args)]
pub(crate) struct Ln {
    /// The target: a path IMAGE:/PATH in the same volume, or with -s any text (/PATH is stored for that path)
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
    /// Name of the link, or directory of the links
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
        let is_into = !self.no_target_directory && target.is_directory(&self.link)?;
        if !is_into && self.targets.len() > 1 {
            bail!("'{}' is not a directory", self.link);
        }
        for to in &self.targets {
            if let Err(error) = self.link(&changes, &target, is_into, to) {
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
        is_into: bool,
        to: &OsString,
    ) -> anyhow::Result<()> {
        let shown = Escaped::of(to);
        let existing = if self.symbolic {
            None
        } else {
            Some(self.existing(changes, target, to)?)
        };
        let files = &target.files;
        let text = self.text_of(changes, to);
        let named = if is_into {
            let path = match &existing {
                Some((location, _)) => &location.path,
                None => text.as_bytes(),
            };
            let Some((_, name)) = split(path) else {
                bail!("cannot link to '{shown}': it has no name");
            };
            Named::in_directory(files, self.link.path_within(), name)?
        } else {
            target.named(&self.link)?
        };
        let refused = || format!("cannot link '{}' to '{shown}'", Escaped(named.name()));
        if self.force && named.existing.is_some() {
            if existing.as_ref().is_some_and(|(_, file)| named.is(file)) {
                return Ok(());
            }
            let removed = files.remove_file(&named.path);
            removed.reason().with_context(refused)?;
        }
        let linked = match existing {
            Some((location, _)) => files.hard_link(location.path_within(), &named.path),
            None => files.symlink(text, &named.path),
        };
        linked.reason().with_context(refused)
    }

    /// Returns the text of a symbolic link. `IMAGE:/PATH` in the same volume becomes a path within it, as
    /// nothing else could follow the link.
    fn text_of(&self, changes: &Changes<'_>, to: &OsString) -> OsString {
        let location = Location::parse(to);
        let is_split = !location.is_whole(to);
        if is_split && self.link.session().is_none() && changes.opened(&location).is_some() {
            OsString::from_vec(location.path)
        } else {
            to.clone()
        }
    }

    /// Returns the target of a hard link.
    fn existing(
        &self,
        changes: &Changes<'_>,
        target: &Target,
        to: &OsString,
    ) -> anyhow::Result<(Location, Metadata)> {
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
        let file = target.files.symlink_metadata(location.path_within());
        let file = file
            .reason()
            .with_context(|| format!("cannot access '{location}'"))?;
        if file.is_dir() {
            bail!("'{location}' is a directory, which has one name");
        }
        Ok((location, file))
    }
}
