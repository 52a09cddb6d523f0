//! `ubtrfs subvolume diff`: what changed between two snapshots.

use std::io::Write;

use anyhow::{Context, bail};
use serde::Serialize;
use ubtrfs_engine::{FileTime, Snapshot};
use ubtrfs_stream::{Attributes, ChangeKind, Diff, DiffEntry, EntryType, XattrChangeKind};

use crate::presentation::console::Console;
use crate::presentation::{clock, json};
use crate::volume_access::location::{Location, VolumeOptions};

/// Changes that are kept in memory. More lie in a temporary file.
const MEMORY_BYTES: usize = 32 << 20;

/// Show what changed between two read-only snapshots, in the order of paths
///
/// Time is spent on what differs, not on what both share. Data counts as changed where it was written, whatever was
/// written. With --format json each line is an object.
#[derive(Debug, clap::Args)]
#[command(name = "diff")]
pub(crate) struct DiffSnapshots {
    #[arg(value_name = "IMAGE:/OLD")]
    old: Location,
    #[arg(value_name = "IMAGE:/NEW")]
    new: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl DiffSnapshots {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let same_image = self.old.session().is_some() || self.old.image == self.new.image;
        if !same_image {
            bail!("'{}' and '{}' are not of one volume", self.old, self.new);
        }
        let opened = self.volume.open(&self.old)?;
        let new_target = self.volume.find(opened.volume.clone(), &self.new)?.target;
        let volume = opened.engine();
        let open = |target: ubtrfs_engine::FileId, location: &Location| {
            if target.is_empty_subvolume_dir() || volume.root_dir(target.root)? != target {
                bail!("Not a Btrfs subvolume: '{location}'");
            }
            Snapshot::open(volume, target.root)
                .with_context(|| format!("cannot compare '{location}'"))
        };
        let old = open(opened.target, &self.old)?;
        let new = open(new_target, &self.new)?;
        let mut diff = Diff::new(&old, &new, MEMORY_BYTES)?;
        while let Some(entry) = diff.next_entry()? {
            match console.is_json() {
                true => {
                    serde_json::to_writer(&mut console.out, &EntryJson::of(&entry))
                        .map_err(std::io::Error::from)?;
                }
                false => print(console, &entry)?,
            }
            writeln!(console.out)?;
        }
        Ok(())
    }
}

fn print(console: &mut Console, entry: &DiffEntry) -> anyhow::Result<()> {
    let (kind, entry_type) = (kind_name(entry.kind), type_name(entry.entry_type));
    write!(console.out, "{kind:<8} {entry_type:<9} ")?;
    let path = if entry.path.is_empty() {
        b"."
    } else {
        &entry.path[..]
    };
    console.write_path(path)?;
    if let Some(from) = &entry.renamed_from {
        write!(console.out, " from ")?;
        console.write_path(from)?;
    }
    if let Some(path) = &entry.link_of {
        write!(console.out, " link of ")?;
        console.write_path(path)?;
    }
    if matches!(entry.kind, ChangeKind::Changed | ChangeKind::Renamed) {
        let details = details(entry);
        if !details.is_empty() {
            write!(console.out, ": {}", details.join(", "))?;
        }
    }
    Ok(())
}

