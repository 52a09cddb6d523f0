//! `ubtrfs getfattr`: displays extended attributes.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use serde::Serialize;

use crate::presentation::console::Console;
use crate::presentation::json::{self, JsonList};
use crate::presentation::xattr_text::{self, Encoding, XattrJson};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Show extended attributes
///
/// Attributes of all namespaces are shown, as root sees them.
#[derive(Debug, clap::Args)]
pub(crate) struct Getfattr {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Show the attribute of this name and its value
    #[arg(short, long, value_name = "NAME")]
    name: Option<OsString>,
    /// Show values beside the names
    #[arg(short, long)]
    dump: bool,
    /// Show values in this form; without it text as text, and other bytes as base64
    #[arg(short, long, value_name = "FORM")]
    encoding: Option<Encoding>,
    /// Write values as they are, and nothing else
    #[arg(long)]
    only_values: bool,
    /// Show those of a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Debug, Serialize)]
struct FileJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    xattrs: Vec<XattrJson>,
}

impl Getfattr {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut list = if !console.is_json() {
            None
        } else if self.only_values {
            bail!("--only-values has no JSON")
        } else {
            Some(JsonList::start(&mut console.out, "getfattr")?)
        };
        for location in &self.locations {
            let read = self.read(location);
            let read = read.with_context(|| format!("cannot read attributes of '{location}'"));
            match (read, &mut list) {
                (Ok(xattrs), Some(list)) => {
                    list.push(&mut console.out, &to_json(location, &xattrs))?;
                }
                (Ok(xattrs), None) => self.show(location, &xattrs, console)?,
                (Err(error), _) => console.failed(&error),
            }
        }
        match list {
            Some(list) => Ok(list.end(&mut console.out)?),
            None => Ok(()),
        }
    }

    fn show(
        &self,
        location: &Location,
        xattrs: &[(OsString, Vec<u8>)],
        console: &mut Console,
    ) -> anyhow::Result<()> {
        if self.only_values {
            for (_, value) in xattrs {
                console.out.write_all(value)?;
            }
            return Ok(());
        }
        if xattrs.is_empty() {
            return Ok(());
        }
        write!(console.out, "# file: ")?;
        console.write_path(location.path.strip_prefix(b"/").unwrap_or(&location.path))?;
        writeln!(console.out)?;
        for (name, value) in xattrs {
            console.write_path(name.as_bytes())?;
            if self.dump || self.name.is_some() {
                writeln!(console.out, "={}", xattr_text::encode(value, self.encoding))?
            } else {
                writeln!(console.out)?
            }
        }
        Ok(writeln!(console.out)?)
    }

    fn read(&self, location: &Location) -> anyhow::Result<Vec<(OsString, Vec<u8>)>> {
        let opened = self.volume.open(location)?;
        let (files, path) = (&opened.files, location.path_within());
        let Some(name) = &self.name else {
            let all = if self.no_dereference {
                files.symlink_xattrs(path)
            } else {
                files.xattrs(path)
            };
            return Ok(all.reason()?);
        };
        let value = if self.no_dereference {
            files.symlink_xattr(path, name)
        } else {
            files.xattr(path, name)
        };
        let value = value.reason()?.context("no such attribute")?;
        Ok(vec![(name.clone(), value)])
    }
}

fn to_json(location: &Location, xattrs: &[(OsString, Vec<u8>)]) -> FileJson {
    FileJson {
        path: json::text(&location.path),
        path_hex: json::hex_if_lossy(&location.path),
        xattrs: XattrJson::list(xattrs),
    }
}
