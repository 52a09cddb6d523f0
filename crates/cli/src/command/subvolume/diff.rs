//! `ubtrfs subvolume diff`: the changes between two snapshots.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use rustix::fs::{major, minor};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use ubtrfs::{
    Change, ChangeKind, FileAttributes, FileKind, Snapshot, XattrChange, XattrChangeKind,
};
use ubtrfs_fs::DeviceNumber;

use crate::presentation::console::Console;
use crate::presentation::{clock, json};
use crate::volume_access::location::{Location, Opened, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Show what changed between two read-only snapshots, in the order of paths
///
/// Time is spent on what differs, not on what both share. Data counts as changed where it was written, whatever was
/// written. With --format json each line is an object.
#[derive(Debug, clap::Args)]
#[command(name = "diff")]
pub(crate) struct DiffSnapshots {
    /// Older snapshot
    #[arg(value_name = "IMAGE:/OLD")]
    old: Location,
    /// Newer snapshot
    #[arg(value_name = "IMAGE:/NEW")]
    new: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl DiffSnapshots {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let same_image = self.old.session().is_some() || self.old.shares_image(&self.new);
        if !same_image {
            bail!("'{}' and '{}' are not of one volume", self.old, self.new);
        }
        let opened = self.volume.open(&self.old)?;
        let with_new = self.volume.find(opened.volume.clone(), &self.new)?;
        let old = held(&opened, &self.old)?;
        let new = held(&with_new, &self.new)?;
        for change in new.changes_since(&old).reason()? {
            let change = change.reason()?;
            if console.is_json() {
                serde_json::to_writer(&mut console.out, &ChangeJson(&change))
                    .map_err(std::io::Error::from)?;
            } else {
                print(console, &change)?
            }
            writeln!(console.out)?;
        }
        Ok(())
    }
}

fn held(opened: &Opened, location: &Location) -> anyhow::Result<Snapshot> {
    let Some(subvolume) = opened.subvolume()? else {
        bail!("'{location}' is not a subvolume");
    };
    let snapshot = Snapshot::open(&subvolume).reason();
    snapshot.with_context(|| format!("cannot compare '{location}'"))
}

fn print(console: &mut Console, change: &Change) -> anyhow::Result<()> {
    let (kind, file_type) = (kind_name(change.kind), type_name(change));
    write!(console.out, "{kind:<8} {file_type:<9} ")?;
    let path = match change.path.as_os_str().as_bytes() {
        b"" => b".",
        path => path,
    };
    console.write_path(path)?;
    if let Some(from) = &change.renamed_from {
        write!(console.out, " from ")?;
        console.write_path(from.as_os_str().as_bytes())?;
    }
    if let Some(path) = &change.link_of {
        write!(console.out, " link of ")?;
        console.write_path(path.as_os_str().as_bytes())?;
    }
    if matches!(change.kind, ChangeKind::Changed | ChangeKind::Renamed) {
        let details = details(change);
        if !details.is_empty() {
            write!(console.out, ": {}", details.join(", "))?;
        }
    }
    Ok(())
}

/// Returns the differences of a file that both snapshots contain.
fn details(change: &Change) -> Vec<String> {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return Vec::new();
    };
    let mut details = Vec::new();
    let mut add = |name: &str, old: String, new: String| {
        if old != new {
            details.push(format!("{name} {old} -> {new}"));
        }
    };
    add("size", old.len.to_string(), new.len.to_string());
    add(
        "mode",
        format!("{:04o}", old.mode),
        format!("{:04o}", new.mode),
    );
    let owner = |a: &FileAttributes| format!("{}:{}", a.uid, a.gid);
    add("owner", owner(old), owner(new));
    add("links", old.nlink.to_string(), new.nlink.to_string());
    add(
        "flags",
        format!("{:#x}", old.flag_bits),
        format!("{:#x}", new.flag_bits),
    );
    let times = [
        ("atime", old.accessed, new.accessed),
        ("mtime", old.modified, new.modified),
        ("ctime", old.changed, new.changed),
        ("otime", old.created, new.created),
    ];
    let differing = times.iter().filter(|(_, old, new)| old != new);
    details.extend(differing.map(|(name, ..)| (*name).to_owned()));
    for xattr in &change.xattrs {
        let sign = match xattr.kind {
            XattrChangeKind::Removed => "-",
            XattrChangeKind::Added => "+",
            XattrChangeKind::Changed => "",
        };
        let name = xattr.name.as_bytes().escape_ascii();
        details.push(format!("xattr {sign}{name}"));
    }
    if change.more_xattrs > 0 {
        details.push(format!("{} more xattrs", change.more_xattrs));
    }
    let ranges: Vec<_> = change
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

fn type_name(change: &Change) -> &'static str {
    match change.file_type {
        FileKind::Directory if change.ino.is_none() => "subvolume",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::CharDevice => "chardev",
        FileKind::BlockDevice => "blockdev",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::Regular => "file",
    }
}

