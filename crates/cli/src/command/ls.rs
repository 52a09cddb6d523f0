//! `ubtrfs ls`: listings in the layout of ls(1), and as JSON.
//!
//! Sorted by the bytes of the names, one entry per line. Each directory is read completely before it is
//! printed. With `-R --json` entries are written during the walk.

mod long;

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ubtrfs::{ListedDir, Subvolume, WalkOptions};

use crate::presentation::console::Console;
use crate::presentation::file_stat::FileStat;
use crate::presentation::json::JsonList;
use crate::presentation::quoting::{Escaped, ShellQuoted};
use crate::volume_access::location::{Location, Opened, VolumeOptions};
use crate::volume_access::reason::Reasoned;
use long::Listed;

/// List files
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// The files and directories: IMAGE:/path, or IMAGE for its top directory
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    locations: Vec<Location>,
    /// Long listing: mode, links, owner, group, size, time
    #[arg(short)]
    long: bool,
    /// List names that begin with a dot as well, and . and ..
    #[arg(short, long)]
    all: bool,
    /// List names that begin with a dot as well, but not . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// List directories below as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// List directories themselves, not what is in them
    #[arg(short, long)]
    directory: bool,
    /// Print numbers of owners and groups instead of names
    #[arg(short, long)]
    numeric_uid_gid: bool,
    /// Print sizes with units
    #[arg(short, long)]
    human_readable: bool,
    /// Print inode numbers
    #[arg(short, long)]
    inode: bool,
    /// Print times in full
    #[arg(long)]
    full_time: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Ls {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if self.json || console.is_json() {
            self.list_json(console)
        } else {
            self.list_text(console)
        }
    }

    fn open(&self, location: &Location, console: &mut Console) -> Option<Opened> {
        self.volume
            .open(location)
            .inspect_err(|error| console.failed(error))
            .ok()
    }

    /// Returns options for sorted names. Without `all`, names that begin with a dot are skipped.
    fn walk_options(all: bool) -> WalkOptions {
        WalkOptions::new()
            .no_follow(true)
            .sort_by_name(true)
            .skip_hidden(!all)
    }

    fn list_text(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut layout = long::Layout::new(self, console.is_terminal());
        let mut first = true;
        for location in &self.locations {
            let Some(opened) = self.open(location, console) else {
                continue;
            };
            let (files, path) = (&opened.files, location.path_within());
            if !files.symlink_metadata(path).reason()?.is_dir() || self.directory {
                let name = shown(location, path);
                layout.add(&name, Listed::At(files, path), console);
                layout.print(&mut console.out, None)?;
                first = false;
                continue;
            }
            self.list_directories(console, &mut layout, files, location, &mut first)?;
        }
        Ok(())
    }

    /// Lists a directory and, if requested, those below it, in the order of `ls -R`.
    fn list_directories(
        &self,
        console: &mut Console,
        layout: &mut long::Layout,
        files: &Subvolume,
        location: &Location,
        first: &mut bool,
    ) -> anyhow::Result<()> {
        let headings = self.recursive || self.locations.len() > 1;
        let options = Ls::walk_options(self.all || self.almost_all);
        let walk = files.walk_dirs(location.path_within(), &options).reason()?;
        for dir in walk {
            let dir = match dir {
                Ok(dir) => dir,
                Err(error) => {
                    cannot_list(console, location, &error);
                    continue;
                }
            };
            if !std::mem::replace(first, false) {
                writeln!(console.out)?;
            }
            if headings {
                layout.print_name(&mut console.out, &shown(location, &dir.path))?;
                writeln!(console.out, ":")?;
            }
            self.list_directory(console, layout, location, &dir)?;
            if !self.recursive {
                break;
            }
        }
        Ok(())
    }

    fn list_directory(
        &self,
        console: &mut Console,
        layout: &mut long::Layout,
        location: &Location,
        dir: &ListedDir,
    ) -> anyhow::Result<()> {
        if let Some(error) = &dir.failure {
            cannot_list(console, location, error);
        }
        if self.all {
            layout.add(b".", Listed::Dir(&dir.open()), console);
            match dir.open_parent() {
                Ok(above) => layout.add(b"..", Listed::Dir(&above), console),
                Err(error) => long::cannot_stat(b"..", &error, console),
            }
        }
        for entry in &dir.entries {
            let name = entry.file_name();
            layout.add(name.as_bytes(), Listed::Entry(entry), console);
        }
        Ok(layout.print(&mut console.out, Some(()))?)
    }

    fn list_json(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut list = JsonList::start(&mut console.out, "ls")?;
        for location in &self.locations {
            let Some(opened) = self.open(location, console) else {
                continue;
            };
            self.list_json_of(console, &mut list, location, &opened)?;
        }
        Ok(list.end(&mut console.out)?)
    }

    fn list_json_of(
        &self,
        console: &mut Console,
        list: &mut JsonList,
        location: &Location,
        opened: &Opened,
    ) -> anyhow::Result<()> {
        let (files, path) = (&opened.files, location.path_within());
        let is_dir = files.symlink_metadata(path).reason()?.is_dir();
        let is_listed = is_dir && !self.directory;
        if !is_listed || self.all || self.recursive {
            push_json(console, list, path, FileStat::at(files, path))?;
        }
        if !is_listed {
            return Ok(());
        }
        let options = Ls::walk_options(self.all || self.almost_all || self.recursive);
        let mut walk = files.walk(path, &options).reason()?;
        while let Some(entry) = walk.next() {
            match entry {
                Ok(entry) => push_json(console, list, &entry.path(), FileStat::of(&entry))?,
                Err(error) => {
                    let (path, reason) = (shown_path(&error), error.reason());
                    console.error(format_args!("cannot list '{path}': {reason}"));
                }
            }
            if !self.recursive {
                walk.skip_contents();
            }
        }
        Ok(())
    }
}

fn push_json(
    console: &mut Console,
    list: &mut JsonList,
    path: &Path,
    stat: ubtrfs::Result<FileStat>,
) -> anyhow::Result<()> {
    let path = path.as_os_str().as_bytes();
    match stat {
        Ok(stat) => list.push(&mut console.out, &stat.to_json(path))?,
        Err(error) => {
            let (path, reason) = (Escaped(path), error.reason());
            console.error(format_args!("cannot stat '{path}': {reason}"));
        }
    }
    Ok(())
}

fn cannot_list(console: &mut Console, location: &Location, error: &ubtrfs::Error) {
    let path = shown(location, error.path().unwrap_or(Path::new("")));
    let reason = error.reason();
    console.error(format_args!("cannot list '{}': {reason}", Escaped(&path)));
}

fn shown_path(error: &ubtrfs::Error) -> Escaped<'_> {
    let path = error.path().unwrap_or(Path::new(""));
    Escaped::of(path)
}

/// Returns a path in the user's notation, for headings and single files.
fn shown(location: &Location, path: &Path) -> Vec<u8> {
    let image = location.image.as_os_str().as_bytes();
    [image, b":", path.as_os_str().as_bytes()].concat()
}

/// Writes a name for a terminal or for a program.
fn write_name(out: &mut dyn Write, name: &[u8], for_terminal: bool) -> std::io::Result<()> {
    if for_terminal {
        write!(out, "{}", ShellQuoted(name))
    } else {
        out.write_all(name)
    }
}
