//! `ubtrfs ls`: listings in the layout of ls(1), and as JSON.
//!
//! Sorted by the bytes of the names, one entry a line. Each directory is read whole before it is
//! printed; with `-R --json` entries are written as they are met.

mod long;

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use ubtrfs::transfer::walk::{self, Entry, Filter, Gate, Order, Step, Walk};
use ubtrfs_engine::{FileId, FileKind, Volume};

use crate::presentation::console::Console;
use crate::presentation::file_facts::FileFacts;
use crate::presentation::json::JsonList;
use crate::presentation::quoting::{Escaped, ShellQuoted};
use crate::volume_access::location::{Location, Opened, VolumeOptions};

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

    fn is_listed(&self, entry: &Entry) -> bool {
        self.all || self.almost_all || !entry.name.starts_with(b".")
    }

    fn list_text(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut layout = long::Layout::new(self, console.is_terminal());
        let headings = self.recursive || self.locations.len() > 1;
        let mut first = true;
        for location in &self.locations {
            let Some(opened) = self.open(location, console) else {
                continue;
            };
            let (volume, target) = (&**opened.engine(), opened.target);
            let is_dir = volume.attr(target)?.kind == FileKind::Directory;
            if !is_dir || self.directory {
                let name = shown_argument(location);
                layout.add(volume, &name, target, console);
                layout.print(&mut console.out, None)?;
                first = false;
                continue;
            }
            self.list_directories(
                console,
                &mut layout,
                volume,
                target,
                location,
                headings,
                &mut first,
            )?;
        }
        Ok(())
    }

    /// A directory and, if asked, those below it, in the order of `ls -R`.
    #[allow(clippy::too_many_arguments)]
    fn list_directories(
        &self,
        console: &mut Console,
        layout: &mut long::Layout,
        volume: &Volume,
        target: FileId,
        location: &Location,
        headings: bool,
        first: &mut bool,
    ) -> anyhow::Result<()> {
        let mut pending = vec![(shown_argument(location), target)];
        while let Some((path, dir)) = pending.pop() {
            if !std::mem::replace(first, false) {
                writeln!(console.out)?;
            }
            if headings {
                layout.print_name(&mut console.out, &path)?;
                writeln!(console.out, ":")?;
            }
            let (mut entries, failed) = walk::entries(volume, dir);
            if let Some(error) = failed {
                console.error(format_args!("cannot list '{}': {error}", Escaped(&path)));
            }
            entries.retain(|entry| self.is_listed(entry));
            if self.all {
                layout.add(volume, b".", dir, console);
                let parent = volume.parent(dir).unwrap_or(dir);
                layout.add(volume, b"..", parent, console);
            }
            for entry in &entries {
                layout.add(volume, &entry.name, entry.id, console);
            }
            layout.print(&mut console.out, Some(()))?;
            if self.recursive {
                let mut gate = Gate::of(target, dir);
                let mut below = Vec::new();
                for entry in entries.iter().filter(|e| e.kind == FileKind::Directory) {
                    let path = join(&path, &entry.name);
                    match gate.pass(volume, entry) {
                        Ok(()) => below.push((path, entry.id)),
                        Err(error) => {
                            console
                                .error(format_args!("cannot list '{}': {error}", Escaped(&path)));
                        }
                    }
                }
                pending.extend(below.into_iter().rev());
            }
        }
        Ok(())
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
        let volume = &**opened.engine();
        let is_dir = volume.attr(opened.target)?.kind == FileKind::Directory;
        if !is_dir || self.directory {
            return push_json(console, list, volume, opened.target, &location.path);
        }
        if self.all || self.recursive {
            push_json(console, list, volume, opened.target, &location.path)?;
        }
        let filter = Filter {
            skip_hidden: !(self.all || self.almost_all || self.recursive),
            ..Filter::default()
        };
        let mut walk = Walk::new(volume, opened.target, &location.path, Order::Name, filter);
        while let Some(step) = walk.next_step() {
            match step {
                Step::Entry(entry) => {
                    push_json(console, list, volume, entry.id, walk.path())?;
                    if self.recursive
                        && entry.kind == FileKind::Directory
                        && let Err(error) = walk.enter(&entry)
                    {
                        console.error(format_args!(
                            "cannot list '{}': {error}",
                            Escaped(walk.path())
                        ));
                    }
                }
                Step::Leave => {}
                Step::Failed(error) => {
                    console.error(format_args!(
                        "cannot list '{}': {error}",
                        Escaped(walk.path())
                    ));
                }
            }
        }
        Ok(())
    }
}

fn push_json(
    console: &mut Console,
    list: &mut JsonList,
    volume: &Volume,
    id: FileId,
    path: &[u8],
) -> anyhow::Result<()> {
    match FileFacts::read(volume, id) {
        Ok(facts) => list.push(&mut console.out, &facts.to_json(path))?,
        Err(error) => console.error(format_args!("cannot stat '{}': {error}", Escaped(path))),
    }
    Ok(())
}

/// The argument as the user wrote it, for headings and single files.
fn shown_argument(location: &Location) -> Vec<u8> {
    let image = location.image.as_os_str().as_bytes();
    match location.path.as_slice() {
        b"/" => [image, b":/"].concat(),
        path => [image, b":", path].concat(),
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, separator, name].concat()
}

/// Writes a name for a terminal or for a program.
fn write_name(out: &mut dyn Write, name: &[u8], for_terminal: bool) -> std::io::Result<()> {
    match for_terminal {
        true => write!(out, "{}", ShellQuoted(name)),
        false => out.write_all(name),
    }
}
