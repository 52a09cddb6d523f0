//! Lines of a listing, collected per directory to align the columns.

use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;
use ubtrfs::{Dir, DirEntry, Error, HostOwners, Result, Subvolume};

use super::{Ls, write_name};
use crate::presentation::console::Console;
use crate::presentation::file_stat::FileStat;
use crate::presentation::quoting::Escaped;
use crate::presentation::{clock, permissions};

/// The attributes that hold ACLs.
const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// A listed file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listed<'a> {
    /// By its path. Links are not followed.
    At(&'a Subvolume, &'a Path),
    Entry(&'a DirEntry),
    Dir(&'a Dir),
}

impl Listed<'_> {
    fn stat(self) -> Result<FileStat> {
        match self {
            Listed::At(files, path) => FileStat::at(files, path),
            Listed::Entry(entry) => FileStat::of(entry),
            Listed::Dir(dir) => Ok(FileStat {
                metadata: dir.metadata()?,
                target: None,
            }),
        }
    }

    fn ino(self) -> Result<u64> {
        match self {
            Listed::At(files, path) => Ok(files.symlink_metadata(path)?.ino()),
            Listed::Entry(entry) => Ok(entry.ino()),
            Listed::Dir(dir) => Ok(dir.ino()),
        }
    }

    fn has_acl(self, name: &str) -> Result<bool> {
        let acl = match self {
            Listed::At(files, path) => files.symlink_xattr(path, name),
            Listed::Entry(entry) => entry.xattr(name),
            Listed::Dir(dir) => dir.xattr(name),
        };
        Ok(acl?.is_some())
    }
}

pub(super) fn cannot_stat(name: &[u8], error: &Error, console: &mut Console) {
    let (name, reason) = (Escaped(name), error.reason());
    console.error(format_args!("cannot stat '{name}': {reason}"));
}

#[derive(Debug)]
pub(super) struct Layout {
    long: bool,
    inode: bool,
    human: bool,
    full_time: bool,
    for_terminal: bool,
    owners: HostOwners,
    now: Timestamp,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    name: Vec<u8>,
    ino: u64,
    /// Only in a long listing.
    columns: Option<Columns>,
}

/// The columns of a long listing, as text.
#[derive(Debug)]
struct Columns {
    mode: String,
    nlink: String,
    user: String,
    group: String,
    size: Size,
    time: String,
    target: Option<Vec<u8>>,
    blocks: u64,
}

#[derive(Debug)]
enum Size {
    Bytes(String),
    Device { major: String, minor: String },
}

fn name_or_number(name: Option<&str>, id: u32) -> String {
    name.map_or_else(|| id.to_string(), str::to_owned)
}

impl Layout {
    pub(super) fn new(options: &Ls, for_terminal: bool) -> Layout {
        let owners = if options.long && !options.numeric_uid_gid {
            HostOwners::load()
        } else {
            HostOwners::default()
        };
        Layout {
            long: options.long || options.full_time || options.numeric_uid_gid,
            inode: options.inode,
            human: options.human_readable,
            full_time: options.full_time,
            for_terminal,
            owners,
            now: clock::now(),
            lines: Vec::new(),
        }
    }

    /// Adds a line. Prints an error for a file that cannot be read.
    pub(super) fn add(&mut self, name: &[u8], file: Listed<'_>, console: &mut Console) {
        match self.line(name, file) {
            Ok(line) => self.lines.push(line),
            Err(error) => cannot_stat(name, &error, console),
        }
    }

    fn line(&self, name: &[u8], file: Listed<'_>) -> Result<Line> {
        let columns = if self.long {
            Some(self.columns(file)?)
        } else {
            None
        };
        let ino = if self.inode { file.ino()? } else { 0 };
        Ok(Line {
            name: name.to_vec(),
            ino,
            columns,
        })
    }