/// The differences of a file that both snapshots have.
fn details(entry: &DiffEntry) -> Vec<String> {
    let (Some(old), Some(new)) = (&entry.old, &entry.new) else {
        return Vec::new();
    };
    let mut details = Vec::new();
    let mut add = |name: &str, old: String, new: String| {
        if old != new {
            details.push(format!("{name} {old} -> {new}"));
        }
    };
    add("size", old.size.to_string(), new.size.to_string());
    add(
        "mode",
        format!("{:04o}", old.mode),
        format!("{:04o}", new.mode),
    );
    let owner = |a: &Attributes| format!("{}:{}", a.uid, a.gid);
    add("owner", owner(old), owner(new));
    add("links", old.links.to_string(), new.links.to_string());
    add(
        "flags",
        format!("{:#x}", old.flags),
        format!("{:#x}", new.flags),
    );
    let times = [
        ("atime", old.atime, new.atime),
        ("mtime", old.mtime, new.mtime),
        ("ctime", old.ctime, new.ctime),
        ("otime", old.otime, new.otime),
    ];
    let differing = times.iter().filter(|(_, old, new)| old != new);
    details.extend(differing.map(|(name, ..)| (*name).to_owned()));
    for xattr in &entry.xattrs {
        let sign = match xattr.kind {
            XattrChangeKind::Removed => "-",
            XattrChangeKind::Added => "+",
            XattrChangeKind::Changed => "",
        };
        details.push(format!("xattr {sign}{}", xattr.name.escape_ascii()));
    }
    if entry.more_xattrs > 0 {
        details.push(format!("{} more xattrs", entry.more_xattrs));
    }
    let ranges: Vec<_> = entry
        .data
        .iter()
        .map(|r| format!("{}-{}", r.start, r.end))
        .collect();
    if !ranges.is_empty() {
        details.push(format!("data {}", ranges.join(" ")));
    }
    details
}

fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Removed => "removed",
        ChangeKind::Added => "added",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Changed => "changed",
    }
}

fn type_name(entry_type: EntryType) -> &'static str {
    match entry_type {
        EntryType::File => "file",
        EntryType::Directory => "directory",
        EntryType::Symlink => "symlink",
        EntryType::CharDevice => "chardev",
        EntryType::BlockDevice => "blockdev",
        EntryType::Fifo => "fifo",
        EntryType::Socket => "socket",
        EntryType::Subvolume => "subvolume",
    }
}

#[derive(Debug, Serialize)]
struct EntryJson {
    change: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_of: Option<String>,
    r#type: &'static str,
    inode: Option<u64>,
    old: Option<AttributesJson>,
    new: Option<AttributesJson>,
    xattrs: Vec<XattrJson>,
    more_xattrs: u64,
    /// Pairs of the first byte and the one behind the last.
    data: Vec<(u64, u64)>,
    data_is_coarse: bool,
}

#[derive(Debug, Serialize)]
struct AttributesJson {
    size: u64,
    mode: String,
    uid: u32,
    gid: u32,
    links: u32,
    rdev: u64,
    flags: u64,
    atime: String,
    mtime: String,
    ctime: String,
    otime: String,
}

#[derive(Debug, Serialize)]
struct XattrJson {
    name: String,
    change: &'static str,
}

impl EntryJson {
    fn of(entry: &DiffEntry) -> EntryJson {
        let xattrs = entry.xattrs.iter().map(|xattr| XattrJson {
            name: json::text(&xattr.name),
            change: match xattr.kind {
                XattrChangeKind::Removed => "removed",
                XattrChangeKind::Added => "added",
                XattrChangeKind::Changed => "changed",
            },
        });
        let from = entry.renamed_from.as_deref();
        EntryJson {
            change: kind_name(entry.kind),
            path: json::text(&entry.path),
            path_hex: json::hex_if_lossy(&entry.path),
            from: from.map(json::text),
            from_hex: from.and_then(json::hex_if_lossy),
            link_of: entry.link_of.as_deref().map(json::text),
            r#type: type_name(entry.entry_type),
            inode: entry.inode,
            old: entry.old.as_ref().map(AttributesJson::of),
            new: entry.new.as_ref().map(AttributesJson::of),
            xattrs: xattrs.collect(),
            more_xattrs: entry.more_xattrs,
            data: entry.data.iter().map(|r| (r.start, r.end)).collect(),
            data_is_coarse: entry.data_is_coarse,
        }
    }
}

impl AttributesJson {
    fn of(attributes: &Attributes) -> AttributesJson {
        let time = |(sec, nsec)| clock::rfc3339(FileTime { sec, nsec });
        AttributesJson {
            size: attributes.size,
            mode: format!("{:04o}", attributes.mode),
            uid: attributes.uid,
            gid: attributes.gid,
            links: attributes.links,
            rdev: attributes.rdev,
            flags: attributes.flags,
            atime: time(attributes.atime),
            mtime: time(attributes.mtime),
            ctime: time(attributes.ctime),
            otime: time(attributes.otime),
        }
    }
}
