//! `ubtrfs stat`: all attributes of a file, in the layout of stat(1).

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use serde::Serialize;
use ubtrfs::HostOwners;
use ubtrfs_format::maker;
use ubtrfs_fs::FileTime;

use crate::presentation::console::Console;
use crate::presentation::file_stat::{FileJson, FileStat};
use crate::presentation::json::JsonList;
use crate::presentation::quoting::{Escaped, ShellQuoted};
use crate::presentation::xattr_text::XattrJson;
use crate::presentation::{clock, permissions};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Show a file's attributes, times, flags and extended attributes
#[derive(Debug, clap::Args)]
pub(crate) struct Stat {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    #[command(flatten)]
    volume: VolumeOptions,
}

type Xattrs = Vec<(OsString, Vec<u8>)>;

impl Stat {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut list = if console.is_json() {
            Some(JsonList::start(&mut console.out, "stat")?)
        } else {
            None
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
                Some(list) => list.push(&mut console.out, &StatJson::new(location, &found))?,
                None => print(console, location, &found)?,
            }
        }
        match list {
            Some(list) => Ok(list.end(&mut console.out)?),
            None => Ok(()),
        }
    }

    fn read(&self, location: &Location) -> anyhow::Result<(FileStat, Xattrs)> {
        let opened = self.volume.open(location)?;
        let (files, path) = (&opened.files, location.path_within());
        let stat = FileStat::at(files, path).reason()?;
        Ok((stat, files.symlink_xattrs(path).reason()?))
    }
}

#[derive(Debug, Serialize)]
struct StatJson<'a> {
    #[serde(flatten)]
    file: FileJson<'a>,
    flags: Vec<&'static str>,
    /// The time of creation that the system of a NAS maker has stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    nas_created: Option<String>,
    xattrs: Vec<XattrJson>,
}

impl<'a> StatJson<'a> {
    fn new(location: &'a Location, (stat, xattrs): &'a (FileStat, Xattrs)) -> StatJson<'a> {
        StatJson {
            file: stat.to_json(&location.path),
            flags: stat.metadata.flag_names(),
            nas_created: maker_created(xattrs).map(clock::full),
            xattrs: XattrJson::list(xattrs),
        }
    }
}

/// Returns the time of creation that the system of a NAS maker has stored. Copies of a file keep it there, but not the
/// time of birth.
fn maker_created(xattrs: &Xattrs) -> Option<SystemTime> {
    let is_it = |(name, _): &&(OsString, Vec<u8>)| name.as_bytes() == maker::CREATE_TIME;
    let (_, value) = xattrs.iter().find(is_it)?;
    let time = maker::create_time(value)?;
    Some(FileTime::from(time).into())
}

fn print(
    console: &mut Console,
    location: &Location,
    (stat, xattrs): &(FileStat, Xattrs),
) -> anyhow::Result<()> {
    let file = &stat.metadata;
    let owners = HostOwners::load();
    let io_block = 4096;
    let out = &mut console.out;
    write!(out, "  File: {}:", Escaped::of(location.image.as_path()))?;
    write!(out, "{}", Escaped(&location.path))?;
    if let Some(target) = &stat.target {
        write!(out, " -> {}", Escaped(target))?;
    }
    writeln!(
        out,
        "\n  Size: {:<10}\tBlocks: {:<10} IO Block: {io_block:<6} {}",
        file.len(),
        file.blocks(),
        permissions::kind_words(file)
    )?;
    write!(
        out,
        "Subvolume: {}\tInode: {:<10}  Links: {}",
        file.subvolume_id(),
        file.ino(),
        file.nlink()
    )?;
    match stat.device_number() {
        Some((major, minor)) => writeln!(out, "     Device type: {major},{minor}")?,
        None => writeln!(out)?,
    }
    writeln!(
        out,
        "Access: ({:04o}/{})  Uid: ({:>5}/{:>8})   Gid: ({:>5}/{:>8})",
        file.mode() & 0o7777,
        permissions::text(file.mode()),
        file.uid(),
        owners.user_name(file.uid()).unwrap_or("UNKNOWN"),
        file.gid(),
        owners.group_name(file.gid()).unwrap_or("UNKNOWN"),
    )?;
    writeln!(out, "Access: {}", clock::full(file.accessed()))?;
    writeln!(out, "Modify: {}", clock::full(file.modified()))?;
    writeln!(out, "Change: {}", clock::full(file.changed()))?;
    writeln!(out, " Birth: {}", clock::full(file.created()))?;
    if let Some(created) = maker_created(xattrs) {
        writeln!(out, "   NAS: created {}", clock::full(created))?;
    }
    let flags = file.flag_names();
    let flags = if flags.is_empty() {
        "none".to_owned()
    } else {
        flags.join(",")
    };
    writeln!(
        out,
        " Btrfs: generation {} transid {} bytes used {} flags {flags}",
        file.generation(),
        file.changed_generation(),
        file.bytes_used()
    )?;
    for (name, value) in xattrs {
        let name = Escaped::of(name);
        writeln!(out, " Xattr: {name}={}", ShellQuoted(value))?;
    }
    Ok(())
}
