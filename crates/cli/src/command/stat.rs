//! `ubtrfs stat`: all that a volume knows of a file, in the layout of stat(1).

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use ubtrfs::transfer::owners::Owners;
use ubtrfs_engine::Volume;
use ubtrfs_format::item::InodeFlags;

use crate::presentation::console::Console;
use crate::presentation::file_facts::{FileFacts, FileJson};
use crate::presentation::json::JsonList;
use crate::presentation::quoting::{Escaped, ShellQuoted};
use crate::presentation::xattr_text::XattrJson;
use crate::presentation::{clock, permissions};
use crate::volume_access::location::{Location, VolumeOptions};

/// Show a file's attributes, times, flags and extended attributes
#[derive(Debug, clap::Args)]
pub(crate) struct Stat {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    #[command(flatten)]
    volume: VolumeOptions,
}

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

impl Stat {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut list = match console.is_json() {
            true => Some(JsonList::start(&mut console.out, "stat")?),
            false => None,
        };
        for location in &self.locations {
            let found = match self.read(location) {
                Ok(found) => found,
                Err(error) => {
                    console.failed(&error);
                    continue;
                }
            };
            match &mut list {
                Some(list) => list.push(&mut console.out, &StatJson::new(location, found))?,
                None => print(console, location, &found)?,
            }
        }
        match list {
            Some(list) => Ok(list.end(&mut console.out)?),
            None => Ok(()),
        }
    }

    fn read(&self, location: &Location) -> anyhow::Result<(FileFacts, Xattrs)> {
        let opened = self.volume.open(location)?;
        let volume: &Volume = &opened.volume;
        let facts = FileFacts::read(volume, opened.target)?;
        Ok((facts, volume.xattrs(opened.target)?))
    }
}

#[derive(Debug, Serialize)]
struct StatJson {
    #[serde(flatten)]
    file: FileJson,
    flags: Vec<&'static str>,
    xattrs: Vec<XattrJson>,
}

impl StatJson {
    fn new(location: &Location, (facts, xattrs): (FileFacts, Xattrs)) -> StatJson {
        StatJson {
            file: facts.to_json(&location.path),
            flags: flag_names(facts.attr.flags),
            xattrs: XattrJson::list(&xattrs),
        }
    }
}

fn print(
    console: &mut Console,
    location: &Location,
    (facts, xattrs): &(FileFacts, Xattrs),
) -> anyhow::Result<()> {
    let attr = &facts.attr;
    let owners = Owners::load();
    let io_block = 4096;
    let out = &mut console.out;
    write!(
        out,
        "  File: {}:",
        Escaped(location.image.as_os_str().as_bytes())
    )?;
    write!(out, "{}", Escaped(&location.path))?;
    if let Some(target) = &facts.target {
        write!(out, " -> {}", Escaped(target))?;
    }
    writeln!(
        out,
        "\n  Size: {:<10}\tBlocks: {:<10} IO Block: {io_block:<6} {}",
        attr.size,
        facts.blocks(),
        permissions::kind_words(attr.kind, attr.size)
    )?;
    write!(
        out,
        "Subvolume: {}\tInode: {:<10}  Links: {}",
        facts.id.root, attr.ino.0, attr.nlink
    )?;
    match facts.device_number() {
        Some(device) => writeln!(out, "     Device type: {},{}", device.major, device.minor)?,
        None => writeln!(out)?,
    }
    writeln!(
        out,
        "Access: ({:04o}/{})  Uid: ({:>5}/{:>8})   Gid: ({:>5}/{:>8})",
        attr.mode & 0o7777,
        permissions::text(attr.mode),
        attr.uid,
        owners.user_name(attr.uid).unwrap_or("UNKNOWN"),
        attr.gid,
        owners.group_name(attr.gid).unwrap_or("UNKNOWN"),
    )?;
    writeln!(out, "Access: {}", clock::full(attr.atime))?;
    writeln!(out, "Modify: {}", clock::full(attr.mtime))?;
    writeln!(out, "Change: {}", clock::full(attr.ctime))?;
    writeln!(out, " Birth: {}", clock::full(attr.otime))?;
    let flags = flag_names(attr.flags);
    let flags = if flags.is_empty() {
        "none".to_owned()
    } else {
        flags.join(",")
    };
    writeln!(
        out,
        " Btrfs: generation {} transid {} bytes used {} flags {flags}",
        attr.generation, attr.transid, attr.nbytes
    )?;
    for (name, value) in xattrs {
        writeln!(out, " Xattr: {}={}", Escaped(name), ShellQuoted(value))?;
    }
    Ok(())
}

fn flag_names(flags: InodeFlags) -> Vec<&'static str> {
    flags.iter_names().map(|(name, _)| name).collect()
}
