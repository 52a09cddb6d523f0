//! `ubtrfs subvolume find-new`: the extents written since a transaction.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use serde::Serialize;
use ubtrfs::{DeviceAccess, NewExtent};
use ubtrfs_format::ids::{InodeNr, RootId, Transid};
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::FileId;

use super::ask_for_subvolume;
use crate::presentation::console::{Console, write_path_to};
use crate::presentation::json;
use crate::volume_access::ioctls::{Asked, ByIoctls, joined};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// List the extents of files that were written in a transaction or after it
///
/// The last line has the subvolume's own transaction: one more is where the next search begins. In a mount or a shell
/// everything is committed before.
#[derive(Debug, clap::Args)]
pub(crate) struct FindNew {
    #[arg(value_name = "IMAGE[:/SUBVOLUME]")]
    location: Location,
    /// The first transaction that counts
    #[arg(value_name = "TRANSID")]
    since: u64,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Debug, Serialize)]
struct FoundJson {
    transid: u64,
    extents: Vec<ExtentJson>,
}

#[derive(Debug, Serialize)]
struct ExtentJson {
    #[serde(flatten)]
    extent: Found,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

/// A file extent. Numbers are bytes.
#[derive(Debug, Serialize)]
struct Found {
    inode: u64,
    file_offset: u64,
    len: u64,
    disk_start: u64,
    offset: u64,
    #[serde(rename = "gen")]
    transid: u64,
    flags: String,
}

impl FindNew {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(&self.location)?;
        let Some(subvolume) = opened.subvolume()? else {
            bail!("'{}' is not a subvolume", self.location);
        };
        let session = self.location.session();
        if session.is_some_and(|session| session.volume_for(DeviceAccess::Write).is_ok()) {
            opened.volume.sync().reason().context("cannot commit")?;
        }
        let transid = subvolume.info().reason()?.generation;
        let mut found = Vec::new();
        let is_terminal = console.is_terminal();
        for extent in subvolume.extents_since(self.since) {
            let extent = extent.reason()?;
            let path = extent.path.as_os_str().as_bytes();
            let extent = Found::from(&extent);
            if console.is_json() {
                // Everything is written at the end.
                found.push(to_json(extent, path))
            } else {
                extent.write(path, is_terminal, &mut console.out)?
            }
        }
        if console.is_json() {
            let found = FoundJson {
                transid,
                extents: found,
            };
            return Ok(json::write_map(&mut console.out, "find-new", &found)?);
        }
        Ok(writeln!(console.out, "transid marker was {transid}")?)
    }
}

impl Found {
    fn write(&self, path: &[u8], is_terminal: bool, out: &mut impl Write) -> io::Result<()> {
        write!(
            out,
            "inode {} file offset {} len {} disk start {} offset {} gen {} flags {} ",
            self.inode,
            self.file_offset,
            self.len,
            self.disk_start,
            self.offset,
            self.transid,
            self.flags
        )?;
        write_path_to(out, path, is_terminal)?;
        writeln!(out)
    }
}

impl From<&NewExtent> for Found {
    fn from(extent: &NewExtent) -> Found {
        Found {
            inode: extent.ino,
            file_offset: extent.offset,
            len: extent.len,
            disk_start: extent.disk_start,
            offset: extent.disk_offset,
            transid: extent.generation,
            flags: flags_text([
                (extent.is_compressed, "COMPRESS"),
                (extent.is_inline, "INLINE"),
                (extent.is_preallocated, "PREALLOC"),
            ]),
        }
    }
}

/// Returns the names of the set flags.
fn flags_text(flags: [(bool, &str); 3]) -> String {
    let set = flags.into_iter().filter(|(is_set, _)| *is_set);
    let set: Vec<&str> = set.map(|(_, name)| name).collect();
    if set.is_empty() {
        "NONE".to_owned()
    } else {
        set.join("|")
    }
}

/// Converts an extent from a mount.
fn found(key: Key, extent: &FileExtent<'_>) -> Found {
    let (disk_start, offset, is_preallocated) = match extent {
        FileExtent::Inline { .. } => (0, 0, false),
        FileExtent::Regular { body, prealloc, .. } => {
            (body.disk_bytenr.get(), body.offset.get(), *prealloc)
        }
    };
    Found {
        inode: key.objectid,
        file_offset: key.offset,
        len: extent.num_bytes(),
        disk_start,
        offset,
        transid: extent.transid().0,
        flags: flags_text([
            (extent.head().compression != 0, "COMPRESS"),
            (matches!(extent, FileExtent::Inline { .. }), "INLINE"),
            (is_preallocated, "PREALLOC"),
        ]),
    }
}

fn to_json(extent: Found, path: &[u8]) -> ExtentJson {
    ExtentJson {
        extent,
        path: json::text(path),
        path_hex: json::hex_if_lossy(path),
    }
}

impl ByIoctls for FindNew {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let asked = ask_for_subvolume(&self.location)?;
        asked.sync().context("cannot commit")?;
        let root = asked.root_id()?;
        let item = asked.root_item(root)?;
        let transid = item.map_or(0, |item| item.generation.get());
        let mut found = Vec::new();
        let is_terminal = console.is_terminal();
        let mut names = AskedNames {
            asked: &asked,
            root,
            last: None,
            last_dir: None,
        };
        let mut outcome = Ok(());
        let from = Key::new(0, KeyType(0), 0);
        let since = Transid(self.since);
        asked.search_since(since, root, from, Key::MAX, &mut |key, item| {
            let extent = if key.item_type == KeyType::EXTENT_DATA {
                FileExtent::decode(item).filter(|e| e.transid().0 >= self.since)
            } else {
                None
            };
            let Some(extent) = extent else {
                return ControlFlow::Continue(());
            };
            let extent = self::found(key, &extent);
            let shown = names.path_of(extent.inode).and_then(|path| {
                match path {
                    Some(path) if console.is_json() => found.push(to_json(extent, path)),
                    Some(path) => extent.write(path, is_terminal, &mut console.out)?,
                    None => {}
                }
                Ok(())
            });
            match shown {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        outcome?;
        if console.is_json() {
            let found = FoundJson {
                transid,
                extents: found,
            };
            return Ok(json::write_map(&mut console.out, "find-new", &found)?);
        }
        Ok(writeln!(console.out, "transid marker was {transid}")?)
    }
}

/// Paths of files in a subvolume of a mount, queried through ioctls.
struct AskedNames<'a> {
    asked: &'a Asked,
    root: RootId,
    /// The last inode with its path.
    last: Option<(u64, Option<Vec<u8>>)>,
    last_dir: Option<(FileId, Vec<u8>)>,
}

impl AskedNames<'_> {
    /// Returns the first path of a file, or None if it has no path.
    fn path_of(&mut self, inode: u64) -> anyhow::Result<Option<&[u8]>> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != inode) {
            let path = self.look_up(FileId::new(self.root, InodeNr(inode)))?;
            self.last = Some((inode, path));
        }
        Ok(self.last.as_ref().and_then(|(_, path)| path.as_deref()))
    }

    fn look_up(&mut self, file: FileId) -> anyhow::Result<Option<Vec<u8>>> {
        let Some((dir, name)) = self.asked.names_of(file)?.into_iter().next() else {
            return Ok(None);
        };
        let dir_path = match self.last_dir.take() {
            Some((last, path)) if last == dir => path,
            _ => self.asked.directory_path(dir)?,
        };
        let path = joined(&dir_path, &name);
        self.last_dir = Some((dir, dir_path));
        Ok(Some(path))
    }
}