    fn columns(&self, listed: Listed<'_>) -> Result<Columns> {
        let stat = listed.stat()?;
        let file = &stat.metadata;
        let has_acl =
            listed.has_acl(ACCESS_ACL)? || (file.is_dir() && listed.has_acl(DEFAULT_ACL)?);
        let acl = if has_acl { "+" } else { "" };
        let size = match stat.device_number() {
            Some((major, minor)) => Size::Device {
                major: major.to_string(),
                minor: minor.to_string(),
            },
            None if self.human => Size::Bytes(human(file.len())),
            None => Size::Bytes(file.len().to_string()),
        };
        let modified = file.modified();
        Ok(Columns {
            mode: permissions::text(file.mode()) + acl,
            nlink: file.nlink().to_string(),
            user: name_or_number(self.owners.user_name(file.uid()), file.uid()),
            group: name_or_number(self.owners.group_name(file.gid()), file.gid()),
            size,
            time: if self.full_time {
                clock::full(modified)
            } else {
                clock::short(modified, self.now)
            },
            blocks: file.blocks(),
            target: stat.target,
        })
    }

    /// Prints and clears the lines. A long listing of a directory begins with its total.
    pub(super) fn print(&mut self, out: &mut dyn Write, directory: Option<()>) -> io::Result<()> {
        let lines = std::mem::take(&mut self.lines);
        let columns = || lines.iter().filter_map(|line| line.columns.as_ref());
        if directory.is_some() && self.long {
            let blocks = columns().fold(0u64, |sum, c| sum.saturating_add(c.blocks));
            let total = if self.human {
                human(blocks.saturating_mul(512))
            } else {
                blocks.div_ceil(2).to_string()
            };
            writeln!(out, "total {total}")?;
        }
        let widths = Widths::of(columns());
        let ino_width = lines.iter().map(|l| digits(l.ino)).max().unwrap_or(0);
        for line in &lines {
            if self.inode {
                write!(out, "{:>ino_width$} ", line.ino)?;
            }
            if let Some(columns) = &line.columns {
                widths.write(out, columns)?;
            }
            write_name(out, &line.name, self.for_terminal)?;
            if let Some(target) = line.columns.as_ref().and_then(|c| c.target.as_deref()) {
                out.write_all(b" -> ")?;
                write_name(out, target, self.for_terminal)?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    pub(super) fn print_name(&self, out: &mut dyn Write, name: &[u8]) -> io::Result<()> {
        write_name(out, name, self.for_terminal)
    }
}

#[derive(Debug, Default)]
struct Widths {
    mode: usize,
    nlink: usize,
    user: usize,
    group: usize,
    size: usize,
    major: usize,
    minor: usize,
    time: usize,
}

impl Widths {
    fn of<'a>(lines: impl Iterator<Item = &'a Columns>) -> Widths {
        let mut widths = Widths::default();
        for line in lines {
            widths.mode = widths.mode.max(line.mode.len());
            widths.nlink = widths.nlink.max(line.nlink.len());
            widths.user = widths.user.max(line.user.len());
            widths.group = widths.group.max(line.group.len());
            widths.time = widths.time.max(line.time.len());
            match &line.size {
                Size::Bytes(size) => widths.size = widths.size.max(size.len()),
                Size::Device { major, minor } => {
                    widths.major = widths.major.max(major.len());
                    widths.minor = widths.minor.max(minor.len());
                }
            }
        }
        if widths.major > 0 {
            widths.size = widths.size.max(widths.major + 2 + widths.minor);
            widths.major = widths.size - 2 - widths.minor;
        }
        widths
    }

    fn write(&self, out: &mut dyn Write, line: &Columns) -> io::Result<()> {
        write!(
            out,
            "{:<mode$} {:>nlink$} {:<user$} {:<group$} ",
            line.mode,
            line.nlink,
            line.user,
            line.group,
            mode = self.mode,
            nlink = self.nlink,
            user = self.user,
            group = self.group,
        )?;
        match &line.size {
            Size::Bytes(size) => write!(out, "{size:>width$} ", width = self.size)?,
            Size::Device { major, minor } => write!(
                out,
                "{major:>width$}, {minor:>minor_width$} ",
                width = self.major,
                minor_width = self.minor
            )?,
        }
        write!(out, "{:>width$} ", line.time, width = self.time)
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Formats a size like `ls -h`: rounded up, with one decimal below ten.
fn human(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 0;
    let mut divisor = 1024u128;
    let bytes = u128::from(bytes);
    while bytes.div_ceil(divisor) >= 1024 && unit + 1 < UNITS.len() {
        unit += 1;
        divisor *= 1024;
    }
    let tenths = (bytes * 10).div_ceil(divisor);
    if tenths < 100 {
        format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{}{}", bytes.div_ceil(divisor), UNITS[unit])
    }
}
