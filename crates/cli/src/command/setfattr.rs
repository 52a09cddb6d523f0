//! `ubtrfs setfattr`: sets and removes extended attributes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use ubtrfs::XattrMode;

use crate::presentation::console::Console;
use crate::presentation::xattr_text;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Set or remove an extended attribute
///
/// A value is text as it is, or as getfattr prints it. That is 0x with hexadecimal digits, 0s with base64, or text with
/// escapes between double quotes.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Setfattr {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Set the attribute of this name
    #[arg(short, long, value_name = "NAME", group = "what")]
    name: Option<OsString>,
    /// The value; without it, the empty one
    #[arg(short, long, value_name = "VALUE", requires = "name")]
    value: Option<OsString>,
    /// Remove the attribute of this name
    #[arg(short = 'x', long, value_name = "NAME", group = "what")]
    remove: Option<OsString>,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Setfattr {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let text = self.value.as_deref().unwrap_or_default();
        let value = xattr_text::decode(text.as_bytes())?;
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, _| {
                self.change(target, location, &value)
                    .with_context(|| format!("cannot change an attribute of '{location}'"))
            },
        )
    }

    fn change(&self, target: &Target, location: &Location, value: &[u8]) -> anyhow::Result<()> {
        let (files, path) = (&target.files, location.path_within());
        if let Some(name) = &self.name {
            let set = if self.no_dereference {
                files.set_symlink_xattr(path, name, value, XattrMode::Any)
            } else {
                files.set_xattr(path, name, value, XattrMode::Any)
            };
            set.reason()?;
        }
        if let Some(name) = &self.remove {
            let removed = if self.no_dereference {
                files.remove_symlink_xattr(path, name)
            } else {
                files.remove_xattr(path, name)
            };
            removed.reason()?;
        }
        Ok(())
    }
}