/// A change in JSON.
struct ChangeJson<'a>(&'a Change);

impl Serialize for ChangeJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let change = self.0;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("change", kind_name(change.kind))?;
        let path = change.path.as_os_str().as_bytes();
        map.serialize_entry("path", &json::text(path))?;
        if let Some(hex) = json::hex_if_lossy(path) {
            map.serialize_entry("path_hex", &hex)?;
        }
        if let Some(from) = &change.renamed_from {
            let from = from.as_os_str().as_bytes();
            map.serialize_entry("from", &json::text(from))?;
            if let Some(hex) = json::hex_if_lossy(from) {
                map.serialize_entry("from_hex", &hex)?;
            }
        }
        if let Some(path) = &change.link_of {
            map.serialize_entry("link_of", &json::text(path.as_os_str().as_bytes()))?;
        }
        map.serialize_entry("type", type_name(change))?;
        map.serialize_entry("inode", &change.ino)?;
        map.serialize_entry("old", &change.old.as_ref().map(AttributesJson))?;
        map.serialize_entry("new", &change.new.as_ref().map(AttributesJson))?;
        let xattrs: Vec<_> = change.xattrs.iter().map(XattrJson::of).collect();
        map.serialize_entry("xattrs", &xattrs)?;
        map.serialize_entry("more_xattrs", &change.more_xattrs)?;
        // Pairs of start and exclusive end.
        let data: Vec<_> = change.data.iter().map(|r| (r.start, r.end)).collect();
        map.serialize_entry("data", &data)?;
        map.serialize_entry("data_is_coarse", &change.data_is_coarse)?;
        map.end()
    }
}

struct AttributesJson<'a>(&'a FileAttributes);

impl Serialize for AttributesJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let file = self.0;
        let (major, minor) = (major(file.rdev), minor(file.rdev));
        let rdev = DeviceNumber { major, minor }.to_inode();
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("size", &file.len)?;
        map.serialize_entry("mode", &format!("{:04o}", file.mode))?;
        map.serialize_entry("uid", &file.uid)?;
        map.serialize_entry("gid", &file.gid)?;
        map.serialize_entry("links", &file.nlink)?;
        map.serialize_entry("rdev", &rdev)?;
        map.serialize_entry("flags", &file.flag_bits)?;
        map.serialize_entry("atime", &clock::rfc3339(file.accessed))?;
        map.serialize_entry("mtime", &clock::rfc3339(file.modified))?;
        map.serialize_entry("ctime", &clock::rfc3339(file.changed))?;
        map.serialize_entry("otime", &clock::rfc3339(file.created))?;
        map.end()
    }
}

#[derive(Debug, Serialize)]
struct XattrJson {
    name: String,
    change: &'static str,
}

impl XattrJson {
    fn of(xattr: &XattrChange) -> XattrJson {
        XattrJson {
            name: json::text(xattr.name.as_bytes()),
            change: match xattr.kind {
                XattrChangeKind::Removed => "removed",
                XattrChangeKind::Added => "added",
                XattrChangeKind::Changed => "changed",
            },
        }
    }
}
