//! `ubtrfs subvolume find-new`: what was written to files since a transaction.
//!
//! A cursor keeps freed space from being allocated again, so none is held while output is written. The search goes in
//! pieces, each from behind the last key of the one before.

use std::io::{self, Write};
use std::ops::ControlFlow;

use anyhow::{Context, bail};
use serde::Serialize;
use ubtrfs_device::Access;
use ubtrfs_engine::{FileId, Volume};
use ubtrfs_format::ids::{InodeNr, RootId, Transid};
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::{Key, KeyType};

use super::ask_for_subvolume;
use crate::presentation::console::{Console, PIECE_BYTES, write_path_to};
use crate::presentation::json;
use crate::volume_access::ioctls::{Asked, ByIoctls, joined};
use crate::volume_access::location::{Location, VolumeOptions};

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
    inode: u64,
    file_offset: u64,
    len: u64,
    disk_start: u64,
    offset: u64,
    r#gen: u64,
    flags: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

/// A file extent; numbers are bytes.
struct Found {
    inode: u64,
    file_offset: u64,
    len: u64,
    disk_start: u64,
    offset: u64,
    transid: u64,
    flags: String,
}

impl FindNew {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(&self.location)?;
        let (volume, target) = (&**opened.engine(), opened.target);
        if target.is_empty_subvolume_dir() || volume.root_dir(target.root)? != target {
            bail!("Not a Btrfs subvolume: '{}'", self.location);
        }
        let session = self.location.session();
        if session.is_some_and(|session| session.volume_for(Access::Write).is_ok()) {
            volume.sync().context("cannot commit")?;
        }
        let transid = volume.subvolume_tree(target.root)?.item().generation.get();
        let mut search = Search {
            volume,
            root: target,
            since: self.since,
            from: Some(Key::MIN),
            last: None,
            last_dir: None,
        };
        let mut found = Vec::new();
        let is_terminal = console.is_terminal();
        while search.from.is_some() {
            let mut text = Vec::new();
            let searched = search.piece(&mut |extent, path| match console.is_json() {
                true => {
                    found.push(to_json(extent, path));
                    // All of it is written at the end.
                    false
                }
                false => {
                    // Memory takes all of it.
                    let _ = extent.write(path, is_terminal, &mut text);
                    text.len() >= PIECE_BYTES
                }
            });
            console.out.write_all(&text)?;
            searched?;
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

struct Search<'v> {
    volume: &'v Volume,
    root: FileId,
    since: u64,
    /// Where the next piece begins; None behind the last.
    from: Option<Key>,
    /// The last inode, with its path.
    last: Option<(u64, Option<Vec<u8>>)>,
    last_dir: Option<(FileId, Vec<u8>)>,
}

impl Search<'_> {
    /// Gives extents in the order of their inodes, until `each` has enough for now. A file without a name is passed
    /// over.
    fn piece(&mut self, each: &mut dyn FnMut(&Found, &[u8]) -> bool) -> anyhow::Result<()> {
        let Some(from) = self.from.take() else {
            return Ok(());
        };
        let tree = self.volume.subvolume_tree(self.root.root)?;
        let mut cursor = tree.view.cursor().sequential();
        let mut more = cursor.seek(&from)?;
        while more {
            let Some((key, bytes)) = cursor.current() else {
                break;
            };
            let extent = match key.item_type == KeyType::EXTENT_DATA {
                true => FileExtent::decode(bytes).filter(|e| e.transid().0 >= self.since),
                false => None,
            };
            if let Some(extent) = extent {
                let found = found(key, &extent);
                if self
                    .last
                    .as_ref()
                    .is_none_or(|(inode, _)| *inode != key.objectid)
                {
                    let file = FileId::new(self.root.root, InodeNr(key.objectid));
                    let path = path_of(self.volume, file, &mut self.last_dir)?;
                    self.last = Some((key.objectid, path));
                }
                if let Some((_, Some(path))) = &self.last
                    && each(&found, path)
                {
                    self.from = key.next();
                    break;
                }
            }
            more = cursor.advance()?;
        }
        Ok(())
    }
}

/// The first path of a file. Files of one directory often stand beside each other: its path is kept.
fn path_of(
    volume: &Volume,
    file: FileId,
    last_dir: &mut Option<(FileId, Vec<u8>)>,
) -> anyhow::Result<Option<Vec<u8>>> {
    let Some((dir, name)) = volume.inode_names(file)?.into_iter().next() else {
        return Ok(None);
    };
    let mut path = match last_dir.take() {
        Some((last, path)) if last == dir => path,
        _ => volume.path_in_subvolume(dir)?,
    };
    *last_dir = Some((dir, path.clone()));
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(&name);
    Ok(Some(path))
}

fn found(key: Key, extent: &FileExtent<'_>) -> Found {
    let mut flags = Vec::new();
    if extent.head().compression != 0 {
        flags.push("COMPRESS");
    }
    let (disk_start, offset) = match extent {
        FileExtent::Inline { .. } => {
            flags.push("INLINE");
            (0, 0)
        }
        FileExtent::Regular { body, prealloc, .. } => {
            if *prealloc {
                flags.push("PREALLOC");
            }
            (body.disk_bytenr.get(), body.offset.get())
        }
    };
    Found {
        inode: key.objectid,
        file_offset: key.offset,
        len: extent.num_bytes(),
        disk_start,
        offset,
        transid: extent.transid().0,
        flags: match flags.is_empty() {
            true => "NONE".to_owned(),
            false => flags.join("|"),
        },
    }
}

fn to_json(found: &Found, path: &[u8]) -> ExtentJson {
    ExtentJson {
        inode: found.inode,
        file_offset: found.file_offset,
        len: found.len,
        disk_start: found.disk_start,
        offset: found.offset,
        r#gen: found.transid,
        flags: found.flags.clone(),
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
            let extent = match key.item_type == KeyType::EXTENT_DATA {
                true => FileExtent::decode(item).filter(|e| e.transid().0 >= self.since),
                false => None,
            };
            let Some(extent) = extent else {
                return ControlFlow::Continue(());
            };
            let extent = self::found(key, &extent);
            let shown = names.path_of(extent.inode).and_then(|path| {
                match path {
                    Some(path) if console.is_json() => found.push(to_json(&extent, path)),
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

/// Paths of files in a subvolume that is asked by ioctls.
struct AskedNames<'a> {
    asked: &'a Asked,
    root: RootId,
    /// The last inode, with its path.
    last: Option<(u64, Option<Vec<u8>>)>,
    last_dir: Option<(FileId, Vec<u8>)>,
}

impl AskedNames<'_> {
    /// The first path of a file; None if it has none.
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
